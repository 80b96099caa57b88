"""Sources that need others to be up to date (`docs/dependencies.md`)."""

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from tests.conformance.conftest import MakeRun

from amadou import (
    DependencyChange,
    DependsOn,
    Handler,
    Job,
    KeyedEvent,
    MapSpec,
    MemorySink,
    MemorySource,
    SinkSpec,
    Subject,
)
from amadou.errors import CallbackError, TooManyHeldError
from amadou_plugins.aggregates import Count
from amadou_plugins.windows import TumblingWindow, Window
from amadou_runtime import TestRun

ON_WEATHER = DependsOn("activities", on="weather")


def at(clock: str) -> datetime:
    """A time of the day: ``10:05``."""
    return datetime.strptime(clock, "%H:%M").replace(2025, 1, 1, tzinfo=timezone.utc)


def clock(time: datetime | None) -> str:
    return "-" if time is None else f"{time:%H:%M}"


class Enrich(Handler):
    """Says with which weather each activity was seen. A record is ``KEY TIME``."""

    weather = MapSpec(str, str)
    seen = SinkSpec(str)

    def key_event(self, record: str) -> KeyedEvent[str]:
        key, time = record.split()
        return KeyedEvent(key, at(time), time)

    def on_event(self, subject: Subject, event: KeyedEvent[str]) -> None:
        weather = self.weather.state_for(subject)
        if subject.source != "activities":
            weather[str(subject.source)] = event.value
            return
        late = " late" if subject.is_late else ""
        known = " ".join(f"{name} {time}" for name, time in sorted(weather.items()))
        self.seen.collect(subject, f"{subject.key} {event.value}: {known or 'nothing'}{late}")

    def on_dependency_down(self, change: DependencyChange) -> None:
        assert change.newest == change.since
        times = clock(change.since), clock(change.reached)
        self.seen.collect(change.subject, f"{change.dependent} without {change.source} {' '.join(times)}")

    def on_dependency_recovered(self, change: DependencyChange) -> None:
        times = map(clock, (change.since, change.reached, change.newest))
        self.seen.collect(change.subject, f"{change.dependent} with {change.source} {' '.join(times)}")


def job(*dependencies: DependsOn, handler: Handler | None = None, port: str = "seen", **settings: Any) -> Job:
    names = {"activities", "weather", *(name for each in dependencies for name in (each.dependent, each.on))}
    return Job(
        "enrich",
        handler or Enrich(),
        {name: MemorySource([]) for name in sorted(names)},
        {port: MemorySink()},
        dependencies=dependencies,
        **settings,
    )


class Play:
    """Plays a run batch by batch."""

    def __init__(self, run: TestRun) -> None:
        self.run = run

    def batch(self, *, sink: str = "seen", **records: list[str]) -> list[Any]:
        """What a batch of some records by source gives."""
        for source, brought in records.items():
            self.run.add_records(brought, source)
        return self.run.run().records(sink, new=True)

    def held(self, source: str = "activities") -> list[str]:
        return [f"{event.key} {event.value}" for event in self.run.run().held(source)]


def test_nothing_is_held_up_to_the_threshold(test_run: MakeRun) -> None:
    play = Play(test_run(job(ON_WEATHER)))
    assert play.batch(weather=["a 10:00"], activities=["a 10:10"]) == ["a 10:10: weather 10:00"]
    assert play.held() == []


def test_events_are_held_while_a_source_is_down_and_run_in_order_once_it_is_ahead(test_run: MakeRun) -> None:
    play = Play(test_run(job(ON_WEATHER)))
    play.batch(weather=["a 10:00"], activities=["a 10:05"])
    assert play.batch(activities=["a 11:00"]) == ["activities without weather 10:00 11:00"]
    assert play.batch(activities=["a 10:58", "a 11:02"]) == []
    assert play.held() == ["a 11:00", "a 10:58", "a 11:02"]
    assert play.run.run().held() == play.run.run().held("activities")
    assert play.batch(weather=["a 10:59"]) == []
    assert play.batch(weather=["a 11:00"]) == [], "it has to be ahead"
    assert play.batch(weather=["a 11:01"], activities=["a 11:03"]) == [
        "activities with weather 10:00 11:00 11:01",
        "a 11:00: weather 11:00",
        "a 10:58: weather 11:00",
        "a 11:02: weather 11:01",
        "a 11:03: weather 11:01",
    ]
    assert play.held() == []


def test_weather_of_the_batch_that_ends_an_outage_comes_before_what_is_newer(test_run: MakeRun) -> None:
    play = Play(test_run(job(ON_WEATHER)))
    play.batch(weather=["a 10:00"])
    play.batch(activities=["a 11:00", "a 11:05"])
    seen = play.batch(weather=["a 10:30", "a 11:02", "a 11:20"])
    assert seen[1:] == ["a 11:00: weather 10:30", "a 11:05: weather 11:02"]


