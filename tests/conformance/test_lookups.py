"""Lookups: results of a service that callbacks read while they process events (`semantics.md` 35)."""

from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import attrs
import pytest
from tests.conformance.batch_reports import BatchReports
from tests.conformance.conftest import MakeRun
from tests.conformance.handlers import EventHandler, at, event, job

from amadou import Handler, Job, KeyedEvent, Lookup, MemorySink, MemorySource, SinkSpec, Subject
from amadou.errors import AmadouError, CallbackError, JobError
from amadou_plugins.windows import TumblingWindow, windowed
from amadou_runtime import TestRun, run
from amadou_runtime.core.vectorized import vectorized_component

pytestmark = pytest.mark.rule(35)


@attrs.frozen
class Customer:
    name: str
    level: int = 0


CUSTOMERS = {"c1": Customer("Ann"), "c2": Customer("Bob", 2)}


def fetch(keys: list[str]) -> dict[str, Customer]:
    if "broken" in keys:
        raise OSError("the service is broken")
    return {key: CUSTOMERS[key] for key in keys if key in CUSTOMERS}


async def fetch_async(keys: list[str]) -> dict[str, Customer]:
    return fetch(keys)


def key_of(event: KeyedEvent[Any]) -> Any:
    if event.value == "invalid":
        raise KeyError("invalid")
    return event.value


class Enriched(EventHandler):
    """Collects the customers that events name."""

    customers = Lookup(fetch, key=key_of, batch_size=2, retries=0)
    out = SinkSpec(list)

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        wanted = event.value if isinstance(event.value, list) else [event.value]
        names = []
        for each in wanted:
            customer = None if each is None else self.customers.get(subject, each)
            names.append(None if customer is None else customer.name)
        self.out.collect(subject, [subject.key, *names])


class Asynchronous(Enriched):
    customers = Lookup(fetch_async, key=key_of)


class ByMethod(Enriched):
    """Fetches customers with a resource that `open` has opened."""

    customers: Lookup[str, Customer] = Lookup(key=key_of)

    def open(self) -> None:
        self.rows = dict(CUSTOMERS)

    @customers.fetched_by
    def rows_of(self, keys: list[str]) -> dict[str, Customer]:
        return {key: self.rows[key] for key in keys if key in self.rows}


class Stored(Enriched):
    """Stores customers, and reads them in timers."""

    customers = Lookup(fetch, key=key_of, retries=0, keep=True, type=Customer, ttl=timedelta(seconds=100))

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        super().on_event(subject, event)
        subject.set_timer(event.timestamp + timedelta(seconds=10), str(event.value))
        if event.timestamp == at(66):
            raise ValueError("after the result is stored")

    def on_timer_expired(self, subject: Subject, timestamp: datetime) -> None:
        customer = self.customers.get(subject, subject.timer_tag)
        self.out.collect(subject, ["timer", None if customer is None else customer.name])


class WithDefault(Enriched):
    customers = Lookup(fetch, key=key_of, batch_size=1, retries=0, on_failure=Customer("unknown"))


class WithDeadLetters(Enriched):
    customers = Lookup(fetch, key=key_of, batch_size=1, retries=0, on_failure="dead_letter")


@pytest.mark.parametrize("handler", [Enriched, Asynchronous, ByMethod])
def test_callbacks_read_lookup_results_for_the_events_of_their_batch(handler: type[Handler], test_run: MakeRun) -> None:
    run = test_run(job(handler()))
    for second, value in enumerate(["c1", "c2", "nobody", None, ["c1", "c2"], "c1"]):
        run.add_record(event(second, value))
    run.add_watermark().add_record(event(9, "c2", key="other"))
    assert run.run().records("out") == [
        ["k", "Ann"],
        ["k", "Bob"],
        ["k", None],
        ["k", None],
        ["k", "Ann", "Bob"],
        ["k", "Ann"],
        ["other", "Bob"],
    ]


