"""Sources that depend on other sources: events are held while another source is down (`docs/dependencies.md`)."""

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


def time_of_day(clock: str) -> datetime:
    """Return a time of the day such as ``10:05``."""
    return datetime.strptime(clock, "%H:%M").replace(2025, 1, 1, tzinfo=timezone.utc)


def clock(time: datetime | None) -> str:
    return "-" if time is None else f"{time:%H:%M}"


class Enrich(Handler):
    """Emits the newest time of each other source for each activity. A record is ``KEY TIME``."""

    weather = MapSpec(str, str)
    seen = SinkSpec(str)

    def key_event(self, record: str) -> KeyedEvent[str]:
        key, time = record.split()
        return KeyedEvent(key, time_of_day(time), time)

    def on_event(self, subject: Subject, event: KeyedEvent[str]) -> None:
        weather = self.weather.state_for(subject)
        if subject.source != "activities":
            weather[str(subject.source)] = event.value
            return
        late = " late" if subject.is_late else ""
        times = " ".join(f"{name} {time}" for name, time in sorted(weather.items()))
        self.seen.collect(subject, f"{subject.key} {event.value}: {times or 'nothing'}{late}")

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


class Batches:
    """Processes a test run batch by batch."""

    def __init__(self, test_run: TestRun) -> None:
        self.test_run = test_run

    def process(self, *, sink: str = "seen", **records: list[str]) -> list[Any]:
        """Process a batch of records by source, and return the outputs of the batch."""
        for source, added in records.items():
            self.test_run.add_records(added, source)
        return self.test_run.run().records(sink, new=True)

    def held(self, source: str = "activities") -> list[str]:
        return [f"{event.key} {event.value}" for event in self.test_run.run().held(source)]


def test_no_events_are_held_within_the_threshold(test_run: MakeRun) -> None:
    batches = Batches(test_run(job(ON_WEATHER)))
    assert batches.process(weather=["a 10:00"], activities=["a 10:10"]) == ["a 10:10: weather 10:00"]
    assert batches.held() == []


def test_events_are_held_while_a_source_is_down_and_processed_in_order_when_the_source_is_ahead(
    test_run: MakeRun,
) -> None:
    batches = Batches(test_run(job(ON_WEATHER)))
    batches.process(weather=["a 10:00"], activities=["a 10:05"])
    assert batches.process(activities=["a 11:00"]) == ["activities without weather 10:00 11:00"]
    assert batches.process(activities=["a 10:58", "a 11:02"]) == []
    assert batches.held() == ["a 11:00", "a 10:58", "a 11:02"]
    assert batches.test_run.run().held() == batches.test_run.run().held("activities")
    assert batches.process(weather=["a 10:59"]) == []
    assert batches.process(weather=["a 11:00"]) == [], "weather must be newer than the held event"
    assert batches.process(weather=["a 11:01"], activities=["a 11:03"]) == [
        "activities with weather 10:00 11:00 11:01",
        "a 11:00: weather 11:00",
        "a 10:58: weather 11:00",
        "a 11:02: weather 11:01",
        "a 11:03: weather 11:01",
    ]
    assert batches.held() == []


def test_the_batch_that_ends_an_outage_is_processed_in_order_of_time(test_run: MakeRun) -> None:
    batches = Batches(test_run(job(ON_WEATHER)))
    batches.process(weather=["a 10:00"])
    batches.process(activities=["a 11:00", "a 11:05"])
    seen = batches.process(weather=["a 10:30", "a 11:02", "a 11:20"])
    assert seen[1:] == ["a 11:00: weather 10:30", "a 11:05: weather 11:02"]


def test_events_within_the_threshold_are_processed_while_a_source_is_down(test_run: MakeRun) -> None:
    batches = Batches(test_run(job(ON_WEATHER)))
    batches.process(weather=["a 10:00"])
    seen = batches.process(activities=["a 10:09", "a 10:11", "a 10:05", "b 10:05", "b 10:10", "b 10:30"])
    assert seen[1:] == ["a 10:09: weather 10:00", "b 10:05: nothing", "b 10:10: nothing"]
    assert batches.held() == ["a 10:11", "a 10:05", "b 10:30"], "events after a held event of their key are held"


def test_other_keys_and_sources_are_processed_while_a_source_is_down(test_run: MakeRun) -> None:
    batches = Batches(test_run(job(ON_WEATHER, DependsOn("news", on="press"))))
    batches.process(weather=["a 10:00"], news=["a 10:00"], press=["a 10:00"])
    batches.process(activities=["a 11:00"])
    batches.process(news=["b 10:05"], press=["b 10:06"])
    batches.process(weather=["b 11:30"])
    assert "b news 10:05" not in batches.held()
    assert batches.process(activities=["b 11:31"]) == ["b 11:31: news 10:05 press 10:06 weather 11:30"]


