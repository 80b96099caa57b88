"""State that new code cannot read ends the run with each setting of `on_error`."""

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


class FailingCodec(Reversed):
    """Codec of a later release, which cannot read stored texts."""

    def decode(self, encoded: str) -> str:
        raise KeyError(encoded)


class StoresTexts(Recorder):
    """An event without a value stores a text in all specs; another event reads the spec that its value names."""

    text = ValueSpec(str, codec=Reversed())
    many = MapSpec(str, str, codec=Reversed())
    keys = MapSpec(str, int, key_codec=Reversed())
    row = ListSpec(str, codec=Reversed())
    window = TumblingWindow(SECOND)
    results = SinkSpec(Any)

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
                self.results.collect(subject, text.value)
            except Exception as error:
                raise ValueError("no text") from error
        elif event.value == "fail":
            try:
                self.results.collect(subject, text.value)
            except Exception:
                int("no text")  # another error while the first one is handled
        else:
            self.results.collect(subject, self.read(subject, event.value))

    def on_timer_expired(self, subject: Subject, timestamp: datetime) -> None:
        self.results.collect(subject, self.text.state_for(subject).value)

    @window.on_close
    def window_closed(self, subject: Subject, window: Window, count: int) -> None:
        self.results.collect(subject, self.text.state_for(subject).value)

    def read(self, subject: Subject, what: str) -> Any:
        return {
            "text": lambda: self.text.state_for(subject).value,
            "many": lambda: dict(self.many.state_for(subject)),
            "keys": lambda: list(self.keys.state_for(subject)),
            "row": lambda: list(self.row.state_for(subject)),
        }[what]()


class CannotRead(StoresTexts):
    text = ValueSpec(str, codec=FailingCodec())
    many = MapSpec(str, str, codec=FailingCodec())
    keys = MapSpec(str, int, key_codec=FailingCodec())
    row = ListSpec(str, codec=FailingCodec())


@pytest.mark.parametrize(
    ("what", "spec"),
    [
        ("text", "text"),
        ("wrap", "text"),
        ("fail", "text"),
        ("many", "many"),
        ("keys", "keys"),
        ("row", "row"),
        ("closes", "text"),
    ],
)
@pytest.mark.rule(17)
def test_unreadable_state_ends_the_run_even_with_dead_letters(test_run: MakeRun, what: str, spec: str) -> None:
    before = test_run(job(StoresTexts(), on_error="dead_letter")).add_record(event(0))
    before.run()
    run = test_run(job(CannotRead(), on_error="dead_letter"), snapshot=before.snapshot())
    if what == "closes":
        run.add_watermark(at(50)).end_batch()
    else:
        run.add_record(event(2, what))
    with pytest.raises(CallbackError, match=f"StateDecodeError: state '{spec}' of key 'k'.*The state is unchanged"):
        run.run()
    back = test_run(job(StoresTexts(), on_error="dead_letter"), snapshot=before.snapshot()).add_watermark(at(50))
    assert back.add_record(event(50, "row")).run().records("results") == ["abc", ["abc"]]


@pytest.mark.rule(17)
def test_a_timer_that_reads_unreadable_state_ends_the_run_even_with_dead_letters(test_run: MakeRun) -> None:
    before = test_run(job(StoresTexts(), on_error="dead_letter")).add_record(event(0)).add_record(event(0, "text"))
    before.run()
    run = test_run(job(CannotRead(), on_error="dead_letter"), snapshot=before.snapshot())
    with pytest.raises(CallbackError, match="StateDecodeError: state 'text' of key 'k'"):
        run.set_timer("k", at(100)).add_watermark(at(200)).run()


class Removed(NamedTuple):
    """A class that newer code does not have."""

    name: str


class StoresLast(Recorder):
    """Stores the last event's value in a window and in a running value."""

    window = TumblingWindow(SECOND, Last())
    last = RunningSpec(Last())
    results = SinkSpec(Any)

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        if event.value != "only running":
            self.window.add(subject, event)
        if event.value != "only window":
            self.last.add(subject, event)

    @window.on_close
    def window_closed(self, subject: Subject, window: Window, value: Any) -> None:
        self.results.collect(subject, value)


