"""`TestRun` and `TestResult` on the embedded engine. `tests/conformance` has what both engines share."""

from datetime import datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import attrs
import pytest

from amadou import Handler, Job, KeyedEvent, MapSpec, MemorySink, MemorySource, Param, SinkSpec, Subject, ValueSpec
from amadou._state.encoding import pack
from amadou.errors import CallbackError, NaiveTimestampError, ParamError, PortError
from amadou_plugins.connectors import JsonLinesSink
from amadou_runtime import TestRun

START = datetime(2025, 1, 1, tzinfo=timezone.utc)
SECOND = timedelta(seconds=1)


@attrs.frozen
class Sum:
    key: str
    sum: int


class Adder(Handler):
    """Adds numbers up, and collects the sum a second later."""

    sums = SinkSpec(Sum)
    notes = SinkSpec(str)
    total = ValueSpec(int, default=0)
    seen = MapSpec(datetime, int)
    limit: Any = 100

    def key_event(self, record: tuple[str, int, int]) -> KeyedEvent[int]:
        key, seconds, number = record
        return KeyedEvent(key, START + seconds * SECOND, number)

    def on_event(self, subject: Subject, event: KeyedEvent[int]) -> None:
        total = self.total.state_for(subject)
        total.value += event.value
        if total.value > self.limit:
            raise ValueError("too much")
        self.seen.state_for(subject)[event.timestamp] = event.value
        subject.set_timer(event.timestamp + SECOND, "sum")

    def on_timer_expired(self, subject: Subject, timestamp: datetime) -> None:
        self.sums.collect(subject, Sum(str(subject.key), self.total.state_for(subject).value))
        self.notes.collect(subject, subject.timer_tag)


def adder(*sources: str, handler: Handler | None = None, **settings: Any) -> Job:
    return Job(
        "adder",
        handler or Adder(),
        sources={source: MemorySource([("unused", 0, 0)]) for source in sources or ("in",)},
        sinks={"sums": MemorySink(), "notes": MemorySink()},
        **settings,
    )


def test_the_result_of_a_test_run_has_the_records_of_each_port() -> None:
    result = TestRun(adder()).add_records([("a", 0, 1), ("a", 0, 2)]).add_watermark(START + SECOND).run()
    assert result.records("sums") == [Sum("a", 3)]
    assert result.records("notes") == ["sum"]
    assert result.watermark == START + SECOND


def test_the_result_of_a_test_run_without_records_is_empty() -> None:
    result = TestRun(adder()).run()
    assert (result.records("sums"), result.keys(), result.watermark, result.trace) == ([], [], None, [])


def test_a_test_run_can_continue_and_returns_all_records_so_far() -> None:
    run = TestRun(adder()).add_record(("a", 0, 1))
    first = run.run()
    assert first.records("sums") == []
    second = run.add_record(("a", 1, 2)).add_watermark(START + 5 * SECOND).run()
    assert second.records("sums") == [Sum("a", 3), Sum("a", 3)]
    third = run.add_record(("a", 10, 4)).add_watermark(START + 20 * SECOND).run()
    assert third.records("sums") == [Sum("a", 3), Sum("a", 3), Sum("a", 7)]
    assert run.run().records("sums") == third.records("sums")
    assert first.records("sums") == []
    assert len(first.trace) == 1


def test_add_watermark_without_a_time_advances_to_the_newest_event() -> None:
    run = TestRun(adder(watermark_delay=60)).add_records([("a", 0, 1), ("b", 7, 1)])
    assert run.add_watermark().run().watermark == START + 7 * SECOND


def test_end_batch_advances_the_watermark_with_the_watermark_delay() -> None:
    run = TestRun(adder(watermark_delay=5)).add_record(("a", 7, 1)).end_batch()
    assert run.run().watermark == START + 2 * SECOND


def test_add_watermark_before_any_event_has_no_effect() -> None:
    assert TestRun(adder()).add_watermark().run().watermark is None


