"""Metrics of runs, as plugins read them."""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from amadou import DependsOn, Handler, Job, KeyedEvent, MemorySink, MemorySource, Subject, ValueSpec
from amadou.plugins import BatchReport, Metric, Run, hookimpl
from amadou_plugins.windows import SessionWindow, TumblingWindow, windowed
from amadou_runtime import run
from amadou_runtime.plugins.hooks import Plugins

START = datetime(2025, 1, 1, tzinfo=timezone.utc)


def at(second: int) -> datetime:
    return START + timedelta(seconds=second)


class Scripted(Handler):
    """Follows the script in each record: sets and deletes timers, and fails."""

    def key_event(self, record: tuple[int, str]) -> KeyedEvent | None:
        second, script = record
        return None if script == "ignore" else KeyedEvent("key", at(second), script)

    def on_event(self, subject: Subject, event: KeyedEvent) -> None:
        for step in event.value.split():
            match step.split(":"):
                case ["set", second]:
                    subject.set_timer(at(int(second)))
                case ["tag", second]:
                    subject.set_timer(at(int(second)), "tag")
                case ["delete", second]:
                    subject.delete_timer(at(int(second)))
                case _:
                    raise ValueError(step)

    def on_timer_expired(self, subject: Subject, timestamp: datetime) -> None:
        subject.set_timer(timestamp + timedelta(days=1))


class Reports:
    """Collects reports of batches and values of metrics."""

    def __init__(self) -> None:
        self.batches: list[BatchReport] = []
        self.read: list[dict[str, Any]] = []

    @hookimpl
    def amadou_batch_completed(self, run: Run, batch: BatchReport) -> None:
        self.batches.append(batch)
        self.read.append({metric.name: metric.read(batch) for metric in run.metrics})


class Registering:
    def __init__(self, metrics: Any) -> None:
        self.metrics = metrics

    @hookimpl
    def amadou_register_metrics(self) -> Any:
        return self.metrics


def reports_of(
    handler: Handler, *records: Any, sinks: Iterable[str] = (), plugins: Iterable[Any] = (), **settings: Any
) -> Reports:
    """Run a job, and return the reports that a plugin gets."""
    reports = Reports()
    made = {port: MemorySink() for port in sinks}
    job = Job("job", handler, {"in": MemorySource(records)}, made, plugins=[*plugins, reports], **settings)
    run(job, engine="embedded")
    return reports


def test_timers_that_callbacks_set_are_counted() -> None:
    reports = reports_of(
        Scripted(),
        (1, "set:5 set:5 tag:5"),  # the second timer is already set
        (2, "set:6 delete:6 set:6 delete:7"),
        (9, "set:20"),
    )
    counts = [batch.counts for batch in reports.batches]
    assert [(each.timers_set, each.timers_fired, each.timers_pending) for each in counts] == [(5, 0, 4), (2, 3, 3)]


def test_a_timer_at_the_watermark_is_not_set() -> None:
    class Late(Scripted):
        def on_timer_expired(self, subject: Subject, timestamp: datetime) -> None:
            assert not subject.set_timer(timestamp)

    assert [batch.counts.timers_set for batch in reports_of(Late(), (1, "set:5"), (9, "")).batches] == [1, 0]


def test_timers_of_a_failed_event_are_not_counted() -> None:
    records = [(1, "set:50"), (2, "set:51 delete:50 fail"), (3, "set:52 delete:52")]
    reports = reports_of(Scripted(), *records, sinks=["dead_letters"], on_error="dead_letter")
    counts = reports.batches[0].counts
    assert (counts.timers_set, counts.timers_pending, counts.dead_letters) == (2, 1, 1)


def test_records_that_become_no_event_are_counted_too() -> None:
    reports = Reports()
    sources = {"in": MemorySource([(1, ""), (2, "ignore")]), "other": MemorySource([(1, "")]), "none": MemorySource()}
    run(Job("job", Scripted(), sources, {}, plugins=[reports]), engine="embedded")
    assert [(batch.counts.records, batch.counts.events) for batch in reports.batches] == [
        ({"in": 2, "other": 1}, 2),
        ({}, 0),
    ]


