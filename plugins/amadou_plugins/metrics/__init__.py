"""Metrics for runs: the plugin `PrometheusEndpoint` serves a run's metrics to Prometheus."""

from amadou_plugins.metrics._prometheus import PrometheusEndpoint

__all__ = ["PrometheusEndpoint"]
