"""Errors that only Spark has: of sinks in its driver, and of values that cannot travel between processes."""

from collections.abc import Sequence
from typing import Any

import pytest
from tests.conformance.handlers import event

from amadou import Handler, Job, KeyedEvent, MemorySink, MemorySource, SinkSpec, Subject
from amadou.errors import AmadouError, RunError
from amadou.plugins import SinkBatch
from amadou_runtime import TestRun, start

pytestmark = pytest.mark.spark


class Echo(Handler):
    texts = SinkSpec(str)

    def key_event(self, record: KeyedEvent[Any]) -> KeyedEvent[Any]:
        return record

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.texts.collect(subject, event.value)


@pytest.mark.parametrize("error", [SystemExit(0), SystemExit("no"), KeyboardInterrupt()], ids=repr)
def test_a_sink_that_wants_to_end_the_program_ends_the_run(error: BaseException, spark: Any) -> None:
    class Ending(MemorySink):
        def commit(self, batch: SinkBatch, parts: Sequence[Any]) -> None:
            raise error

    job = Job("echo", Echo(), {"events": MemorySource([event(0, "text")])}, {"texts": Ending()})
    with pytest.raises(RunError, match=f"^batch 0 of 'echo' failed: {type(error).__name__}: "):
        start(job, spark).await_termination(30)


def test_an_output_that_cannot_travel_ends_the_run_with_its_reason(spark: Any) -> None:
    job = Job("echo", Echo(), {"events": MemorySource()}, {"texts": MemorySink()})
    run = TestRun(job, engine="spark", spark=spark).add_event(event(0, "\ud800"))
    with pytest.raises(AmadouError, match="surrogates not allowed"):
        run.run()
    run.close()