class Remembering(Handler):
    """Stores the text of each key, and clears the text of one key."""

    text = ValueSpec(str)

    def key_event(self, record: tuple[str, int, str]) -> KeyedEvent[str]:
        key, second, text = record
        return KeyedEvent(key, at(second), text)

    def on_event(self, subject: Subject, event: KeyedEvent[str]) -> None:
        self.text.state_for(subject).value = event.value
        if subject.key == "short":
            subject.set_timer(event.timestamp)

    def on_timer_expired(self, subject: Subject, timestamp: datetime) -> None:
        self.text.state_for(subject).clear()


def test_entries_and_bytes_of_stored_state_are_counted() -> None:
    reports = reports_of(Remembering(), ("short", 1, "x" * 1000), ("long", 2, "y" * 2000))
    first, second = (batch.counts for batch in reports.batches)
    of_group = 1
    assert (first.state_entries, second.state_entries) == (2 + of_group, 1 + of_group)
    assert 3000 < first.state_bytes == first.state_bytes_written < 3300
    assert 2000 < second.state_bytes < 2300
    assert 0 < second.state_bytes_written < 300


def test_callbacks_are_counted_and_timed() -> None:
    first, second = reports_of(Scripted(), (1, "set:5"), (2, "ignore"), (9, "")).batches
    assert first.callback_calls == {"key_event": 3, "on_event": 2}
    assert second.callback_calls == {"on_timer_expired": 1}
    for batch in (first, second):
        assert batch.callback_seconds.keys() == batch.callback_calls.keys()
        assert 0 < sum(batch.callback_seconds.values()) < sum(batch.stage_seconds.values()) < batch.seconds
        assert [*batch.stage_seconds] == ["keying", "processing", "writing", "committing"]


class Windows(Handler):
    minutes = TumblingWindow(timedelta(minutes=1))
    sessions = SessionWindow(timedelta(seconds=30))

    def key_event(self, record: tuple[str, int]) -> KeyedEvent:
        return KeyedEvent(record[0], at(record[1]))

    def on_event(self, subject: Subject, event: KeyedEvent) -> None:
        self.minutes.add(subject, event)
        self.sessions.add(subject, event)
        subject.set_timer(at(60))

    @minutes.on_close
    @sessions.on_close
    def closed(self, *_: Any) -> None: ...

    def on_timer_expired(self, subject: Subject, timestamp: datetime) -> None: ...


def test_closing_windows_are_counted_and_timed_under_their_names() -> None:
    _, fired = reports_of(Windows(), ("a", 1), ("b", 30), ("b", 45), ("c", 300)).batches
    assert fired.callback_calls == {"minutes": 2, "sessions": 2, "on_timer_expired": 3}
    assert fired.callback_seconds.keys() == fired.callback_calls.keys()
    assert fired.counts.timers_fired == 7
    assert fired.counts.timers_set == 0


def test_calls_of_a_vectorized_handler_are_counted_event_by_event() -> None:
    window = TumblingWindow(timedelta(minutes=1))
    records = [{"key": key, "time": at(second).isoformat()} for key, second in (("a", 1), ("a", 2), ("b", 70))]
    first, second = reports_of(
        windowed(key="key", timestamp="time", window=window), *records, sinks=["results"]
    ).batches
    assert first.callback_calls == {"key_event": 3, "on_event": 3}
    assert second.callback_calls == {"window": 1}
    for batch in (first, second):
        assert batch.callback_seconds.keys() == batch.callback_calls.keys()


def test_the_lag_is_measured_when_the_batch_is_completed() -> None:
    before = datetime.now(timezone.utc)
    first, second = reports_of(Scripted(), (1, "")).batches
    assert before <= first.completed <= second.completed <= datetime.now(timezone.utc)
    assert (first.lag, second.lag) == (None, second.completed - at(1))