def test_what_is_no_further_ahead_than_the_threshold_runs_still(test_run: MakeRun) -> None:
    play = Play(test_run(job(ON_WEATHER)))
    play.batch(weather=["a 10:00"])
    seen = play.batch(activities=["a 10:09", "a 10:11", "a 10:05", "b 10:05", "b 10:10", "b 10:30"])
    assert seen[1:] == ["a 10:09: weather 10:00", "b 10:05: nothing", "b 10:10: nothing"]
    assert play.held() == ["a 10:11", "a 10:05", "b 10:30"], "what comes after a held event of its key waits, too"


def test_other_keys_and_other_sources_go_on(test_run: MakeRun) -> None:
    play = Play(test_run(job(ON_WEATHER, DependsOn("news", on="press"))))
    play.batch(weather=["a 10:00"], news=["a 10:00"], press=["a 10:00"])
    play.batch(activities=["a 11:00"])
    play.batch(news=["b 10:05"], press=["b 10:06"])
    play.batch(weather=["b 11:30"])
    assert "b news 10:05" not in play.held()
    assert play.batch(activities=["b 11:31"]) == ["b 11:31: news 10:05 press 10:06 weather 11:30"]


@pytest.mark.on_spark("order across partitions")
def test_it_is_judged_across_all_keys(test_run: MakeRun) -> None:
    play = Play(test_run(job(ON_WEATHER)))
    play.batch(weather=["a 10:00"])
    assert play.batch(weather=["b 11:00"], activities=["a 11:05"]) == ["a 11:05: weather 10:00"]


def test_what_is_still_too_far_ahead_after_a_recovery_waits_for_the_next_one(test_run: MakeRun) -> None:
    play = Play(test_run(job(ON_WEATHER)))
    play.batch(weather=["a 10:00"])
    play.batch(activities=["a 10:20"])
    play.batch(activities=["a 10:30", "a 10:40", "a 10:35"])
    assert play.batch(weather=["a 10:21"]) == [
        "activities with weather 10:00 10:20 10:21",
        "activities without weather 10:21 10:40",
        "a 10:20: weather 10:00",
        "a 10:30: weather 10:21",
    ]
    assert play.held() == ["a 10:40", "a 10:35"]
    assert play.batch(weather=["a 10:41"])[1:] == ["a 10:40: weather 10:21", "a 10:35: weather 10:21"]


def test_a_source_that_never_brought_anything_is_down_once_the_other_has_come_far(test_run: MakeRun) -> None:
    play = Play(test_run(job(ON_WEATHER)))
    assert play.batch(activities=["a 10:00"]) == ["a 10:00: nothing"]
    assert play.batch(activities=["a 10:10"]) == ["a 10:10: nothing"]
    assert play.batch(activities=["a 10:11"]) == ["activities without weather 10:00 10:11"]


def test_a_first_batch_that_goes_far_does_not_hide_that_a_source_never_brought_anything(test_run: MakeRun) -> None:
    play = Play(test_run(job(ON_WEATHER)))
    assert play.batch(activities=["b 10:10", "a 10:00", "a 10:11"]) == [
        "activities without weather 10:00 10:11",
        "b 10:10: nothing",
        "a 10:00: nothing",
    ]
    assert play.held() == ["a 10:11"]


def test_a_source_that_brought_something_is_measured_against_the_newest_event_of_a_first_batch(
    test_run: MakeRun,
) -> None:
    play = Play(test_run(job(ON_WEATHER, DependsOn("activities", on="roads"))))
    assert play.batch(weather=["a 09:00"], activities=["a 10:00", "a 11:00"]) == [
        "activities without weather 09:00 11:00",
        "activities without roads 10:00 11:00",
    ]


def test_the_first_event_of_a_source_says_where_it_is(test_run: MakeRun) -> None:
    play = Play(test_run(job(ON_WEATHER)))
    play.batch(activities=["a 10:00"])
    assert play.batch(weather=["a 09:00"], activities=["a 10:01"]) == ["activities without weather 09:00 10:01"]


def test_held_events_do_not_become_late(test_run: MakeRun) -> None:
    play = Play(test_run(job(ON_WEATHER, watermark_delay=0)))
    play.batch(weather=["a 10:00"], activities=["a 10:00"])
    play.batch(activities=["a 11:00", "a 10:20"])
    play.batch(weather=["a 10:50"])
    play.batch(weather=["a 10:55"])
    assert clock(play.run.run().watermark) == "10:20"
    assert play.batch(weather=["a 11:01"])[1:] == ["a 11:00: weather 10:55", "a 10:20: weather 10:55"]
    assert play.batch(activities=["a 11:02"]) == ["a 11:02: weather 11:01"]
    assert clock(play.run.run().watermark) == "11:01"


