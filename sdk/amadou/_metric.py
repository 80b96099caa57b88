from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import attrs
from attrs.validators import in_, matches_re, optional

if TYPE_CHECKING:
    from amadou._report import BatchReport

_NAME = matches_re("[a-zA-Z][a-zA-Z0-9_]*")


def _not_total(_: Any, __: Any, name: str) -> None:
    if name.endswith("_total"):
        raise ValueError(f"{name!r} goes without _total, which Prometheus adds to counters")


def _not_job(_: Any, __: Any, label: str | None) -> None:
    if label == "job":
        raise ValueError("the label 'job' is the name of the job that is run")


@attrs.frozen
class Metric:
    """A metric of runs, read from their batches; see `amadou.hookspecs.amadou_register_metrics`.

    :param name: a name by the rules of Prometheus: small letters and underscores, the unit at the end (``_seconds``,
        ``_bytes``), and without ``_total``
    :param help: a sentence that describes it
    :param kind: `"counter"` for a sum over batches, `"gauge"` for a value after a batch
    :param read: a function of a batch that returns the counter's increase or the gauge's value: a number, or numbers by
        the label's values; `None` for nothing
    :param label: the label that distinguishes several numbers, such as ``port``; `None` for a single number
    :raises ValueError: an argument cannot be used
    """

    name: str = attrs.field(validator=[_NAME, _not_total])
    help: str
    kind: Literal["counter", "gauge"] = attrs.field(validator=in_(("counter", "gauge")))
    read: Callable[["BatchReport"], float | Mapping[str, float] | None]
    label: str | None = attrs.field(default=None, validator=[optional(_NAME), _not_job])