def test_add_watermark_refuses_a_naive_time() -> None:
    with pytest.raises(NaiveTimestampError):
        TestRun(adder()).add_watermark(datetime(2025, 1, 1))


def test_the_result_of_a_test_run_shows_state_keys_and_timers() -> None:
    result = TestRun(adder()).add_records([("a", 0, 1), ("b", 5, 2)]).run()
    assert sorted(map(str, result.keys())) == ["a", "b"]
    assert result.state(Adder.total, "b") == 2
    assert result.state("total", "b") == 2
    assert result.state(Adder.seen, "a") == {START: 1}
    assert result.state(Adder.total, "unknown") == 0
    assert result.state(Adder.seen, "unknown") == {}
    assert [(timer.timestamp, timer.tag) for timer in result.timers("b")] == [(START + 6 * SECOND, "sum")]
    assert result.timers("unknown") == []


def test_the_error_for_an_unknown_spec_or_port_lists_the_known_ones() -> None:
    result = TestRun(adder()).run()
    with pytest.raises(ValueError, match=r"the handler has no state spec 'totals' \(available: total, seen\)"):
        result.state("totals", "a")
    with pytest.raises(PortError, match="sum"):
        result.records("sum")


def test_the_trace_shows_events_state_timers_and_outputs_as_text() -> None:
    result = TestRun(adder()).add_record(("a", 0, 1)).add_watermark(START + SECOND).run()
    assert [str(entry) for entry in result.trace] == [
        "2025-01-01T00:00:00+00:00  on_event (in)  key='a' value=1\n"
        "    total: ∅ ⇒ 1\n"
        "    seen: ∅ ⇒ {2025-01-01T00:00:00+00:00: 1}\n"
        "    + timer 2025-01-01T00:00:01+00:00 tag='sum'",
        "2025-01-01T00:00:01+00:00  on_timer_expired  key='a' tag='sum'\n"
        "    total: 1\n"
        "    seen: {2025-01-01T00:00:00+00:00: 1}\n"
        "    → sums: Sum(key='a', sum=1)\n"
        "    → notes: 'sum'",
    ]


def test_memory_sinks_of_a_job_get_the_values_of_each_test_run() -> None:
    job = adder()
    for number in (1, 2):
        TestRun(job).add_record(("a", 0, number)).add_watermark(START + SECOND).run()
    assert job.sinks["sums"].records == [Sum("a", 1), Sum("a", 2)]  # type: ignore[attr-defined]


def test_add_watermark_finds_the_newest_event_in_the_repeated_hour_of_autumn() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    earlier = datetime(2025, 10, 26, 2, 50, tzinfo=berlin, fold=0)
    later = datetime(2025, 10, 26, 2, 10, tzinfo=berlin, fold=1)
    run = TestRun(adder()).add_event(KeyedEvent("a", earlier, 1)).add_event(KeyedEvent("a", later, 1))
    assert run.add_watermark().run().watermark == datetime(2025, 10, 26, 1, 10, tzinfo=timezone.utc)


def test_a_test_run_does_not_read_the_sources_of_the_job() -> None:
    assert TestRun(adder()).add_record(("a", 0, 1)).run().keys() == ["a"]


def test_records_for_a_job_with_several_sources_need_the_name_of_a_source() -> None:
    run = TestRun(adder("left", "right"))
    with pytest.raises(ValueError, match=r"multiple sources: pass source= \(left, right\)"):
        run.add_record(("a", 0, 1))
    with pytest.raises(ValueError, match=r"no source 'middle': use one of left, right"):
        run.add_record(("a", 0, 1), source="middle")
    result = run.add_record(("a", 0, 1), source="right").add_records([("a", 1, 1)], source="left").run()
    assert [entry.source for entry in result.trace] == ["right", "left"]