def test_a_source_with_held_events_is_not_idle(test_run: MakeRun) -> None:
    play = Play(test_run(job(ON_WEATHER, idle_timeout=10)))
    play.batch(weather=["a 10:00"], activities=["a 10:00"])
    play.batch(activities=["a 11:00"])
    play.run.advance_processing_time(timedelta(hours=3))
    play.batch(weather=["a 11:05"])
    assert "late" not in " ".join(play.run.run().records("seen"))


class Minutes(Handler):
    """Counts activities by minute."""

    counted = SinkSpec(str)
    per_minute = TumblingWindow(timedelta(minutes=1), value=Count())

    def key_event(self, record: str) -> KeyedEvent[str]:
        key, time = record.split()
        return KeyedEvent(key, at(time), time)

    def on_event(self, subject: Subject, event: KeyedEvent[str]) -> None:
        if subject.source == "activities":
            self.per_minute.add(subject, event)

    @per_minute.on_close
    def closed(self, subject: Subject, window: Window, count: int) -> None:
        self.counted.collect(subject, f"{subject.key} {clock(window.start)} {count}")


def test_windows_wait_for_held_events(test_run: MakeRun) -> None:
    play = Play(test_run(job(ON_WEATHER, handler=Minutes(), port="counted")))
    play.batch(sink="counted", weather=["a 10:00"], activities=["a 10:10"])
    play.batch(sink="counted", activities=["a 11:00", "a 10:10", "b 10:10"])
    play.batch(sink="counted", weather=["a 10:50"])
    assert play.batch(sink="counted") == []
    play.batch(sink="counted", weather=["a 11:05"], activities=["a 11:05"])
    assert play.batch(sink="counted", activities=["a 11:06"], weather=["a 11:06"]) == [
        "a 10:10 2",
        "b 10:10 1",
        "a 11:00 1",
    ]


def test_a_source_waits_until_none_that_it_needs_is_down(test_run: MakeRun) -> None:
    play = Play(test_run(job(ON_WEATHER, DependsOn("activities", on="roads", threshold=timedelta(minutes=30)))))
    play.batch(weather=["a 10:00"], roads=["a 10:00"])
    assert play.batch(activities=["a 11:00"]) == [
        "activities without weather 10:00 11:00",
        "activities without roads 10:00 11:00",
    ]
    assert play.batch(weather=["a 11:10"]) == ["activities with weather 10:00 11:00 11:10"]
    assert play.held() == ["a 11:00"]
    assert play.batch(roads=["a 11:01"]) == [
        "activities with roads 10:00 11:00 11:01",
        "a 11:00: roads 10:00 weather 11:10",
    ]


def test_what_is_held_of_a_source_has_not_come_for_those_that_need_it(test_run: MakeRun) -> None:
    play = Play(test_run(job(ON_WEATHER, DependsOn("weather", on="stations"))))
    play.batch(stations=["a 10:00"], weather=["a 10:00"], activities=["a 10:00"])
    assert play.batch(weather=["a 11:00"], activities=["a 11:00"]) == [
        "weather without stations 10:00 11:00",
        "activities without weather 10:00 11:00",
    ]
    assert play.held("weather") == ["a 11:00"]
    assert play.batch(stations=["a 11:05"]) == ["weather with stations 10:00 11:00 11:05"]
    assert play.held() == ["a 11:00"]
    assert play.batch(weather=["a 11:06"]) == [
        "activities with weather 10:00 11:00 11:06",
        "a 11:00: stations 11:05 weather 11:00",
    ]


def test_a_held_event_is_no_sign_of_life(test_run: MakeRun) -> None:
    play = Play(test_run(job(ON_WEATHER, DependsOn("weather", on="stations"))))
    play.batch(stations=["a 10:00"], weather=["a 09:50"], activities=["a 09:50"])
    assert play.batch(activities=["a 10:05"]) == ["activities without weather 09:50 10:05"]
    assert play.batch(weather=["a 11:00"]) == ["weather without stations 10:00 11:00"]
    assert play.batch(activities=["a 10:06"]) == []
    assert play.held() == ["a 10:05", "a 10:06"]
    assert play.batch(stations=["a 11:01"])[:2] == [
        "weather with stations 10:00 11:00 11:01",
        "activities with weather 09:50 10:05 11:00",
    ]
    assert play.held() == []


def test_a_bound_is_that_of_what_is_down(test_run: MakeRun) -> None:
    wide = DependsOn("activities", on="roads", threshold=timedelta(hours=5), max_held=1)
    play = Play(test_run(job(wide, DependsOn("activities", on="weather", max_held=2))))
    play.batch(weather=["a 10:00"], roads=["a 10:00"])
    play.batch(activities=["a 11:00", "a 11:01"])
    with pytest.raises(TooManyHeldError, match=r"DependsOn\('activities', on='weather'\)"):
        play.batch(activities=["a 11:02"])