def test_an_event_of_any_key_shows_that_its_source_is_up(test_run: MakeRun) -> None:
    batches = Batches(test_run(job(ON_WEATHER)))
    batches.process(weather=["a 10:00"])
    assert batches.process(weather=["b 11:00"], activities=["a 11:05"]) == ["a 11:05: weather 10:00"]


def test_events_beyond_the_threshold_after_a_recovery_are_held_until_the_next_recovery(test_run: MakeRun) -> None:
    batches = Batches(test_run(job(ON_WEATHER)))
    batches.process(weather=["a 10:00"])
    batches.process(activities=["a 10:20"])
    batches.process(activities=["a 10:30", "a 10:40", "a 10:35"])
    assert batches.process(weather=["a 10:21"]) == [
        "activities with weather 10:00 10:20 10:21",
        "activities without weather 10:21 10:40",
        "a 10:20: weather 10:00",
        "a 10:30: weather 10:21",
    ]
    assert batches.held() == ["a 10:40", "a 10:35"]
    assert batches.process(weather=["a 10:41"])[1:] == ["a 10:40: weather 10:21", "a 10:35: weather 10:21"]


def test_a_source_without_events_is_down_when_the_dependent_source_exceeds_the_threshold(test_run: MakeRun) -> None:
    batches = Batches(test_run(job(ON_WEATHER)))
    assert batches.process(activities=["a 10:00"]) == ["a 10:00: nothing"]
    assert batches.process(activities=["a 10:10"]) == ["a 10:10: nothing"]
    assert batches.process(activities=["a 10:11"]) == ["activities without weather 10:00 10:11"]


def test_a_first_batch_beyond_the_threshold_shows_that_a_source_without_events_is_down(test_run: MakeRun) -> None:
    batches = Batches(test_run(job(ON_WEATHER)))
    assert batches.process(activities=["b 10:10", "a 10:00", "a 10:11"]) == [
        "activities without weather 10:00 10:11",
        "b 10:10: nothing",
        "a 10:00: nothing",
    ]
    assert batches.held() == ["a 10:11"]


def test_in_a_first_batch_a_source_with_events_is_compared_with_the_newest_dependent_event(
    test_run: MakeRun,
) -> None:
    batches = Batches(test_run(job(ON_WEATHER, DependsOn("activities", on="roads"))))
    assert batches.process(weather=["a 09:00"], activities=["a 10:00", "a 11:00"]) == [
        "activities without weather 09:00 11:00",
        "activities without roads 10:00 11:00",
    ]


def test_a_source_whose_first_event_is_older_than_the_threshold_is_down(test_run: MakeRun) -> None:
    batches = Batches(test_run(job(ON_WEATHER)))
    batches.process(activities=["a 10:00"])
    assert batches.process(weather=["a 09:00"], activities=["a 10:01"]) == ["activities without weather 09:00 10:01"]


def test_held_events_do_not_become_late(test_run: MakeRun) -> None:
    batches = Batches(test_run(job(ON_WEATHER, watermark_delay=0)))
    batches.process(weather=["a 10:00"], activities=["a 10:00"])
    batches.process(activities=["a 11:00", "a 10:20"])
    batches.process(weather=["a 10:50"])
    batches.process(weather=["a 10:55"])
    assert clock(batches.test_run.run().watermark) == "10:20"
    assert batches.process(weather=["a 11:01"])[1:] == ["a 11:00: weather 10:55", "a 10:20: weather 10:55"]
    assert batches.process(activities=["a 11:02"]) == ["a 11:02: weather 11:01"]
    assert clock(batches.test_run.run().watermark) == "11:01"


def test_a_source_with_held_events_is_not_idle(test_run: MakeRun) -> None:
    batches = Batches(test_run(job(ON_WEATHER, idle_timeout=10)))
    batches.process(weather=["a 10:00"], activities=["a 10:00"])
    batches.process(activities=["a 11:00"])
    batches.test_run.advance_processing_time(timedelta(hours=3))
    batches.process(weather=["a 11:05"])
    assert "late" not in " ".join(batches.test_run.run().records("seen"))