def test_a_source_can_have_its_own_key_event() -> None:
    job = Job(
        "adder",
        Adder(),
        sources={
            "tuples": MemorySource(),
            "texts": MemorySource(key_event=lambda text: KeyedEvent(text, START, len(text))),
        },
        sinks={"sums": MemorySink(), "notes": MemorySink()},
    )
    result = TestRun(job).add_record(("a", 0, 1), source="tuples").add_record("bcd", source="texts").run()
    assert (result.state("total", "a"), result.state("total", "bcd")) == (1, 3)


@pytest.mark.parametrize("returned", [None, [], ()])
def test_key_event_can_return_no_event(returned: Any) -> None:
    job = adder(handler=KeyedAs(lambda record: returned))
    assert TestRun(job).add_record("any").run().trace == []


def test_key_event_can_yield_several_events() -> None:
    job = adder(handler=KeyedAs(lambda record: (KeyedEvent(key, START, 1) for key in record)))
    assert sorted(map(str, TestRun(job).add_record("aab").run().keys())) == ["a", "b"]


class KeyedAs(Adder):
    def __init__(self, key_event: Any) -> None:
        self.key_event = key_event  # type: ignore[method-assign]


def test_add_event_does_not_call_key_event() -> None:
    result = TestRun(adder()).add_event(KeyedEvent(("a", 1), START, 5)).run()
    assert result.state("total", ("a", 1)) == 5


def test_a_test_run_continues_after_its_last_complete_batch_if_a_batch_fails() -> None:
    run = TestRun(adder()).add_record(("a", 0, 1)).end_batch().add_records([("a", 0, 1), ("a", 1, 100)])
    with pytest.raises(CallbackError, match="too much"):
        run.run()
    result = run.add_record(("a", 2, 3)).run()
    assert result.state("total", "a") == 4
    assert len(result.trace) == 2


def test_parameters_of_a_test_run_are_arguments() -> None:
    handler = Adder()
    handler.limit = Param("LIMIT", type=int)
    with pytest.raises(ParamError, match="LIMIT is not set"):
        TestRun(adder(handler=handler))
    run = TestRun(adder(handler=handler), params={"LIMIT": "5"}).add_record(("a", 0, 6))
    with pytest.raises(CallbackError, match="too much"):
        run.run()


def test_a_test_run_does_not_need_parameters_that_only_reading_and_writing_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GREETING", "hello")
    handler = Adder()
    handler.limit = Param("LIMIT", type=int)
    sinks = {"sums": JsonLinesSink(Param("SUMS")), "notes": JsonLinesSink(Param("NOTES"))}
    job = Job("adder", handler, {"in": Greeted(Param("GREETING"), Param("DB_PASSWORD", secret=True))}, sinks)
    run = TestRun(job, params={"LIMIT": "5"}).add_record(("a", 0, 4))
    assert run.run().keys() == ["hello a"]
    with pytest.raises(ParamError, match="has no parameter OTHER"):
        TestRun(job, params={"LIMIT": "5", "OTHER": "1"})


class Greeted(MemorySource):
    """Decodes records with one of its settings, and needs the other setting only to read."""

    def __init__(self, greeting: Any, password: Any) -> None:
        super().__init__()
        self.greeting = greeting
        self.password = password

    def decode(self, record: tuple[str, int, int]) -> tuple[str, int, int]:  # type: ignore[override]
        return (f"{self.greeting} {record[0]}", *record[1:])


class Doubler(Adder):
    """A fake that has its own port, and lacks a port of `Adder`."""

    doubled = SinkSpec(int)
    notes = None  # type: ignore[assignment]

    def on_event(self, subject: Subject, event: KeyedEvent[int]) -> None:
        self.doubled.collect(subject, 2 * event.value)


@pytest.mark.parametrize("fake", [Doubler, Doubler()])
def test_a_fake_can_replace_the_handler(fake: Any) -> None:
    job = adder()
    assert TestRun(job, handler=fake).add_record(("a", 0, 2)).run().records("doubled") == [4]
    run = TestRun(job).add_record(("a", 0, 2)).restart(fake).add_record(("a", 1, 3))
    assert run.run().records("doubled") == [6]
    assert type(job.handler) is Adder


