"""The errors of a job with several stages name the stage, and show the value of a port as the record."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from tests.conformance.conftest import MakeRun
from tests.top_pages import MINUTE, PageSum, Top, Views, top_pages, view

from amadou import Handler, Job, KeyedEvent, Lookup, MemorySink, MemorySource, Subject
from amadou.errors import AmadouError, CallbackError, TooManyDeadLettersError
from amadou.plugins import FailedBatch, hookimpl
from amadou_runtime import TestRun, run

pytestmark = pytest.mark.several_stages


def failing(keys: list[str]) -> Mapping[str, str]:
    raise OSError("no connection")


class FailingOpen(Top):
    def open(self) -> None:
        raise OSError("no connection")


class FailingLookup(Top):
    names: Lookup[str, str] = Lookup(failing, key=lambda event: event.value.page, retries=0)

    def on_event(self, subject: Subject, event: KeyedEvent[PageSum]) -> None:
        self.names.get(subject, event.value.page)


class ReturnsLateEvents(Top):
    """Returns events that are late."""

    def key_event(self, record: PageSum) -> KeyedEvent[PageSum]:
        return KeyedEvent(record.page, record.minute - 60 * MINUTE, record)

    def on_event(self, subject: Subject, event: KeyedEvent[PageSum]) -> None: ...


class ReturnsTuple(Top):
    """Returns a tuple in place of an event."""

    def key_event(self, record: PageSum) -> Any:
        return (record.page, record.minute, record)


class ReturnsTextAsTime(Top):
    """Returns an event with a text as its time."""

    def key_event(self, record: PageSum) -> KeyedEvent[PageSum]:
        return KeyedEvent(record.page, "noon", record)  # type: ignore[arg-type]


def failure(test_run: Callable[[Job], TestRun], second: int, page: str = "/a", top: Handler | None = None) -> str:
    """Return the error of a test run with a view."""
    job = top_pages(MemorySource(()), handlers=(Views(), top or Top()))
    with test_run(job) as script, pytest.raises(AmadouError) as caught:
        script.add_record(view(page, second)).add_record(view("/end", 400)).add_watermark().run()
    return str(caught.value)


@pytest.mark.parametrize(
    ("second", "page", "parts"),
    [
        (-5, "/a", ["Views.on_event failed", "stage     views", "source    clicks"]),
        (
            5,
            "/bad",
            [
                "Top.key_event failed: ValueError: the page /bad is bad",
                "stage     top",
                "source    sums",
                "record    PageSum(page='/bad', minute=",
            ],
        ),
        pytest.param(
            5,
            "/odd",
            ["Top.on_event failed", "stage     top", "value=PageSum(page='/odd'"],
            marks=pytest.mark.on_spark("errors of workers"),
        ),
        (5, "/late", ["Top.on_timer_expired failed", "stage     top", "record    timer 2025-01-01T00:02:00"]),
    ],
)
def test_the_error_of_a_callback_names_its_stage(second: int, page: str, parts: list[str], test_run: MakeRun) -> None:
    error = failure(test_run, second, page)
    assert [part for part in parts if part not in error] == [], error


def test_the_error_of_open_names_its_stage(test_run: MakeRun) -> None:
    error = failure(test_run, 5, top=FailingOpen())
    assert "FailingOpen.open failed: OSError: no connection" in error
    assert "stage     top" in error


def test_the_error_of_a_lookup_names_its_stage(test_run: MakeRun) -> None:
    assert "stage top: the lookup names cannot fetch the key '/a'" in failure(test_run, 5, top=FailingLookup())


@pytest.mark.parametrize(
    ("top", "part"),
    [
        (ReturnsTuple(), "not the plain tuple ('/a', datetime"),
        (ReturnsTextAsTime(), "the timestamp of KeyedEvent(key='/a', timestamp='noon', value=PageSum(page='/a', "),
    ],
)
def test_the_error_of_an_unusable_event_shows_the_event_and_the_value(top: Top, part: str) -> None:
    error = failure(TestRun, 5, top=top)
    assert part in error
    assert "record    PageSum(page='/a', " in error


def test_the_warning_about_dropped_events_names_its_stage(caplog: pytest.LogCaptureFixture) -> None:
    views = [view("/a", second) for second in (1, 130, 250)]
    run(
        top_pages(MemorySource(views), handlers=(Views(), ReturnsLateEvents()), late_events="drop"),
        engine="embedded",
        flush=True,
    )
    assert "job top-pages.top: 1 of 3 events (33.3 %) were dropped" in caplog.text


def test_the_report_of_a_failed_batch_names_its_stage() -> None:
    failed: list[FailedBatch] = []

    class Plugin:
        @hookimpl
        def amadou_batch_failed(self, batch: FailedBatch) -> None:
            failed.append(batch)

    with pytest.raises(CallbackError):
        run(top_pages(MemorySource([view("/bad", 1), view("/a", 130)]), plugins=[Plugin()]), engine="embedded")
    assert [batch.error for batch in failed] == ["stage top: Top.key_event failed: ValueError: the page /bad is bad"]


def test_the_error_about_too_many_dead_letters_names_its_stage(test_run: MakeRun) -> None:
    job = top_pages(MemorySource(()), dead_letters=MemorySink(), on_error="dead_letter", max_dead_letters=0)
    with (
        test_run(job) as script,
        pytest.raises(TooManyDeadLettersError, match="stage top: dead letters: 1,"),
    ):
        script.add_record(view("/bad", 1)).add_record(view("/end", 400)).add_watermark().run()


class RefusesPages(Top):
    """Fails on one of the pages that it reads from a port."""

    def key_event(self, record: PageSum) -> Any:
        if record.page == "/bad":
            raise ValueError("bad page")
        return super().key_event(record)


def test_a_record_of_a_port_on_which_key_event_fails_is_a_dead_letter(test_run: MakeRun) -> None:
    handlers = (Views(), RefusesPages())
    run = test_run(top_pages(MemorySource(()), handlers=handlers, dead_letters=MemorySink(), on_error="dead_letter"))
    for page in ("/a", "/bad", "/b"):
        run.add_record(view(page, 0))
    result = run.add_record(view("/end", 400)).add_watermark().run()
    assert [(letter.callback, letter.error) for letter in result.dead_letters] == [
        ("key_event", "ValueError: bad page")
    ]
