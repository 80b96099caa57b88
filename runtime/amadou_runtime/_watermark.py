"""The watermark of a run (`semantics.md` 2, 3)."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from amadou import Job
from amadou._time import MICROSECOND, to_micros
from amadou_runtime._dependencies import Held

END_OF_TIME = to_micros(datetime.max.replace(tzinfo=UTC))


class Watermark:
    """Follows the newest event times of a run's sources. All times are in microseconds since 1970.

    A source that has brought nothing for its idle timeout does not count, and neither does one that never brought
    anything; when none counts, the watermark rises with the clock.

    :param job: the job, which says how far the watermark stays behind each source's newest event and when it is idle
    """

    def __init__(self, job: Job) -> None:
        self._delays = {source: delay // MICROSECOND for source, delay in job.delays.items()}
        self._timeouts = {source: timeout // MICROSECOND for source, timeout in job.idle_after.items()}
        self._newest: dict[str, int] = {}
        self._brought: dict[str, int] = {}
        self._held: dict[str, int] = {}
        self._looked: int | None = None
        self.current: int | None = None
        """The watermark of the batch in hand; `None` before the first event."""

    @property
    def newest(self) -> int | None:
        """The newest event time of all sources, of which nothing is held."""
        return max(map(self._come, self._newest), default=None)

    def observe(self, newest: Mapping[str, int], now: int) -> None:
        """Note the newest event time that each source brought in a batch.

        :param now: the time of the clock when the batch began
        """
        for source, micros in newest.items():
            self._newest[source] = max(micros, self._newest.get(source, micros))
            self._brought[source] = now

    def hold(self, held: Held) -> None:
        """Note which events are held, in place of what was noted before: those have not come yet."""
        self._held = {source: oldest for source, (_, oldest) in held.items()}

    def _come(self, source: str) -> int:
        """How far a source has come."""
        return min(self._newest[source], self._held.get(source, self._newest[source]))

    def bring(self, source: str, micros: int | None, now: int) -> None:
        """Let the watermark of one source come to a time, as an event that is newer by its delay would.

        :param micros: up to its newest event without it
        """
        newest = self._newest.get(source) if micros is None else micros
        if newest is not None:
            self.observe({source: min(newest + self._delays[source], END_OF_TIME)}, now)

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
        if reached is None or reached >= micros:
            return None if reached is None else now
        for moment in sorted(self._idle_from().values()):
            if moment > now:
                now, reached = moment, self._at(moment)
                assert reached is not None
                if reached >= micros:
                    return now
        return now + micros - reached if self._may_all_be_idle() else None

    def _at(self, now: int) -> int | None:
        """Where the watermark is at a time of the clock, should nothing come until then."""
        if not self._newest:  # what there is was put by hand, or came from sources that the job no longer has
            if self.current is None or self._looked is None or not self._may_all_be_idle():
                return self.current
            return min(self.current + now - self._looked, END_OF_TIME)
        idle = self._idle_from()
        counting = [source for source in self._newest if source not in idle or now < idle[source]]
        since = now if counting else max(idle.values())
        if not counting:  # those that were the last to count
            counting = [source for source, at in idle.items() if at == since]
        reached = min(self._come(source) - self._delays[source] for source in counting)
        if self.current is not None:
            reached = max(reached, self.current)
        return min(reached + now - max(since, self._looked or since), END_OF_TIME) if since < now else reached

    def _idle_from(self) -> dict[str, int]:
        """When each source that may become idle will be, should it bring nothing."""
        return {
            source: at + self._timeouts[source]
            for source, at in self._brought.items()
            if source in self._timeouts and source not in self._held
        }

    def _may_all_be_idle(self) -> bool:
        """Whether no source that brought something, or might, is waited for without end."""
        return not self._held and all(source in self._timeouts for source in self._newest or self._delays)

    def to_json(self) -> dict[str, Any]:
        """What a checkpoint keeps of it."""
        return {
            "current": self.current,
            "newest": dict(self._newest),
            "brought": dict(self._brought),
            "looked": self._looked,
            "held": self._held,
        }

    def load(self, kept: Mapping[str, Any]) -> None:
        """Take what `to_json` gave, but for sources that the job no longer has."""
        self.current, self._looked = kept["current"], kept["looked"]
        self._newest, self._brought, self._held = (
            {source: micros for source, micros in kept[name].items() if source in self._delays}
            for name in ("newest", "brought", "held")
        )
