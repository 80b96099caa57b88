from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Generic, overload

from typing_extensions import TypeVar

from amadou import Key, KeyedEvent, Subject, ValueSpec, ValueState
from amadou_plugins.aggregates._aggregate import Aggregate
from amadou_plugins.aggregates._composite import aggregate_of
from amadou_plugins.aggregates._foreign import AggregateLike
from amadou_plugins.aggregates._migrated import check_migrated

R = TypeVar("R", default=Any)


class RunningState(Generic[R]):
    """The running aggregate of the events added for a subject."""

    __slots__ = ("_aggregate", "_kept")

    def __init__(self, aggregate: Aggregate[Any, R], kept: ValueState[Any]) -> None:
        self._aggregate = aggregate
        self._kept = kept

    @property
    def value(self) -> R:
        """Result for the added events; if no event has been added, the result of an empty accumulator."""
        return self._aggregate.result(self._kept.value if self._kept.exists else self._aggregate.create())

    @property
    def exists(self) -> bool:
        """`True` if an event has been added, and the state has since neither been cleared nor expired."""
        return self._kept.exists

    def clear(self) -> None:
        """Reset the aggregate as if no event had been added."""
        self._kept.clear()

    def __repr__(self) -> str:
        return f"RunningState({self._aggregate!r}, {self.value!r})"


class RunningSpec(ValueSpec[Any], Generic[R]):
    """State that aggregates all events added for a key, without windows, such as a running total or a moving average.

    ::

        total = RunningSpec(Sum("cents"))
        lately = RunningSpec(MovingAverage("ms", 100), ttl=timedelta(days=1))

        def on_event(self, subject, event):
            self.balances.collect(subject, Balance(subject.key, self.total.add(subject, event)))

    `state_for(subject)` returns an object with the read-only properties `value` and `exists`, and the method `clear()`.
    The stored state is the aggregate's accumulator. `TestRun.set_state` expects an accumulator, and traces show
    accumulators.

    :param value: an aggregate, or a mapping of names to aggregates
    :param ttl: duration in event time after which a key's state expires unless an event is added
    :param name: name that the state is stored under; defaults to the attribute's name
    :param version: version of the aggregate; must be positive if `migrate` is set
    :param migrate: function that receives an older accumulator and its version, and returns an accumulator of the
        current version
    :raises NotAnAggregateError: `value` is neither an aggregate nor a mapping of names to aggregates
    """

    noun = "running value"
    counts_expired = True
    is_watched = False  # callbacks get results, not accumulators

    @overload
    def __init__(
        self,
        value: AggregateLike[R],
        *,
        ttl: timedelta | None = None,
        name: str | None = None,
        version: int = 0,
        migrate: Callable[[Any, int], Any] | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self: "RunningSpec[dict[str, Any]]",
        value: Mapping[str, Any],
        *,
        ttl: timedelta | None = None,
        name: str | None = None,
        version: int = 0,
        migrate: Callable[[Any, int], Any] | None = None,
    ) -> None: ...
    def __init__(
        self,
        value: AggregateLike[Any] | Mapping[str, Any],
        *,
        ttl: timedelta | None = None,
        name: str | None = None,
        version: int = 0,
        migrate: Callable[[Any, int], Any] | None = None,
    ) -> None:
        self.aggregate: Aggregate[Any, R] = aggregate_of(value)
        super().__init__(object, ttl=ttl, name=name, version=version, migrate=migrate)

    def state_for(self, subject: Subject) -> RunningState[R]:  # type: ignore[override]  # its value cannot be set
        """Return the running aggregate of the subject's events."""
        return RunningState(self.aggregate, self._kept(subject))

    def add(self, subject: Subject, event: KeyedEvent[Any]) -> R:
        """Add an event and return the new result."""
        kept = self._kept(subject)
        self.count_if_expired(kept, subject)
        accumulator = kept.value if kept.exists else self.aggregate.create()
        kept.value = accumulator = self.aggregate.add(accumulator, event)
        return self.aggregate.result(accumulator)

    def shown(self, subject: Subject) -> R:
        return self.state_for(subject).value

    def assign(self, subject: Subject, accumulator: Any) -> None:
        self._kept(subject).value = accumulator

    def _kept(self, subject: Subject) -> ValueState[Any]:
        self.bound(subject)
        return super().state_for(subject)

    def migrated(self, part: Any, version: int, key: Key) -> Any:
        try:
            accumulator = self.decode(part)
        except Exception as error:
            raise self.unreadable(error, part, type(self.aggregate), key) from error
        return super().migrated(accumulator, version, key)

    def encode_part(self, value: Any) -> Any:
        check_migrated(self.aggregate, value)
        return super().encode_part(value)

    def result(self, subject: Subject) -> R:
        """Return the result for the events added for a subject."""
        return self.state_for(subject).value

    def structure(self) -> dict[str, Any]:
        return {"kind": "RunningSpec", "version": self.version, "aggregate": self.aggregate.structure()}

    def shown_type(self) -> str:
        return repr(self.aggregate)

    def __repr__(self) -> str:
        return f"RunningSpec({self.aggregate!r})"
