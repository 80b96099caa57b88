"""Serves metrics to Prometheus."""

import threading
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from amadou import AmadouError
from amadou.plugins import BatchReport, Metric, Run, hookimpl
from amadou.text import redacted, valid
from amadou_plugins._hosts import Hosts, in_url
from amadou_plugins.metrics._spark import SPARK

_Labels: TypeAlias = tuple[tuple[str, str], ...]
"""Pairs of a label and its value. The first label is the job."""


class PrometheusEndpoint:
    """A plugin that serves metrics over HTTP while a job with this plugin is running. The path ``/metrics`` returns the
    metrics in the Prometheus format. Each metric has a ``job`` label. Metrics of a job's stages also have a ``stage``
    label. Multiple jobs can share an endpoint.

    Counters start at zero when the endpoint starts, as Prometheus expects of a restarted program.

    :param port: port to listen on; `0` to listen on any free port
    :param address: address or host name of this machine to listen on; ``"0.0.0.0"`` to listen on all IPv4 addresses
    :param hosts: host names under which Prometheus reads the metrics, apart from those of this machine. Requests under
        other names are refused, except for numeric addresses, and names such as those of services in a cluster, if
        other machines can connect
    :ivar url: URL of the metrics while a job with this plugin is running; otherwise `None`
    :raises ValueError: the port is not between 0 and 65535
    """

    def __init__(self, port: int = 9464, address: str = "127.0.0.1", *, hosts: Iterable[str] = ()) -> None:
        if not 0 <= port <= 65535:
            raise ValueError(f"port must be between 0 and 65535, not {port}")
        self.url: str | None = None
        self._port, self._address, self._hosts = port, address, tuple(hosts)
        self._lock = threading.Lock()
        self._runs: set[str] = set()
        self._families: dict[str, tuple[Metric, dict[_Labels, float]]] = {}
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
                    for stage in run.job.by_stage if metric.by_stage else ("",):
                        numbers.setdefault(_labels(run, metric, stage), 0)

    @hookimpl
    def amadou_batch_completed(self, run: Run, batch: BatchReport) -> None:
        by_stage = [metric for metric in run.metrics if metric.by_stage and batch.stages]
        self._note(run, [metric for metric in run.metrics if metric not in by_stage], {"": batch})
        self._note(run, by_stage, batch.stages)

    @hookimpl
    def amadou_spark_progress(self, run: Run, progress: Mapping[str, Any]) -> None:
        self._note(run, SPARK, {"": progress})

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
                is_counter = metric.kind == "counter"
                family = (CounterMetricFamily if is_counter else GaugeMetricFamily)(metric.name, metric.help)
                for labels, number in numbers.items():
                    family.add_sample(f"{metric.name}_total" if is_counter else metric.name, dict(labels), number)
                families.append(family)
        return families

    def _note(self, run: Run, metrics: Iterable[Metric], reports: Mapping[str, Any]) -> None:
        """
        :param reports: the reports by stage; a single one with an empty name for the entire batch
        """
        with self._lock:
            for metric in metrics:
                _, numbers = self._families.setdefault(metric.name, (metric, {}))
                if metric.kind == "gauge":
                    for labels in [labels for labels in numbers if labels[0] == ("job", run.job.name)]:
                        del numbers[labels]
                for stage, report in reports.items():
                    given = metric.read(report)
                    read = given.items() if isinstance(given, Mapping) else () if given is None else ((None, given),)
                    for value, number in read:
                        labels = _labels(run, metric, stage, value)
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
        self._server.set_app(_answering(self._server.get_app(), Hosts(self._address, self._hosts)))
        self.url = f"http://{in_url(address)}:{port}/metrics"

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


def _labels(run: Run, metric: Metric, stage: str, value: Any = None) -> _Labels:
    """Return the labels of a number.

    :param stage: the stage's name; empty for a number of the entire batch
    :param value: the value of the metric's own label
    """
    labels = [("job", run.job.name), *([("stage", stage)] if stage else [])]
    if value is not None:
        labels.append(("part" if stage and metric.label == "stage" else str(metric.label), valid(redacted(str(value)))))
    return tuple(labels)


def _answering(app: Any, hosts: Hosts) -> Any:
    """Return a WSGI application that refuses requests under other host names."""

    def answering(environ: Mapping[str, Any], start_response: Any) -> Any:
        if environ.get("HTTP_HOST", "") in hosts:
            return app(environ, start_response)
        start_response("421 Misdirected Request", [("Content-Type", "text/plain")])
        return [b"This host name is not known: name it with --metrics-name or PrometheusEndpoint(hosts=[...]).\n"]

    return answering
