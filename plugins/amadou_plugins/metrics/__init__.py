"""What runs come to, in figures: `PrometheusEndpoint` shows them to Prometheus."""

from amadou_plugins.metrics._prometheus import PrometheusEndpoint

__all__ = ["PrometheusEndpoint"]
