"""Serves metrics to Prometheus."""

import threading
from collections.abc import Iterable, Mapping
from typing import Any

from amadou import AmadouError, BatchReport, Metric, Run, hookimpl
from amadou_plugins.metrics._spark import SPARK


class PrometheusEndpoint:
    """A plugin that serves metrics over HTTP while a job with this plugin is running. The path ``/metrics`` returns the
    metrics in the Prometheus format. Each metric has a ``job`` label. Multiple jobs can share an endpoint.

    Counters start at zero when the endpoint starts, as Prometheus expects of a restarted program.

    :param port: port to listen on; `0` to listen on any free port
    :param address: address or host name of this machine to listen on; ``"0.0.0.0"`` to listen on all IPv4 addresses
    :ivar url: URL of the metrics while a job with this plugin is running; otherwise `None`
    :raises ValueError: the port is not between 0 and 65535
    """

    def __init__(self, port: int = 9464, address: str = "127.0.0.1") -> None:
        if not 0 <= port <= 65535:
            raise ValueError(f"port must be between 0 and 65535, not {port}")
        self.url: str | None = None
        self._port, self._address = port, address
        self._lock = threading.Lock()
        self._runs: set[str] = set()
        self._families: dict[str, tuple[Metric, dict[tuple[str, ...], float]]] = {}
        self._server: Any = None
        self._thread: Any = None

    @hookimpl
    def amadou_run_started(self, run: Run) -> None:
        with self._lock:
            if not self._runs:
                self._open()
            self._runs.add(run.id)
            for metric in run.metrics:
                _, numbers = self._families.setdefault(metric.name, (metric, {}))
                if metric.kind == "counter" and metric.label is None:
                    numbers.setdefault((run.job.name,), 0)

    @hookimpl
    def amadou_batch_completed(self, run: Run, batch: BatchReport) -> None:
        self._note(run, run.metrics, batch)

    @hookimpl
    def amadou_spark_progress(self, run: Run, progress: Mapping[str, Any]) -> None:
        self._note(run, SPARK, progress)

    @hookimpl
    def amadou_run_ended(self, run: Run) -> None:
        self._end(run)

    @hookimpl
    def amadou_run_failed(self, run: Run) -> None:
        self._end(run)

    def collect(self) -> list[Any]:
        """Return the metrics as metric families for the Prometheus client library."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        families = []
        with self._lock:
            for metric, numbers in self._families.values():
                kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
                labels = ["job"] if metric.label is None else ["job", metric.label]
                families.append(kind(metric.name, metric.help, labels=labels))
                for values, number in numbers.items():
                    families[-1].add_metric(values, number)
        return families

    def _note(self, run: Run, metrics: Iterable[Metric], report: Any) -> None:
        job = run.job.name
        with self._lock:
            for metric in metrics:
                _, numbers = self._families.setdefault(metric.name, (metric, {}))
                if metric.kind == "gauge":
                    for labels in [labels for labels in numbers if labels[0] == job]:
                        del numbers[labels]
                given = metric.read(report)
                read = given.items() if isinstance(given, Mapping) else () if given is None else ((None, given),)
                for value, number in read:
                    labels = (job,) if value is None else (job, str(value))
                    numbers[labels] = numbers.get(labels, 0) + number

    def _open(self) -> None:
        try:
            from prometheus_client import CollectorRegistry, start_http_server
        except ImportError as error:
            raise AmadouError("the endpoint needs prometheus-client: run pip install 'amadou[prometheus]'") from error
        registry = CollectorRegistry()
        registry.register(self)
        try:
            self._server, self._thread = start_http_server(self._port, self._address, registry)
        except OSError as error:
            where = f"{self._address}:{self._port}: use a different port or address"
            raise AmadouError(f"metrics cannot be served on {where} ({error.strerror})") from error
        address, port = self._server.server_address[:2]
        self.url = f"http://{f'[{address}]' if ':' in address else address}:{port}/metrics"

    def _end(self, run: Run) -> None:
        with self._lock:
            if run.id not in self._runs:  # the run ended because the endpoint could not start
                return
            self._runs.discard(run.id)
            if not self._runs:
                self._server.shutdown()
                self._server.server_close()
                self._thread.join()
                self.url = None
                self._families.clear()