@pytest.mark.parametrize(("value", "spec"), [("only window", "window"), ("only running", "last"), (None, "window")])
@pytest.mark.rule(17)
def test_unreadable_windows_and_running_values_end_the_run_even_with_dead_letters(
    test_run: MakeRun, value: Any, spec: str
) -> None:
    before = test_run(job(StoresLast(), on_error="dead_letter")).add_record(event(0, Removed("a")))
    before.run()
    # the stored name of the class no longer exists
    snapshot = before.snapshot().replace(b"test_unreadable_state:Removed", b"test_unreadable_state:Rem0ved")
    run = test_run(job(StoresLast(), on_error="dead_letter"), snapshot=snapshot)
    run.add_watermark(at(50)) if value is None else run.add_record(event(0, value))
    with pytest.raises(CallbackError, match=f"StateDecodeError: state '{spec}' of key 'k'.*Rem0ved is not known"):
        run.end_batch().run()


class Expiring(Recorder):
    """Stores an event's value in three specs whose state expires after a minute."""

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


class Migrated(Expiring):
    """Has the same state with a failing migration."""

    one = ValueSpec(str, ttl=MINUTE, version=1, migrate=fails)
    many = MapSpec(str, str, ttl=MINUTE, version=1, migrate=fails)
    row = ListSpec(str, ttl=MINUTE, version=1, migrate=fails)


@pytest.mark.rule(17)
def test_expired_state_is_not_migrated(test_run: MakeRun) -> None:
    run = test_run(job(Expiring())).add_record(event(10, "a")).restart(Migrated).add_watermark(at(100)).end_batch()
    assert run.run().keys() == []


class ChangedAggregate(StoresLast):
    """Has another aggregate in the window, with a migration that returns `None`."""

    window = TumblingWindow(SECOND, {"last": Last(), "n": Count()}, version=1, migrate=lambda *_: None)

    @window.on_close
    def window_closed(self, subject: Subject, window: Window, value: Any) -> None:
        self.results.collect(subject, value)


@pytest.mark.rule(17, 28)
def test_a_window_migration_that_returns_none_ends_the_run(test_run: MakeRun) -> None:
    run = (
        test_run(job(StoresLast(), on_error="dead_letter"))
        .add_record(event(0, "only window"))
        .restart(ChangedAggregate)
    )
    run.add_watermark(at(50)).end_batch()
    with pytest.raises(
        CallbackError, match=r"state 'window' of key 'k'.*cannot continue from None, which migrate= returned"
    ):
        run.run()


@pytest.mark.parametrize("on_error", ["fail", "dead_letter"])
@pytest.mark.rule(17)
def test_the_error_of_a_migration_names_key_spec_and_version(test_run: MakeRun, on_error: Any) -> None:
    run = (
        test_run(job(Expiring(), on_error=on_error)).add_record(event(10, "a")).restart(Migrated).add_record(event(11))
    )
    with pytest.raises(CallbackError, match=r"state 'one' of key 'k'.*migrate= failed for version 0") as caught:
        run.run()
    assert 'return stored["name"]' in caught.value.user_traceback


@pytest.mark.rule(17)
def test_the_error_of_a_migration_while_state_expires_names_key_and_spec(test_run: MakeRun) -> None:
    class PartlyMigrated(Expiring):
        many = MapSpec(str, str, ttl=MINUTE, version=1, migrate=fails)

    run = test_run(job(Expiring(), on_error="dead_letter")).add_records([event(10, "a"), event(50, "b")])
    run.restart(PartlyMigrated).add_watermark(at(75)).end_batch()
    with pytest.raises(CallbackError, match=r"state 'many' of key 'k'.*migrate= failed") as caught:
        run.run()
    assert (caught.value.callback, caught.value.key) == ("many", "k")


@pytest.mark.rule(31)
def test_a_dead_letter_shows_unreadable_state_of_another_spec_as_stored(test_run: MakeRun) -> None:
    class FailsLater(StoresLast):
        def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
            if event.value == "fail":
                raise ValueError("not this one")
            super().on_event(subject, event)

    before = test_run(job(FailsLater(), on_error="dead_letter")).add_record(event(0, Removed("a")))
    before.run()
    snapshot = before.snapshot().replace(b"test_unreadable_state:Removed", b"test_unreadable_state:Rem0ved")
    run = test_run(job(FailsLater(), on_error="dead_letter"), snapshot=snapshot).add_record(event(0, "fail"))
    (dead_letter,) = run.run().dead_letters
    assert b"Rem0ved" in dead_letter.state["last"]
