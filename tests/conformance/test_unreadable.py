"""State that new code cannot read ends the run, whatever `on_error` says."""

from datetime import datetime, timedelta
from typing import Any, NamedTuple

import pytest
from tests.conformance.conftest import MakeRun
from tests.conformance.handlers import SECOND, Recorder, at, event, job

from amadou import KeyedEvent, ListSpec, MapSpec, SinkSpec, Subject, ValueSpec
from amadou.errors import CallbackError
from amadou_plugins.aggregates import Count, Last, RunningSpec
from amadou_plugins.windows import TumblingWindow, Window

MINUTE = timedelta(minutes=1)


class Reversed:
    """A codec of texts."""

    def encode(self, value: str) -> str:
        return value[::-1]

    decode = encode


class Illegible(Reversed):
    """The codec of a later release, which cannot read what was stored."""

    def decode(self, encoded: str) -> str:
        raise KeyError(encoded)


class Noted(Recorder):
    """An event notes a text, in state, a map, a list and a window; what its second one does its value says."""

    text = ValueSpec(str, codec=Reversed())
    many = MapSpec(str, str, codec=Reversed())
    keys = MapSpec(str, int, key_codec=Reversed())
    row = ListSpec(str, codec=Reversed())
    window = TumblingWindow(SECOND)
    found = SinkSpec(Any)

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        text, many, row = self.text.state_for(subject), self.many.state_for(subject), self.row.state_for(subject)
        keys = self.keys.state_for(subject)
        if event.value is None:
            text.value = many["a"] = "abc"
            row.append("abc")
            keys["abc"] = 1
            self.window.add(subject, event)
            return
        subject.set_timer(at(100))
        if event.value == "wrap":
            try:
                self.found.collect(subject, text.value)
            except Exception as error:
                raise ValueError("no text") from error
        else:
            self.found.collect(subject, self.read(subject, event.value))

    def on_timer_expired(self, subject: Subject, timestamp: datetime) -> None:
        self.found.collect(subject, self.text.state_for(subject).value)

    @window.on_close
    def window_closed(self, subject: Subject, window: Window, count: int) -> None:
        self.found.collect(subject, self.text.state_for(subject).value)

    def read(self, subject: Subject, what: str) -> Any:
        return {
            "text": lambda: self.text.state_for(subject).value,
            "many": lambda: dict(self.many.state_for(subject)),
            "keys": lambda: list(self.keys.state_for(subject)),
            "row": lambda: list(self.row.state_for(subject)),
        }[what]()


class Unread(Noted):
    text = ValueSpec(str, codec=Illegible())
    many = MapSpec(str, str, codec=Illegible())
    keys = MapSpec(str, int, key_codec=Illegible())
    row = ListSpec(str, codec=Illegible())


@pytest.mark.parametrize(
    ("what", "spec"),
    [("text", "text"), ("wrap", "text"), ("many", "many"), ("keys", "keys"), ("row", "row"), ("closes", "text")],
)
@pytest.mark.rule(17)
def test_state_that_cannot_be_read_ends_the_run_and_is_no_dead_letter(test_run: MakeRun, what: str, spec: str) -> None:
    before = test_run(job(Noted(), on_error="dead_letter")).add_record(event(0))
    before.run()
    run = test_run(job(Unread(), on_error="dead_letter"), snapshot=before.snapshot())
    if what == "closes":
        run.add_watermark(at(50)).end_batch()
    else:
        run.add_record(event(2, what))
    with pytest.raises(CallbackError, match=f"StateDecodeError: state '{spec}' of key 'k'.*The state is unchanged"):
        run.run()
    back = test_run(job(Noted(), on_error="dead_letter"), snapshot=before.snapshot()).add_watermark(at(50))
    assert back.add_record(event(50, "row")).run().records("found") == ["abc", ["abc"]]


@pytest.mark.on_spark("errors of workers")
@pytest.mark.rule(17)
def test_a_timer_that_cannot_read_state_ends_the_run(test_run: MakeRun) -> None:
    before = test_run(job(Noted(), on_error="dead_letter")).add_record(event(0)).add_record(event(0, "text"))
    before.run()
    run = test_run(job(Unread(), on_error="dead_letter"), snapshot=before.snapshot())
    with pytest.raises(CallbackError, match="StateDecodeError: state 'text' of key 'k'"):
        run.set_timer("k", at(100)).add_watermark(at(200)).run()


class Gone(NamedTuple):
    """Stands in for a class that newer code no longer has."""

    name: str


class KeepsLast(Recorder):
    """Keeps the last event's value in a window and in a running value."""

    window = TumblingWindow(SECOND, Last())
    last = RunningSpec(Last())
    found = SinkSpec(Any)

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        if event.value != "only running":
            self.window.add(subject, event)
        if event.value != "only window":
            self.last.add(subject, event)

    @window.on_close
    def window_closed(self, subject: Subject, window: Window, value: Any) -> None:
        self.found.collect(subject, value)