def test_each_plugin_sees_the_metrics_of_all_plugins() -> None:
    class More:
        @hookimpl
        def amadou_register_metrics(self) -> Iterator[Metric]:
            yield Metric("ignored", "Records that became no event.", "counter", ignored)
            yield Metric("runs", "Runs.", "gauge", lambda batch: {"this": 1}, label="run")

    def ignored(batch: BatchReport) -> float:
        return sum(batch.counts.records.values()) - batch.counts.events

    first, _ = reports_of(Scripted(), (1, ""), (2, "ignore"), plugins=[More()]).read
    assert [*first][:2] == ["amadou_batches", "amadou_batch_seconds"]
    assert (first["amadou_events"], first["amadou_records"], first["ignored"], first["runs"]) == (
        1,
        {"in": 2},
        1,
        {"this": 1},
    )


def test_a_metric_that_fails_is_omitted_after_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    metrics = [
        Metric("broken", "Fails.", "gauge", lambda batch: 1 / 0),
        Metric("wordy", "Gives a text.", "gauge", lambda batch: "many"),  # type: ignore[arg-type, return-value]
        Metric("single", "Gives one number.", "gauge", lambda batch: 1, label="port"),
        Metric("mixed", "Gives a text by port.", "gauge", lambda batch: {"out": "many"}, label="port"),  # type: ignore
        Metric("good", "Works.", "gauge", lambda batch: batch.number),
        Metric("absent", "Has no value.", "gauge", lambda batch: None),
    ]
    reports = reports_of(Scripted(), (1, ""), plugins=[Registering(metrics)])
    names = [metric.name for metric in metrics]
    assert [[read[name] for name in names] for read in reports.read] == [[None] * 4 + [at, None] for at in (0, 1)]
    assert [record.getMessage().splitlines()[0] for record in caplog.records] == [
        f"the metric {name} of the plugin {__name__}.Registering failed and is omitted for the rest of the run: {why}"
        for name, why in {
            "broken": "ZeroDivisionError: division by zero",
            "wordy": "TypeError: it returned 'many', not a number",
            "single": "TypeError: it returned 1, not a mapping from values of the label port to numbers",
            "mixed": "TypeError: it returned {'out': 'many'}, not a mapping from values of the label port to numbers",
        }.items()
    ]


@pytest.mark.parametrize(
    ("metrics", "why"),
    [
        (
            [Metric("amadou_events", "Events.", "counter", lambda batch: 1)],
            "the plugin metrics already has the metric 'amadou_events': choose a different name",
        ),
        (["events"], "it returned 'events', not an amadou.plugins.Metric"),
        (None, "TypeError: 'NoneType' object is not iterable"),
        ((1 / nothing for nothing in [0]), "ZeroDivisionError: division by zero"),
    ],
)
def test_the_warning_about_metrics_that_cannot_be_registered_names_the_plugin(
    metrics: Any, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    usual = [metric.name for metric in Plugins().metrics()]
    assert [metric.name for metric in Plugins([Registering(metrics)]).metrics()] == usual
    assert f"Registering failed in amadou_register_metrics: {why}" in caplog.text


def test_held_events_and_sources_that_are_down_are_in_reports_metrics_and_logs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reports = Reports()
    sources = {"in": MemorySource([(0, ""), (60, "")]), "other": MemorySource([(0, "")])}
    dependencies = [DependsOn("in", on="other", threshold=10)]
    summary = run(Job("job", Scripted(), sources, {}, plugins=[reports], dependencies=dependencies), engine="embedded")
    assert [(batch.counts.held, batch.down) for batch in reports.batches] == [({"in": 1}, {"other": True})] * 2
    assert reports.read[-1]["amadou_held"] == {"in": 1}
    assert reports.read[-1]["amadou_dependency_down"] == {"other": 1}
    assert "; held: 1 from in; " in str(summary)
    assert "job job: lost held events from in (1): a needed source is down. Use a checkpoint on Spark" in caplog.text
    assert reports.batches[0].callback_calls["on_dependency_down"] == 1
    expected = f"job job: source other is down (its newest event: {at(0)}; in is at {at(60)}). Holding events beyond"
    assert expected in caplog.text