@pytest.mark.on_spark("restart")
def test_held_events_survive_a_restart_and_a_crash(test_run: MakeRun) -> None:
    run = test_run(job(ON_WEATHER))
    play = Play(run)
    play.batch(weather=["a 10:00"])
    play.batch(activities=["a 11:00"])
    run.restart()
    assert play.batch() == [], "what was told is not told again"
    assert play.held() == ["a 11:00"]
    run.add_record("a 11:01", "weather").crash(after=1)
    assert play.batch() == ["activities with weather 10:00 11:00 11:01", "a 11:00: weather 10:00"]


def test_a_change_names_the_batches(test_run: MakeRun) -> None:
    class Batches(Enrich):
        def on_dependency_down(self, change: DependencyChange) -> None:
            self.seen.collect(change.subject, f"{change.since_batch} {change.reached_batch}")

    play = Play(test_run(job(ON_WEATHER, handler=Batches())))
    play.batch(weather=["a 10:00"], activities=["a 10:00"])
    play.batch(weather=["a 10:05"])
    play.batch(activities=["a 10:06"])
    assert play.batch(activities=["a 10:20"]) == ["1 3"]
    play.batch(activities=["a 11:30"])
    told = play.batch(weather=["a 10:31"])
    assert told[1] == "5 4", "found down by an event that was held already"


@pytest.mark.on_spark("errors of workers")
def test_a_callback_that_fails_names_itself(test_run: MakeRun) -> None:
    class Failing(Enrich):
        def on_dependency_down(self, change: DependencyChange) -> None:
            raise ValueError("no mail")

    play = Play(test_run(job(ON_WEATHER, handler=Failing())))
    play.batch(weather=["a 10:00"])
    with pytest.raises(CallbackError, match=r"Failing\.on_dependency_down failed: ValueError: no mail") as caught:
        play.batch(activities=["a 11:00"])
    assert caught.value.source == "weather"


def test_a_callback_that_sets_an_attribute_or_has_not_run_ends_the_run(test_run: MakeRun) -> None:
    class Setting(Enrich):
        def on_dependency_down(self, change: DependencyChange) -> None:
            self.newest = change

    class NotRun(Enrich):
        def on_dependency_down(self, change: DependencyChange) -> Any:
            return (each for each in [change])

    for handler, message in (Setting(), "newest"), (NotRun(), "generator"):
        play = Play(test_run(job(ON_WEATHER, handler=handler)))
        play.batch(weather=["a 10:00"])
        with pytest.raises(CallbackError, match=rf"{type(handler).__name__}\.on_dependency_down failed: .*{message}"):
            play.batch(activities=["a 11:00"])


def test_there_is_no_state_where_there_is_no_key(test_run: MakeRun) -> None:
    class Asking(Enrich):
        def on_dependency_down(self, change: DependencyChange) -> None:
            self.weather.state_for(change.subject)

    play = Play(test_run(job(ON_WEATHER, handler=Asking())))
    play.batch(weather=["a 10:00"])
    with pytest.raises(CallbackError, match="on_dependency_down has no key, so it cannot use state or timers"):
        play.batch(activities=["a 11:00"])


@pytest.mark.on_spark("errors of workers")
def test_more_than_may_be_held_ends_the_run(test_run: MakeRun) -> None:
    play = Play(test_run(job(DependsOn("activities", on="weather", max_held=2))))
    play.batch(weather=["a 10:00"])
    play.batch(activities=["a 11:00", "a 11:01"])
    with pytest.raises(TooManyHeldError, match="3 events from source 'activities' are held, more than max_held=2"):
        play.batch(activities=["a 11:02"])


def test_without_the_dependency_what_was_held_runs(test_run: MakeRun) -> None:
    play = Play(test_run(job(ON_WEATHER)))
    play.batch(weather=["a 10:00"])
    play.batch(activities=["a 11:00"])
    free = Play(test_run(job(), snapshot=play.run.snapshot()).end_batch())
    assert free.batch() == ["a 11:00: weather 10:00"]


def test_the_trace_tells_what_is_held(test_run: MakeRun) -> None:
    play = Play(test_run(job(ON_WEATHER)))
    play.batch(weather=["a 10:00"])
    play.batch(activities=["a 11:00"])
    told = [str(entry) for entry in play.run.run().trace]
    assert "2025-01-01T11:00:00+00:00  held (activities)  key='a' value='11:00'" in told
    assert any(line.startswith("on_dependency_down (weather) value={'activities': 2025-01-01T11:00") for line in told)
    assert play.run.run().late == []
    play.batch(activities=["a 11:30"])
    play.batch(weather=["a 11:01"])
    held = [entry.value for entry in play.run.run().trace if entry.callback == "held"]
    assert held == ["11:00", "11:30"], "each once"
