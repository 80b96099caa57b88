from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import attrs
from attrs.validators import in_, matches_re, optional

if TYPE_CHECKING:
    from amadou._plugins.report import BatchReport

_NAME = matches_re("[a-zA-Z][a-zA-Z0-9_]*")


def _not_total(_: Any, __: Any, name: str) -> None:
    if name.endswith("_total"):
        raise ValueError(f"the metric name {name!r} ends in _total, which Prometheus adds to counters: remove _total")


def _not_job(_: Any, __: Any, label: str | None) -> None:
    if label == "job":
        raise ValueError("the label 'job' is reserved for the name of the job: use a different label")


@attrs.frozen
class Metric:
    """A metric of a run, computed from the run's batch reports; see `amadou.hookspecs.amadou_register_metrics`.

    :param name: the metric's name, following Prometheus conventions: lower-case letters and underscores, with the unit
        at the end (``_seconds``, ``_bytes``). The name must not end in ``_total``
    :param help: a sentence that describes the metric
    :param kind: `"counter"` for a sum over all batches, `"gauge"` for the value after the latest batch
    :param read: function that accepts a `BatchReport` and returns the counter's increase or the gauge's value, or
        `None` if there is no value. With a `label`, the function returns a mapping from the label's values to numbers
    :param label: the label whose values distinguish the numbers, such as ``port``; `None` for a single number
    :param by_stage: `True` if the metric of a job with several stages is that of each stage, computed from the stage's
        report in `BatchReport.stages`; `False` if it is that of the entire batch
    :raises ValueError: an argument is invalid
    """

    name: str = attrs.field(validator=[_NAME, _not_total])
    help: str
    kind: Literal["counter", "gauge"] = attrs.field(validator=in_(("counter", "gauge")))
    read: Callable[["BatchReport"], float | Mapping[str, float] | None]
    label: str | None = attrs.field(default=None, validator=[optional(_NAME), _not_job])
    by_stage: bool = True
