"""One error lists the problems that sources and sinks find before a run."""

from typing import Any

import pytest
from tests.runtime.test_several_sinks import Numbers

from amadou import Job, MemorySink, MemorySource
from amadou.errors import AmadouError, JobError, SinkError, SourceError
from amadou.plugins import Sink
from amadou_runtime import run
from amadou_runtime.jobs.connectors import check_connectors


class BadSink(MemorySink):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def check(self, port: str, type_: Any) -> None:
        raise SinkError(f"there is no table {self.name}")


class BadSource(MemorySource):
    def check(self) -> None:
        raise SourceError("there is no topic views")


def job_with(*sinks: Sink, source: MemorySource | None = None) -> Job:
    return Job("numbers", Numbers(), {"in": source or MemorySource([1])}, {"seen": list(sinks)})


def fails(*sinks: Sink, source: MemorySource | None = None) -> AmadouError:
    with pytest.raises(AmadouError) as caught:
        run(job_with(*sinks, source=source), engine="embedded")
    return caught.value


def test_the_error_of_the_only_sink_that_fails_its_check_is_raised() -> None:
    error = fails(MemorySink(), BadSink("a"))
    assert (type(error), str(error)) == (SinkError, "there is no table a")


def test_one_error_lists_the_problems_of_several_sinks() -> None:
    error = fails(BadSink("a"), MemorySink(), BadSink("b"))
    assert (type(error), str(error)) == (SinkError, "there is no table a\nthere is no table b")


def test_one_error_lists_the_problems_of_sources_and_sinks() -> None:
    error = fails(BadSink("a"), source=BadSource())
    assert isinstance(error, JobError)
    assert error.problems == ("there is no topic views", "there is no table a")


def test_checks_end_after_the_first_error_if_it_took_long() -> None:
    with pytest.raises(SinkError, match=r"^there is no table a$"):
        check_connectors(job_with(BadSink("a"), BadSink("b")), patience=0.0)