class CountsByMinute(Handler):
    """Counts activities by minute."""

    counted = SinkSpec(str)
    per_minute = TumblingWindow(timedelta(minutes=1), value=Count())

    def key_event(self, record: str) -> KeyedEvent[str]:
        key, time = record.split()
        return KeyedEvent(key, time_of_day(time), time)

    def on_event(self, subject: Subject, event: KeyedEvent[str]) -> None:
        if subject.source == "activities":
            self.per_minute.add(subject, event)

    @per_minute.on_close
    def closed(self, subject: Subject, window: Window, count: int) -> None:
        self.counted.collect(subject, f"{subject.key} {clock(window.start)} {count}")


def test_windows_do_not_close_before_their_held_events_are_processed(test_run: MakeRun) -> None:
    batches = Batches(test_run(job(ON_WEATHER, handler=CountsByMinute(), port="counted")))
    batches.process(sink="counted", weather=["a 10:00"], activities=["a 10:10"])
    batches.process(sink="counted", activities=["a 11:00", "a 10:10", "b 10:10"])
    batches.process(sink="counted", weather=["a 10:50"])
    assert batches.process(sink="counted") == []
    batches.process(sink="counted", weather=["a 11:05"], activities=["a 11:05"])
    assert batches.process(sink="counted", activities=["a 11:06"], weather=["a 11:06"]) == [
        "a 10:10 2",
        "b 10:10 1",
        "a 11:00 1",
    ]


def test_events_are_held_until_no_source_that_they_depend_on_is_down(test_run: MakeRun) -> None:
    batches = Batches(test_run(job(ON_WEATHER, DependsOn("activities", on="roads", threshold=timedelta(minutes=30)))))
    batches.process(weather=["a 10:00"], roads=["a 10:00"])
    assert batches.process(activities=["a 11:00"]) == [
        "activities without weather 10:00 11:00",
        "activities without roads 10:00 11:00",
    ]
    assert batches.process(weather=["a 11:10"]) == ["activities with weather 10:00 11:00 11:10"]
    assert batches.held() == ["a 11:00"]
    assert batches.process(roads=["a 11:01"]) == [
        "activities with roads 10:00 11:00 11:01",
        "a 11:00: roads 10:00 weather 11:10",
    ]


def test_held_events_of_a_source_do_not_release_events_that_depend_on_the_source(test_run: MakeRun) -> None:
    batches = Batches(test_run(job(ON_WEATHER, DependsOn("weather", on="stations"))))
    batches.process(stations=["a 10:00"], weather=["a 10:00"], activities=["a 10:00"])
    assert batches.process(weather=["a 11:00"], activities=["a 11:00"]) == [
        "weather without stations 10:00 11:00",
        "activities without weather 10:00 11:00",
    ]
    assert batches.held("weather") == ["a 11:00"]
    assert batches.process(stations=["a 11:05"]) == ["weather with stations 10:00 11:00 11:05"]
    assert batches.held() == ["a 11:00"]
    assert batches.process(weather=["a 11:06"]) == [
        "activities with weather 10:00 11:00 11:06",
        "a 11:00: stations 11:05 weather 11:00",
    ]


def test_a_held_event_does_not_show_that_its_source_is_up(test_run: MakeRun) -> None:
    batches = Batches(test_run(job(ON_WEATHER, DependsOn("weather", on="stations"))))
    batches.process(stations=["a 10:00"], weather=["a 09:50"], activities=["a 09:50"])
    assert batches.process(activities=["a 10:05"]) == ["activities without weather 09:50 10:05"]
    assert batches.process(weather=["a 11:00"]) == ["weather without stations 10:00 11:00"]
    assert batches.process(activities=["a 10:06"]) == []
    assert batches.held() == ["a 10:05", "a 10:06"]
    assert batches.process(stations=["a 11:01"])[:2] == [
        "weather with stations 10:00 11:00 11:01",
        "activities with weather 09:50 10:05 11:00",
    ]
    assert batches.held() == []


def test_max_held_applies_to_the_dependency_that_is_down(test_run: MakeRun) -> None:
    wide = DependsOn("activities", on="roads", threshold=timedelta(hours=5), max_held=1)
    batches = Batches(test_run(job(wide, DependsOn("activities", on="weather", max_held=2))))
    batches.process(weather=["a 10:00"], roads=["a 10:00"])
    batches.process(activities=["a 11:00", "a 11:01"])
    with pytest.raises(TooManyHeldError, match=r"DependsOn\('activities', on='weather'\)"):
        batches.process(activities=["a 11:02"])


