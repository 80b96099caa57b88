"""The watermark of a run (`semantics.md` 2, 3, 22)."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Any, Final, TypeAlias

import attrs

from amadou import Job
from amadou.engine import BeforeEnd
from amadou.event_time import BEGINNING_OF_TIME, END_OF_TIME, MICROSECOND, from_micros, to_micros
from amadou.plugins import PartitionOffset, PartitionReport
from amadou_runtime.core.dependencies import Held

Newest: TypeAlias = dict[str, dict[str, int]]
"""The newest event times in microseconds, by source and partition."""


@attrs.frozen
class Reading:
    """The partitions that a batch reads from a source, and the offsets after the batch.

    :param brings: the partitions that the batch reads records from
    :param unread: the partitions with unread records when the batch was planned
    :param left: the partitions with unread records after the batch
    :param offsets: the offsets after the batch, by partition; `None` if the source does not report offsets
    """

    brings: frozenset[str]
    unread: frozenset[str]
    left: frozenset[str]
    offsets: Mapping[str, PartitionOffset] | None = None

    @classmethod
    def whole(cls, brings: bool) -> "Reading":
        """Return the `Reading` of a source that has a single partition or does not report offsets."""
        some = frozenset(("",) if brings else ())
        return cls(some, some, frozenset())

    @classmethod
    def between(cls, before: Mapping[str, PartitionOffset], after: Mapping[str, PartitionOffset]) -> "Reading":
        """Return the `Reading` of a source that reports offsets, from its offsets before and after the batch."""
        starts = {name: before[name].read if name in before else 0 for name in after}
        return cls(
            frozenset(name for name, offset in after.items() if offset.read > starts[name]),
            frozenset(name for name, offset in after.items() if offset.end > starts[name]),
            frozenset(name for name, offset in after.items() if offset.end > offset.read),
            after,
        )


def newest_of(newest: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    """Return the newest event time of each source."""
    return {source: max(of.values()) for source, of in newest.items()}


def _age(newest: int | None, lag: int | None, now: int) -> timedelta | None:
    if lag is None:
        return None
    if not lag:
        return timedelta(0)
    return None if newest is None else max(now - newest, 0) * MICROSECOND


NO_WATERMARK: Final[Mapping[str, Any]] = {
    "current": None,
    "before_end": None,
    "newest": {},
    "brought": {},
    "looked": None,
    "held": {},
}
"""The result of `Watermark.to_json` before the first batch."""


class Watermark:
    """Tracks the newest event times of a run's sources and their partitions. All times are in microseconds since 1970.

    A source's watermark is the minimum over its partitions. A partition with unread records counts, unless its last
    records brought neither an event nor a time and none were left. Idle partitions do not count. With `ends`,
    partitions that have been read to their end do not count while other partitions have unread records.

    The run's watermark is the minimum over its sources. A source that has brought neither an event nor a time yet holds
    the watermark, until it is exhausted or its idle timeout has passed. Later, a source does not count if it has
    brought neither for its idle timeout. When no source counts any longer, the watermark advances with the clock.

    The watermark of a `FromPort` source is that of the stage which feeds it, as of the batch before. Until that stage
    has a watermark, the run has none either. The source of a reference does not count.

    :param job: the job, with the delay and the idle timeout of each source
    :param ends: `True` if the run ends once all available records are read. A partition that has been read to its end
        then delivers no more events
    :param began: the clock time at which the run began; by default, the time of its first batch
    """

    def __init__(self, job: Job, *, ends: bool = False, began: int | None = None) -> None:
        self._delays = {source: delay // MICROSECOND for source, delay in job.delays.items()}
        references = job.reference_sources
        self._feeding = {name: source.stage for name, source in job.fed_sources.items() if name not in references}
        self._fed: dict[str, int | None] = dict.fromkeys(self._feeding)
        self._own = [source for source in self._delays if source not in {*job.fed_sources, *references}]
        """The sources whose events determine the watermark."""
        self._timeouts = {source: timeout // MICROSECOND for source, timeout in job.idle_after.items()}
        self._ends = ends
        self._newest: Newest = {}
        self._brought: dict[str, dict[str, int]] = {}
        """The clock time of the last event or time of each partition."""
        self._reading: Mapping[str, Reading] = {}
        self._unread: dict[str, frozenset[str]] = {}
        """The partitions that count because of their unread records, by source."""
        self._left: dict[str, frozenset[str]] = {}
        """The partitions with unread records after the last batch, by source."""
        self._barren: dict[str, set[str]] = {}
        """The partitions whose last records brought neither an event nor a time, by source."""
        self._without_partitions: set[str] = set()
        """Sources that a time was brought for before any of their partitions was known."""
        self._exhausted: set[str] = set()
        """In a run that ends: the sources without further records."""
        self._began = began
        self._held: dict[str, int] = {}
        self._looked: int | None = None
        self._flushes = False
        self._newest_of_job: int | None = None
        self._before_end: int | None = None
        """The watermark before it reached the maximum timestamp."""
        self.current: int | None = None
        """The watermark of the current batch; `None` before the first event."""

    @property
    def before_end(self) -> BeforeEnd | None:
        """How far the stage was before its watermark reached the maximum timestamp; `None` if it has not reached it."""
        return BeforeEnd(self._before_end, self._newest_of_job) if self.current == END_OF_TIME else None

    @property
    def newest(self) -> int | None:
        """The newest event time of all sources. A source with held events counts only up to its oldest held event."""
        tops = newest_of(self._newest)
        return max((min(top, self._held.get(source, top)) for source, top in tops.items()), default=None)

    def newest_times(self, source: str) -> Mapping[str, int]:
        """Return the newest event time of each partition of a source."""
        return self._newest.get(source, {})

    def observe(self, newest: Mapping[str, Mapping[str, int]], now: int) -> None:
        """Record the newest event time of each partition in a completed batch.

        :param now: the clock time when the batch was completed
        """
        for source, by_partition in newest.items():
            if source in self._own and by_partition:
                if source in self._without_partitions:
                    self._without_partitions.discard(source)
                    if "" not in by_partition:
                        del self._newest[source], self._brought[source]
                for partition, micros in by_partition.items():
                    self._note(source, partition, micros, now)
        for source, reading in self._reading.items():
            brought, barren = newest.get(source, {}).keys(), self._barren.setdefault(source, set())
            barren.difference_update(brought)
            barren.update(reading.brings - brought)
        self._left = {source: reading.left for source, reading in self._reading.items()}
        self._unread = dict(self._left)

    def feed(self, reached: Mapping[str, int | None], newest: int | None = None) -> None:
        """Set the watermarks of the `FromPort` sources in the next batch.

        :param reached: the watermarks of other stages in the last batch, by stage
        :param newest: the newest event time of all sources of the job, also those of other stages; `None` if there is
            none
        """
        self._newest_of_job = newest
        for source, stage in self._feeding.items():
            micros = reached[stage]
            self._fed[source] = micros if micros in (None, END_OF_TIME) else micros - self._delays[source]

    def waits_for(self, micros: int) -> dict[str, int]:
        """Return the stages whose watermark has to advance before this watermark can reach a time, and the time that
        they have to reach.
        """
        behind = {source: fed for source, fed in self._fed.items() if fed is None or fed < micros}
        return {self._feeding[source]: micros + self._delays[source] for source in behind}

    def exhaust(self) -> None:
        """Record that no source has further records."""
        self._exhausted.update(self._own)

    def flush(self) -> None:
        """Let the watermark advance to the maximum timestamp: at once, or one batch after the stages that feed it."""
        self._flushes = True

    def hold(self, held: Held) -> None:
        """Set the held events. The watermark treats held events as events that have not arrived yet."""
        self._held = {source: oldest for source, (_, oldest) in held.items()}

    def bring(self, source: str, partition: str | None, micros: int | None, now: int) -> None:
        """Advance the watermark of one source to a time, as if an event had arrived whose time is later by the source's
        watermark delay.

        :param source: the source. If its events do not determine the watermark, nothing changes
        :param partition: the partition to advance; `None` for all partitions
        :param micros: the time; `None` for the time of each partition's newest event
        """
        if source not in self._own:
            return
        if partition is None and source not in self._newest:
            self._without_partitions.add(source)
        partitions = (partition,) if partition is not None else tuple(self._newest.get(source, {"": 0}))
        for name in partitions:
            newest = self._newest.get(source, {}).get(name) if micros is None else micros
            if newest is not None:
                self._note(source, name, min(newest + self._delays[source], END_OF_TIME), now)

    def _note(self, source: str, partition: str, micros: int, now: int) -> None:
        newest = self._newest.setdefault(source, {})
        newest[partition] = max(micros, newest.get(partition, micros))
        self._brought.setdefault(source, {})[partition] = now

    def follow(self, now: int, reading: Mapping[str, Reading] | None = None) -> int | None:
        """Advance the watermark for the batch that begins now, and return the watermark.

        :param reading: the partitions and offsets that the batch reads, by source, where known. A partition with unread
            records is not idle, however long ago the last batch was
        """
        if self._began is None:
            self._began = now
        self._reading = {source: each for source, each in (reading or {}).items() if source in self._own}
        for source, each in self._reading.items():
            self._take_in(source, each, now)
        if self._ends:
            self._exhausted |= {source for source, each in self._reading.items() if not each.unread}
        is_over = self._flushes and all(fed == END_OF_TIME for fed in self._fed.values())
        reached = END_OF_TIME if is_over else self._at(now)
        if reached is not None:
            self.raise_to(reached)
        self._looked = now
        return self.current

    def _take_in(self, source: str, reading: Reading, now: int) -> None:
        """Note what a batch reads from a source."""
        barren, left = self._barren.get(source, set()), self._left.get(source, frozenset())
        self._unread[source] = frozenset(name for name in reading.unread if name not in barren or name in left)
        if reading.offsets is not None:
            self._forget(source, reading.offsets)
        self._excuse(source, reading, now)

    def _excuse(self, source: str, reading: Reading, now: int) -> None:
        """Restart the idle timeout of partitions that have unread records or were unreachable."""
        brought = self._brought.get(source, {})
        for partition in brought:
            if partition in self._unread[source]:
                brought[partition] = now
            elif reading.offsets is not None and partition in reading.offsets:
                back = reading.offsets[partition].back
                if back is not None:
                    brought[partition] = max(brought[partition], to_micros(back))

    def _forget(self, source: str, there: Iterable[str]) -> None:
        """Forget the partitions that a source no longer has."""
        for known in (self._newest, self._brought):
            if source in known:
                known[source] = {name: at for name, at in known[source].items() if name in there}
        if not self._newest.get(source, True):
            del self._newest[source]

    def reset(self, micros: int | None, before: int | None) -> None:
        """Set the watermark to that of a batch that is processed again.

        :param before: the watermark of the batch before
        """
        self.current = before
        if micros is not None:
            self.raise_to(micros)

    def raise_to(self, micros: int) -> None:
        """Advance the watermark to a time. The watermark never moves back."""
        if self.current is None or micros > self.current:
            if micros == END_OF_TIME:
                self._before_end = self.current
            self.current = micros

    def reaches(self, micros: int, now: int) -> int | None:
        """Return the clock time at which the watermark reaches an event time if no more events arrive. Return `None` if
        the watermark never reaches the event time.
        """
        reached = self._at(now)
        if reached is not None and reached >= micros:
            return now
        moments = {at for _, _, at in self._idle_moments()} | set(self._excused_from(now).values())
        for moment in sorted(moments):
            if moment > now:
                now, reached = moment, self._at(moment)
                if reached is not None and reached >= micros:
                    return now
        return now + micros - reached if reached is not None and self._may_all_be_idle() else None

    def reports(self, now: int) -> list[PartitionReport]:
        """Return a report on each partition's progress. The partition that holds the watermark back is marked."""
        holding = self._holding(now)
        reports = []
        for source in self._delays:
            if source not in self._own:
                continue
            newest = self._newest.get(source, {})
            offsets = self._reading[source].offsets if source in self._reading else None
            waits = [""] if holding == (source, "") else []
            for partition in sorted({*newest, *(offsets or waits)}):
                micros, offset = newest.get(partition), (offsets or {}).get(partition)
                lag = None if offset is None else offset.lag
                reports.append(
                    PartitionReport(
                        source,
                        partition,
                        None if micros is None else from_micros(micros),
                        lag,
                        _age(micros, lag, now),
                        (source, partition) == holding,
                    )
                )
        return reports

    def held_back_by(self, now: int) -> str | None:
        """Return the name of the source, and of its partition if there are several, that holds the watermark back."""
        holding = self._holding(now)
        return None if holding is None else "/".join(filter(None, holding))

    def _holding(self, now: int) -> tuple[str, str] | None:
        """Return the partition that holds the watermark back; if several are equally far behind, the first by name.
        Return `None` if there is no such partition, or if a `FromPort` source is further behind.
        """
        unseen = self._unseen()
        if unseen is not None:
            return unseen
        for source in self._waiting(now):
            return source, ""
        reached = [
            (self._newest[source][partition] - self._delays[source], source, partition)
            for source in self._counting(now)[0]
            for partition in self._counting_partitions(source, now)
        ]
        furthest = min(reached, default=None)
        if furthest is None or any(fed is None or fed < furthest[0] for fed in self._fed.values()):
            return None
        return furthest[1:]

    def _at(self, now: int) -> int | None:
        """Return the watermark at a clock time, assuming that no events arrive before that time, and that the
        watermarks of other stages stay the same.
        """
        if not self._feeding:
            return self._own_at(now)
        fed = [self._fed[source] for source in self._feeding]
        if None in fed or self._unseen() is not None or self._waiting(now):
            return self.current
        counting, idle_since = self._counting(now)
        own = [self._reached(source, now) for source in counting] if idle_since is None else []
        reached = max(BEGINNING_OF_TIME, min(micros for micros in (*fed, *own) if micros is not None))
        return reached if self.current is None else max(reached, self.current)

    def _own_at(self, now: int) -> int | None:
        """Return the watermark of a job without `FromPort` sources; see `_at`."""
        if self._unseen() is not None or self._waiting(now):
            return self.current
        counting, idle_since = self._counting(now)
        times = [self._reached(source, now) for source in counting]
        if not times and (self.current is None or idle_since is None):
            return self.current
        # without times, the watermark was set by sources that the job no longer has
        reached = max(BEGINNING_OF_TIME, min(times)) if times else BEGINNING_OF_TIME
        if self.current is not None:
            reached = max(reached, self.current)
        if idle_since is None:
            return reached
        return min(reached + now - max(idle_since, self._looked or idle_since), END_OF_TIME)

    def _waiting(self, now: int) -> list[str]:
        """Return the sources that hold the watermark because they have brought neither an event nor a time yet."""
        excused = self._excused_from(now)
        unheard = (source for source in self._own if source not in self._newest and source not in self._exhausted)
        return [source for source in unheard if source not in excused or now < excused[source]]

    def _excused_from(self, now: int) -> dict[str, int]:
        """Return the time from which a source that has brought neither an event nor a time yet does not hold the
        watermark. Sources with unread records or without an idle timeout are omitted.
        """
        began = now if self._began is None else self._began
        unheard = (source for source in self._own if source not in self._newest and not self._unread.get(source))
        return {source: began + self._timeouts[source] for source in unheard if source in self._timeouts}

    def _unseen(self) -> tuple[str, str] | None:
        """Return the first partition, by name, that has brought neither an event nor a time yet and counts because of
        its unread records; `None` if there is no such partition. The event times of these records are not known.
        """
        unseen = (
            (source, partition)
            for source, partitions in self._unread.items()
            if self._has_offsets(source)
            for partition in partitions - self._newest.get(source, {}).keys()
        )
        return min(unseen, default=None)

    def _has_offsets(self, source: str) -> bool:
        """Return `True` if a source reports its partitions' offsets."""
        return source in self._reading and self._reading[source].offsets is not None

    def _counting(self, now: int) -> tuple[list[str], int | None]:
        """Return the sources that count for the watermark, and `None`. If all sources are idle, return those that
        counted last, and the time when the last source became idle.
        """
        idle = self._idle_from(now)
        counting = [source for source in self._newest if source not in idle or now < idle[source]]
        if counting or not idle:
            return counting, None
        last = max((idle[source] for source in self._newest), default=None)
        return [source for source in self._newest if idle[source] == last], max(idle.values())

    def _counting_partitions(self, source: str, now: int) -> list[str]:
        """Return the partitions that count for a source's watermark. If none counts, return those that counted last."""
        brought = self._brought[source]
        idle = {partition: at for of, partition, at in self._idle_moments() if of == source}
        unread = self._unread.get(source, frozenset())
        counting = [
            name
            for name in self._newest[source]
            if name in unread or (not (self._ends and self._has_offsets(source)) and now < idle.get(name, now + 1))
        ]
        last = max(brought[partition] for partition in self._newest[source])
        return counting or [partition for partition in self._newest[source] if brought[partition] == last]

    def _reached(self, source: str, now: int) -> int:
        """Return the watermark of one source."""
        newest = self._newest[source]
        reached = min(newest[partition] for partition in self._counting_partitions(source, now))
        return min(reached, self._held.get(source, reached)) - self._delays[source]

    def _idle_moments(self) -> Iterator[tuple[str, str, int]]:
        """Yield (source, partition, time) for each partition that becomes idle at this time unless records arrive."""
        for source, timeout in self._timeouts.items():
            if source not in self._held:
                unread = self._unread.get(source, frozenset())
                brought = self._brought.get(source, {})
                for partition in self._newest.get(source, {}).keys() - unread:
                    yield source, partition, brought[partition] + timeout

    def _idle_from(self, now: int) -> dict[str, int]:
        """Return the time at which each source becomes idle; sources that cannot become idle are omitted."""
        idle = self._excused_from(now)
        for source, _, at in self._idle_moments():
            if not self._unread.get(source):
                idle[source] = max(at, idle.get(source, at))
        return idle

    def _may_all_be_idle(self) -> bool:
        """Return `True` if all sources can become idle so that none can hold the watermark back forever."""
        waits = self._feeding or self._held or any(self._unread.values())
        return not waits and all(source in self._timeouts for source in self._own)

    def to_json(self) -> dict[str, Any]:
        """Return the state to store in a checkpoint."""
        return {
            "current": self.current,
            "newest": self._newest,
            "brought": self._brought,
            "before_end": self._before_end,
            "looked": self._looked,
            "held": self._held,
            "without_partitions": sorted(self._without_partitions),
        }

    def load(self, kept: Mapping[str, Any]) -> None:
        """Restore the state that `to_json` returned, except for sources that the job no longer has."""
        self.current, self._looked = kept["current"], kept["looked"]
        self._before_end = kept.get("before_end")
        self._newest, self._brought = (
            {source: dict(of) for source, of in kept[name].items() if source in self._delays}
            for name in ("newest", "brought")
        )
        self._held = {source: micros for source, micros in kept["held"].items() if source in self._delays}
        self._without_partitions = {*kept.get("without_partitions", ())} & self._newest.keys()


def feed_stages(watermarks: Mapping[str, Watermark]) -> None:
    """Pass the watermarks after a batch to the stages that other stages feed.

    :param watermarks: the watermarks of all stages, by stage
    """
    reached = {stage: watermark.current for stage, watermark in watermarks.items()}
    times = (watermark.newest for watermark in watermarks.values())
    newest = max((micros for micros in times if micros is not None), default=None)
    for watermark in watermarks.values():
        watermark.feed(reached, newest)
