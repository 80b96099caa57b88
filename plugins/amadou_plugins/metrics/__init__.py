"""Metrics of runs: `PrometheusEndpoint` serves them to Prometheus."""

from amadou_plugins.metrics._prometheus import PrometheusEndpoint

__all__ = ["PrometheusEndpoint"]
