"""Checks that an aggregate can continue from the accumulator that `migrate=` returned."""

from copy import deepcopy
from typing import Any, Final

from amadou_plugins.aggregates._aggregate import Aggregate
from amadou_plugins.aggregates._composite import CompositeAggregate
from amadou_plugins.aggregates._errors import AggregateError
from amadou_plugins.aggregates._extremes import ArgMax, ArgMin
from amadou_plugins.aggregates._foreign import Foreign
from amadou_plugins.aggregates._reduce import Reduce
from amadou_plugins.aggregates._times import Earliest, Latest

_OURS: Final = f"{__package__.partition('.')[0]}."
_ENTRIES: Final[dict[type, int]] = {Earliest: 2, Latest: 2, ArgMin: 3, ArgMax: 3}
"""Length of a non-empty accumulator, for aggregates whose accumulator is `None` or an entry for one event."""


def check_migrated(aggregate: Aggregate[Any, Any], accumulator: Any) -> None:
    """Reject an accumulator that an aggregate cannot use.

    :raises AggregateError: the aggregate cannot use the accumulator
    """
    if isinstance(aggregate, CompositeAggregate):
        _check_names(aggregate, accumulator)
        for name, part in aggregate.aggregates.items():
            check_migrated(part, accumulator[name])
        return
    new = aggregate.create()
    if new is None and accumulator is not None and type(aggregate) in _ENTRIES:
        new = [None] * _ENTRIES[type(aggregate)]
    if (accumulator is None and new is not None) or (_is_ours(aggregate) and not _is_like(new, accumulator)):
        raise _refused(aggregate, accumulator, f"return an accumulator like {new!r}")
    if accumulator == new:  # some aggregates cannot compute a result without events
        return
    try:
        _try_out(aggregate, accumulator)
    except Exception as error:
        raise _refused(aggregate, accumulator, f"{type(error).__name__}: {error}") from error


def _check_names(aggregate: CompositeAggregate, accumulator: Any) -> None:
    names = ", ".join(map(repr, aggregate.aggregates))
    if not isinstance(accumulator, dict):
        raise _refused(aggregate, accumulator, f"return a mapping with accumulators for {names}")
    lacking = [name for name in aggregate.aggregates if name not in accumulator]
    if lacking:
        problem = f"add accumulators for {', '.join(map(repr, lacking))}; an aggregate's create() returns an empty one"
        raise _refused(aggregate, accumulator, problem)


def _refused(aggregate: Aggregate[Any, Any], accumulator: Any, why: str) -> AggregateError:
    return AggregateError(repr(aggregate), f"cannot continue from {accumulator!r:.200}, which migrate= returned: {why}")


def _is_ours(aggregate: Aggregate[Any, Any]) -> bool:
    """Return `True` if amadou's code determines the structure of the aggregate's accumulators. User code determines the
    structure for `Reduce`, for `Foreign`, and for aggregates that users define.
    """
    return type(aggregate).__module__.startswith(_OURS) and not isinstance(aggregate, Reduce | Foreign)


def _is_like(new: Any, accumulator: Any) -> bool:
    if new is None:
        return True
    if type(new) is not type(accumulator):
        return False
    if type(new) is not list or not new:
        return True
    return len(new) == len(accumulator) and all(map(_is_like, new, accumulator))


def _try_out(aggregate: Aggregate[Any, Any], accumulator: Any) -> None:
    """Check that an aggregate's `result`, `kind` and `merge` accept an accumulator, which stays unchanged."""
    aggregate.result(deepcopy(accumulator))
    aggregate.kind(accumulator)
    if aggregate.mergeable:
        merged = aggregate.merge(aggregate.create(), deepcopy(accumulator))
        if _is_ours(aggregate):
            aggregate.merge(merged, deepcopy(accumulator))