def test_a_test_run_accepts_a_mapping_in_place_of_the_service(test_run: MakeRun) -> None:
    answers = {"c1": Customer("Zoe"), "c9": OSError("unavailable")}
    run = test_run(job(WithDeadLetters(), on_error="dead_letter"), lookups={"customers": answers})
    result = run.add_record(event(1, "c1")).add_record(event(2, "broken")).add_record(event(3, "c9")).run()
    assert result.records("out") == [["k", "Zoe"], ["k", None]]
    (dead_letter,) = result.dead_letters
    assert (
        dead_letter.error == "LookupFailedError: the lookup customers cannot fetch the key 'c9': OSError: unavailable"
    )
    with pytest.raises(ValueError, match=r"the handler has no lookup orders \(its lookups: customers\)"):
        test_run(job(Enriched()), lookups={"orders": {}})


def test_reading_a_lookup_key_that_no_event_requested_is_an_error(test_run: MakeRun) -> None:
    class ReadsOtherKey(Enriched):
        def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
            self.customers.get(subject, "c2")

    with pytest.raises(CallbackError, match="no answer for the key 'c2': only the keys that key= returns"):
        test_run(job(ReadsOtherKey())).add_record(event(1, "c1")).run()


def test_an_event_whose_lookup_key_fails_is_a_dead_letter_and_other_events_are_processed(test_run: MakeRun) -> None:
    failing = attrs.evolve(
        job(Enriched()), on_error="dead_letter", sinks={"out": MemorySink(), "dead_letters": MemorySink()}
    )
    result = test_run(failing).add_record(event(1, "invalid")).add_record(event(2, "c1")).run()
    assert result.records("out") == [["k", "Ann"]]
    (dead_letter,) = result.dead_letters
    assert "the lookup's function key= failed on an event of the batch (KeyError: 'invalid')" in dead_letter.error


def test_a_failing_service_ends_the_run(test_run: MakeRun) -> None:
    run = test_run(job(Enriched())).add_record(event(1, "c1")).add_record(event(2, "broken"))
    with pytest.raises(
        AmadouError, match=r"the lookup customers cannot fetch the key .*: OSError: the service is broken"
    ):
        run.run()


@pytest.mark.on_spark("lookups")
def test_only_events_that_need_the_failing_key_become_dead_letters(test_run: MakeRun) -> None:
    result = (
        test_run(job(WithDeadLetters(), on_error="dead_letter"))
        .add_record(event(1, "c1"))
        .add_record(event(2, "broken"))
        .add_record(event(3, "c2"))
        .run()
    )
    assert result.records("out") == [["k", "Ann"], ["k", "Bob"]]
    (dead_letter,) = result.dead_letters
    assert dead_letter.error.endswith("cannot fetch the key 'broken': OSError: the service is broken")


@pytest.mark.on_spark("lookups")
def test_a_default_replaces_lookup_results_that_cannot_be_fetched(test_run: MakeRun) -> None:
    result = test_run(job(WithDefault())).add_record(event(1, "broken")).add_record(event(2, "c1")).run()
    assert result.records("out") == [["k", "unknown"], ["k", "Ann"]]


