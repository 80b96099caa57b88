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
    """A figure of runs, read from their batches; see `amadou.hookspecs.amadou_register_metrics`.

    :param name: in the terms of Prometheus: small letters and underscores, the unit at the end (``_seconds``,
        ``_bytes``), and no ``_total``
    :param help: what it is, in a sentence
    :param kind: `"counter"` for what batches add up to, `"gauge"` for what stands after a batch
    :param read: gives what a batch adds, or what stands after it: a number, or numbers by the label's values; `None`
        for nothing
    :param label: what several numbers are told apart by, such as ``port``; `None` for a single number
    :raises ValueError: one of them cannot be used
    """

    name: str = attrs.field(validator=[_NAME, _not_total])
    help: str
    kind: Literal["counter", "gauge"] = attrs.field(validator=in_(("counter", "gauge")))
    read: Callable[["BatchReport"], float | Mapping[str, float] | None]
    label: str | None = attrs.field(default=None, validator=[optional(_NAME), _not_job])