def test_parameters_of_a_replaced_handler_are_filled() -> None:
    handler = Adder()
    handler.limit = Param("NEW_LIMIT", type=int)
    with pytest.raises(ParamError, match="NEW_LIMIT is not set"):
        TestRun(adder()).restart(handler)
    run = TestRun(adder(), handler=handler, params={"NEW_LIMIT": "5"}).restart(handler).add_record(("a", 0, 6))
    with pytest.raises(CallbackError, match="too much"):
        run.run()


def test_an_unknown_engine_is_refused() -> None:
    with pytest.raises(ValueError, match='the engine must be "embedded", "spark" or "both", not \'flink\''):
        TestRun(adder(), engine="flink")  # type: ignore[arg-type]


def test_open_is_called_before_the_first_callback_and_close_once_at_the_end() -> None:
    calls: list[str] = []

    class Opened(Adder):
        def open(self) -> None:
            calls.append("open")

        def on_event(self, subject: Subject, event: KeyedEvent[int]) -> None:
            calls.append("on_event")

        def close(self) -> None:
            calls.append("close")

    run = TestRun(adder(handler=Opened())).add_record(("a", 0, 1)).end_batch().add_record(("a", 1, 1))
    run.run()
    run.close()
    run.close()
    assert calls == ["open", "on_event", "on_event", "close"]


@pytest.mark.parametrize("callback", ["open", "close"])
def test_an_error_in_open_or_close_names_the_callback(callback: str) -> None:
    class Broken(Adder):
        pass

    def fail(self: Any) -> None:
        raise ValueError("no connection")

    setattr(Broken, callback, fail)
    with pytest.raises(CallbackError, match="no connection") as caught:
        open_and_close(TestRun(adder(handler=Broken())))
    assert (caught.value.handler, caught.value.callback) == ("Broken", callback)


def open_and_close(run: TestRun) -> None:
    run.run()
    run.close()


def test_new_records_are_those_since_the_last_call_of_run() -> None:
    run = TestRun(adder())
    assert run.run().records("notes", new=True) == []
    run.add_record(("a", 0, 1)).run()
    result = run.add_watermark(START + SECOND).run()
    assert result.records("notes", new=True) == result.records("notes") == ["sum"]
    assert run.run().records("notes", new=True) == []


@pytest.mark.parametrize(
    "snapshot", [b"", b"nothing", pack([4, None, {}, 0]), pack([3, None, {}, 0, None, "adder", {}]), pack(5)]
)
def test_bytes_that_are_not_a_snapshot_are_refused(snapshot: bytes) -> None:
    with pytest.raises(ValueError, match="the snapshot cannot be read: "):
        TestRun(adder(), snapshot=snapshot)


def test_a_with_block_closes_its_test_run() -> None:
    closed: list[str] = []

    class Closing(Adder):
        def close(self) -> None:
            closed.append("closed")

    job = Job("adder", Closing(), {"in": MemorySource()}, {"sums": MemorySink(), "notes": MemorySink()})
    with TestRun(job) as run:
        run.run()
        assert closed == []
    assert closed == ["closed"]


def test_arguments_of_another_type_are_refused_by_a_test_run() -> None:
    with pytest.raises(TypeError, match="a TestRun takes a Job, not "):
        TestRun(Adder())  # type: ignore[arg-type]
    run = TestRun(Job("adder", Adder(), {"in": MemorySource()}, {"sums": MemorySink(), "notes": MemorySink()}))
    with pytest.raises(TypeError, match="add_records takes an iterable of records, not b'abc': use add_record"):
        run.add_records(b"abc")
    with pytest.raises(TypeError, match="advance_processing_time takes a timedelta, not 5"):
        run.advance_processing_time(5)  # type: ignore[arg-type]
