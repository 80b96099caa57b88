"""What only Spark finds: values that must travel between processes."""

from typing import Any

import pytest
from tests.conformance.handlers import event

from amadou import Handler, Job, KeyedEvent, MemorySink, MemorySource, SinkSpec, Subject
from amadou.errors import AmadouError
from amadou_runtime import TestRun

pytestmark = pytest.mark.spark


class Echo(Handler):
    texts = SinkSpec(str)

    def key_event(self, record: KeyedEvent[Any]) -> KeyedEvent[Any]:
        return record

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.texts.collect(subject, "\ud800")


def test_an_output_that_cannot_travel_ends_the_run_with_its_reason(spark: Any) -> None:
    job = Job("echo", Echo(), {"events": MemorySource()}, {"texts": MemorySink()})
    run = TestRun(job, engine="spark", spark=spark).add_event(event(0))
    with pytest.raises(AmadouError, match="surrogates not allowed"):
        run.run()
    run.close()