@pytest.mark.parametrize(("value", "spec"), [("only window", "window"), ("only running", "last"), (None, "window")])
@pytest.mark.rule(17)
def test_what_windows_and_running_values_keep_is_no_dead_letter_either(
    test_run: MakeRun, value: Any, spec: str
) -> None:
    before = test_run(job(KeepsLast(), on_error="dead_letter")).add_record(event(0, Gone("a")))
    before.run()
    # the class has lost the name under which it was stored
    snapshot = before.snapshot().replace(b"test_unreadable:Gone", b"test_unreadable:G0ne")
    run = test_run(job(KeepsLast(), on_error="dead_letter"), snapshot=snapshot)
    run.add_watermark(at(50)) if value is None else run.add_record(event(0, value))
    with pytest.raises(CallbackError, match=f"StateDecodeError: state '{spec}' of key 'k'.*G0ne cannot be imported"):
        run.end_batch().run()


class Aged(Recorder):
    """Keeps an event's value under three specs whose parts live a minute."""

    one = ValueSpec(str, ttl=MINUTE)
    many = MapSpec(str, str, ttl=MINUTE)
    row = ListSpec(str, ttl=MINUTE)

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        one, many, row = self.one.state_for(subject), self.many.state_for(subject), self.row.state_for(subject)
        if event.value is None:
            assert one.value
        else:
            one.value = many[event.value] = event.value
            row.append(event.value)


def fails(stored: Any, version: int) -> Any:
    return stored["name"]


class Migrated(Aged):
    """The same with a migration that fails."""

    one = ValueSpec(str, ttl=MINUTE, version=1, migrate=fails)
    many = MapSpec(str, str, ttl=MINUTE, version=1, migrate=fails)
    row = ListSpec(str, ttl=MINUTE, version=1, migrate=fails)


@pytest.mark.rule(17)
def test_what_a_ttl_removes_is_not_migrated(test_run: MakeRun) -> None:
    run = test_run(job(Aged())).add_record(event(10, "a")).restart(Migrated).add_watermark(at(100)).end_batch()
    assert run.run().keys() == []


class Remade(KeepsLast):
    """Keeps more of the last events, with migrations that forget what there was."""

    window = TumblingWindow(SECOND, {"last": Last(), "n": Count()}, version=1, migrate=lambda *_: None)

    @window.on_close
    def window_closed(self, subject: Subject, window: Window, value: Any) -> None:
        self.found.collect(subject, value)


@pytest.mark.rule(17, 28)
def test_a_migration_of_a_window_that_gives_nothing_ends_the_run(test_run: MakeRun) -> None:
    run = test_run(job(KeepsLast(), on_error="dead_letter")).add_record(event(0, "only window")).restart(Remade)
    run.add_watermark(at(50)).end_batch()
    with pytest.raises(
        CallbackError, match=r"state 'window' of key 'k'.*cannot continue from None, which migrate= returned"
    ):
        run.run()


@pytest.mark.parametrize("on_error", ["fail", "dead_letter"])
@pytest.mark.rule(17)
def test_a_migration_that_fails_names_key_spec_and_version(test_run: MakeRun, on_error: Any) -> None:
    run = test_run(job(Aged(), on_error=on_error)).add_record(event(10, "a")).restart(Migrated).add_record(event(11))
    with pytest.raises(CallbackError, match=r"state 'one' of key 'k'.*migrate= failed for version 0") as caught:
        run.run()
    assert 'return stored["name"]' in caught.value.user_traceback


@pytest.mark.on_spark("errors of workers")
@pytest.mark.rule(17)
def test_a_migration_that_fails_for_what_a_ttl_leaves_names_it_too(test_run: MakeRun) -> None:
    class PartlyMigrated(Aged):
        many = MapSpec(str, str, ttl=MINUTE, version=1, migrate=fails)

    run = test_run(job(Aged(), on_error="dead_letter")).add_records([event(10, "a"), event(50, "b")])
    run.restart(PartlyMigrated).add_watermark(at(75)).end_batch()
    with pytest.raises(CallbackError, match=r"state 'many' of key 'k'.*migrate= failed") as caught:
        run.run()
    assert (caught.value.callback, caught.value.key) == ("many", "k")


@pytest.mark.rule(31)
def test_a_letter_shows_state_of_another_spec_that_cannot_be_read_as_it_is_stored(test_run: MakeRun) -> None:
    class FailsLater(KeepsLast):
        def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
            if event.value == "fail":
                raise ValueError("not this one")
            super().on_event(subject, event)

    before = test_run(job(FailsLater(), on_error="dead_letter")).add_record(event(0, Gone("a")))
    before.run()
    snapshot = before.snapshot().replace(b"test_unreadable:Gone", b"test_unreadable:G0ne")
    run = test_run(job(FailsLater(), on_error="dead_letter"), snapshot=snapshot).add_record(event(0, "fail"))
    (letter,) = run.run().dead_letters
    assert b"G0ne" in letter.state["last"]