@pytest.mark.on_spark("lookups")
def test_stored_lookup_results_are_read_without_the_service_until_they_expire(
    test_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    storing = job(Stored(), on_error="dead_letter")
    run = test_run(storing, lookups={"customers": CUSTOMERS})
    run.add_record(event(1, "c1")).add_record(event(2, "nobody")).add_watermark(at(50))
    run.add_record(event(66, "c2", key="other")).add_watermark(at(66))
    result = run.run()
    assert result.records("out") == [["k", "Ann"], ["k", None], ["timer", "Ann"], ["timer", None]]
    assert result.state("customers", "k") == {"c1": Customer("Ann"), "nobody": None}
    assert result.state("customers", "other") == {"c2": Customer("Bob", 2)}  # the callback failed afterwards
    (dead_letter,) = result.dead_letters
    assert dead_letter.state == {"customers": {"c2": Customer("Bob", 2)}}
    again = test_run(storing, lookups={"customers": {}}, snapshot=run.snapshot())
    again.add_record(event(67, "c1")).add_watermark(at(150))  # the time to live is over
    again.add_record(event(151, "c1"))
    assert again.run().records("out")[:2] == [["k", "Ann"], ["timer", "Ann"]]
    assert again.run().records("out")[-1] == ["k", None]


class CountedFetch:
    """Fetches customers, and writes the keys of each call to a file."""

    def __init__(self, directory: Path) -> None:
        self.file = directory / "calls"

    def __call__(self, keys: list[str]) -> dict[str, Customer]:
        with self.file.open("a") as file:
            file.write(f"{' '.join(sorted(keys))}\n")
        return fetch(keys)

    @property
    def calls(self) -> list[str]:
        return self.file.read_text().splitlines()


@pytest.mark.on_spark("lookups")
def test_a_batch_fetches_each_lookup_key_once_in_a_few_calls(engine: str, tmp_path: Path) -> None:
    counted, reports = CountedFetch(tmp_path), BatchReports()

    class Many(Enriched):
        customers = Lookup(counted, key=key_of, batch_size=50)

    records = [event(number, f"c{number % 100}", key=f"k{number}") for number in range(1000)]
    many = Job("many", Many(), {"in": MemorySource(records)}, {"out": MemorySink()}, key_groups=16, plugins=[reports])
    settings = {"conf": {"spark.sql.shuffle.partitions": "1"}} if engine == "spark" else {}
    run(many, engine=engine, **settings)  # type: ignore[arg-type]
    keys = Counter(key for call in counted.calls for key in call.split())
    ranges = 1 if engine == "embedded" else 8  # each key range fetches its own keys
    assert set(keys) == {f"c{number}" for number in range(100)}
    assert max(keys.values()) <= ranges
    assert max(len(call.split()) for call in counted.calls) <= 50
    assert len(counted.calls) <= 2 * ranges
    counts = reports.batches[0].counts.counters
    assert counts["customers.fetched"] == sum(keys.values())
    assert reports.batches[0].callback_calls["customers"] == len(counted.calls)
    assert reports.batches[0].callback_seconds["customers"] > 0


def test_a_worker_caches_lookup_results_for_their_time_to_live(tmp_path: Path) -> None:
    counted = CountedFetch(tmp_path)

    class Cached(Enriched):
        customers = Lookup(counted, key=key_of, ttl=60, cache_size=1, batch_size=10)

    run = TestRun(job(Cached()))
    for second, customer in enumerate(("c1", "c1", "c2", "c2", "c1")):
        run.add_record(event(second, customer)).run()
    assert counted.calls == ["c1", "c2", "c1"]
    for seconds, calls in ((59, 3), (1, 4)):
        run.advance_processing_time(timedelta(seconds=seconds))
        result = run.add_record(event(9, "c1")).run()
        assert len(counted.calls) == calls
    assert (result.counters["customers.fetched"], result.counters["customers.cached"]) == (4, 3)


def test_the_service_is_not_called_for_stored_lookup_results(tmp_path: Path) -> None:
    counted = CountedFetch(tmp_path)

    class Storing(Enriched):
        customers = Lookup(counted, key=key_of, keep=True, type=Customer)

    run = TestRun(job(Storing()))
    for second, key in enumerate(("k", "k", "other")):
        run.add_record(event(second, "c1", key=key)).run()
    assert counted.calls == ["c1", "c1"]  # once for each subject


def test_a_handler_with_a_lookup_is_not_vectorised() -> None:
    handler: Any = windowed(window=TumblingWindow(timedelta(minutes=1)), key="key", timestamp="timestamp", port="out")
    sums = Job("sums", handler, {"in": MemorySource()}, {"out": MemorySink()})
    assert vectorized_component(sums) is not None
    handler.customers = Lookup(fetch, key=key_of, name="customers")
    assert vectorized_component(attrs.evolve(sums)) is None


def test_invalid_lookups_are_errors_when_the_job_is_created() -> None:
    class Without(Enriched):
        customers: Lookup[str, Customer] = Lookup(key=key_of)

    with pytest.raises(JobError, match=r"Without\.customers: no function fetches the answers"):
        job(Without())
    with pytest.raises(
        JobError, match=r'WithDeadLetters\.customers has on_failure="dead_letter": set on_error="dead_letter"'
    ):
        job(WithDeadLetters())
