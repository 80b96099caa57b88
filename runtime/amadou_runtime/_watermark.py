"""The watermark of a run (`semantics.md` 2, 3)."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from amadou import Job
from amadou._time import MICROSECOND, to_micros

END_OF_TIME = to_micros(datetime.max.replace(tzinfo=UTC))


class Watermark:
    """Follows the newest event times of a run's sources. All times are in microseconds since 1970.

    A source that has brought nothing for the job's `idle_after` does not count, and neither does one that never
    brought anything; when none counts, the watermark rises with the clock.

    :param job: the job, which says how far the watermark stays behind the newest event and when a source is idle
    """

    def __init__(self, job: Job) -> None:
        assert isinstance(job.watermark_delay, timedelta)
        self._sources = set(job.sources)
        self._delay = job.watermark_delay // MICROSECOND
        self._idle_timeout = None if job.idle_after is None else job.idle_after // MICROSECOND
        self._newest: dict[str, int] = {}
        self._brought: dict[str, int] = {}
        self._looked: int | None = None
        self.current: int | None = None
        """The watermark of the batch in hand; `None` before the first event."""

    @property
    def newest(self) -> int | None:
        """The newest event time of all sources."""
        return max(self._newest.values(), default=None)

    def observe(self, newest: Mapping[str, int], now: int) -> None:
        """Note the newest event time that each source brought in a batch.

        :param now: the time of the clock when the batch began
        """
        for source, micros in newest.items():
            self._newest[source] = max(micros, self._newest.get(source, micros))
            self._brought[source] = now

    def bring(self, source: str, micros: int | None, now: int) -> None:
        """Let the watermark of one source come to a time, as an event that is newer by the job's delay would.

        :param micros: up to its newest event without it
        """
        newest = self._newest.get(source) if micros is None else micros
        if newest is not None:
            self.observe({source: min(newest + self._delay, END_OF_TIME)}, now)

    def follow(self, now: int, bringing: Iterable[str] = ()) -> int | None:
        """Fix the watermark of the batch that begins now.

        :param bringing: the sources that are known to bring something in it: they are not idle, however long ago the
            batch before was
        """
        self._brought |= {source: now for source in bringing if source in self._brought}
        reached = self._at(now)
        if reached is not None:
            self.raise_to(reached)
        self._looked = now
        return self.current

    def raise_to(self, micros: int) -> None:
        """Move the watermark to a time, unless it is there already: it never goes back."""
        if self.current is None or micros > self.current:
            self.current = micros

    def reaches(self, micros: int, now: int) -> int | None:
        """When by the clock the watermark will have come to a time, should nothing come any more; `None` for never."""
        reached = self._at(now)
        if reached is not None and reached >= micros:
            return now
        if self._idle_timeout is None or reached is None:
            return None
        for moment in sorted(brought + self._idle_timeout for brought in self._brought.values()):
            if moment > now:
                now, reached = moment, self._at(moment)
                assert reached is not None
                if reached >= micros:
                    return now
        return now + micros - reached

    def _at(self, now: int) -> int | None:
        """Where the watermark is at a time of the clock, should nothing come until then."""
        if not self._newest:  # what there is was put by hand, or came from sources that the job no longer has
            if self.current is None or self._idle_timeout is None or self._looked is None:
                return self.current
            return min(self.current + now - self._looked, END_OF_TIME)
        idle = {} if self._idle_timeout is None else {s: at + self._idle_timeout for s, at in self._brought.items()}
        counting = [source for source in self._newest if source not in idle or now < idle[source]]
        since = now if counting else max(idle.values())
        if not counting:  # those that were the last to count
            counting = [source for source, at in idle.items() if at == since]
        reached = min(self._newest[source] for source in counting) - self._delay
        if self.current is not None:
            reached = max(reached, self.current)
        return min(reached + now - max(since, self._looked or since), END_OF_TIME) if since < now else reached

    def to_json(self) -> dict[str, Any]:
        """What a checkpoint keeps of it."""
        return {
            "current": self.current,
            "newest": dict(self._newest),
            "brought": dict(self._brought),
            "looked": self._looked,
        }

    def load(self, kept: Mapping[str, Any]) -> None:
        """Take what `to_json` gave, but for sources that the job no longer has."""
        self.current, self._looked = kept["current"], kept["looked"]
        self._newest, self._brought = (
            {source: micros for source, micros in kept[name].items() if source in self._sources}
            for name in ("newest", "brought")
        )