@pytest.mark.on_spark("dependencies")
def test_held_events_survive_a_restart_and_a_crash(test_run: MakeRun) -> None:
    run = test_run(job(ON_WEATHER))
    batches = Batches(run)
    batches.process(weather=["a 10:00"])
    batches.process(activities=["a 11:00"])
    run.restart()
    assert batches.process() == [], "the callback is not called again"
    assert batches.held() == ["a 11:00"]
    run.add_record("a 11:01", "weather").crash(after=1)
    assert batches.process() == ["activities with weather 10:00 11:00 11:01", "a 11:00: weather 10:00"]


def test_a_dependency_change_contains_the_numbers_of_its_batches(test_run: MakeRun) -> None:
    class BatchNumbers(Enrich):
        def on_dependency_down(self, change: DependencyChange) -> None:
            self.seen.collect(change.subject, f"{change.since_batch} {change.reached_batch}")

    batches = Batches(test_run(job(ON_WEATHER, handler=BatchNumbers())))
    batches.process(weather=["a 10:00"], activities=["a 10:00"])
    batches.process(weather=["a 10:05"])
    batches.process(activities=["a 10:06"])
    assert batches.process(activities=["a 10:20"]) == ["1 3"]
    batches.process(activities=["a 11:30"])
    outputs = batches.process(weather=["a 10:31"])
    assert outputs[1] == "5 4", "down because of an event that was already held"


def test_the_error_of_on_dependency_down_names_the_callback_and_the_source(test_run: MakeRun) -> None:
    class Failing(Enrich):
        def on_dependency_down(self, change: DependencyChange) -> None:
            raise ValueError("no mail")

    batches = Batches(test_run(job(ON_WEATHER, handler=Failing())))
    batches.process(weather=["a 10:00"])
    with pytest.raises(CallbackError, match=r"Failing\.on_dependency_down failed: ValueError: no mail") as caught:
        batches.process(activities=["a 11:00"])
    assert caught.value.source == "weather"


def test_on_dependency_down_cannot_set_attributes_or_be_a_generator(test_run: MakeRun) -> None:
    class Setting(Enrich):
        def on_dependency_down(self, change: DependencyChange) -> None:
            self.newest = change

    class Generating(Enrich):
        def on_dependency_down(self, change: DependencyChange) -> Any:
            return (each for each in [change])

    for handler, message in (Setting(), "newest"), (Generating(), "generator"):
        batches = Batches(test_run(job(ON_WEATHER, handler=handler)))
        batches.process(weather=["a 10:00"])
        with pytest.raises(CallbackError, match=rf"{type(handler).__name__}\.on_dependency_down failed: .*{message}"):
            batches.process(activities=["a 11:00"])


def test_on_dependency_down_cannot_use_state(test_run: MakeRun) -> None:
    class ReadsState(Enrich):
        def on_dependency_down(self, change: DependencyChange) -> None:
            self.weather.state_for(change.subject)

    batches = Batches(test_run(job(ON_WEATHER, handler=ReadsState())))
    batches.process(weather=["a 10:00"])
    with pytest.raises(CallbackError, match="on_dependency_down has no key, so it cannot use state or timers"):
        batches.process(activities=["a 11:00"])


def test_exceeding_max_held_ends_the_run(test_run: MakeRun) -> None:
    batches = Batches(test_run(job(DependsOn("activities", on="weather", max_held=2))))
    batches.process(weather=["a 10:00"])
    batches.process(activities=["a 11:00", "a 11:01"])
    with pytest.raises(TooManyHeldError, match="3 events from source 'activities' are held, more than max_held=2"):
        batches.process(activities=["a 11:02"])


def test_removing_the_dependency_releases_held_events(test_run: MakeRun) -> None:
    batches = Batches(test_run(job(ON_WEATHER)))
    batches.process(weather=["a 10:00"])
    batches.process(activities=["a 11:00"])
    free = Batches(test_run(job(), snapshot=batches.test_run.snapshot()).end_batch())
    assert free.process() == ["a 11:00: weather 10:00"]


def test_the_trace_contains_each_held_event_once(test_run: MakeRun) -> None:
    batches = Batches(test_run(job(ON_WEATHER)))
    batches.process(weather=["a 10:00"])
    batches.process(activities=["a 11:00"])
    lines = [str(entry) for entry in batches.test_run.run().trace]
    assert "2025-01-01T11:00:00+00:00  held (activities)  key='a' value='11:00'" in lines
    assert any(line.startswith("on_dependency_down (weather) value={'activities': 2025-01-01T11:00") for line in lines)
    assert batches.test_run.run().late == []
    batches.process(activities=["a 11:30"])
    batches.process(weather=["a 11:01"])
    held = [entry.value for entry in batches.test_run.run().trace if entry.callback == "held"]
    assert held == ["11:00", "11:30"], "each event once"
