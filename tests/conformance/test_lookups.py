"""Lookups: results of a service that callbacks read while they process events (`semantics.md` 35)."""

import re
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from threading import Lock
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
from amadou_runtime.core.lookups import Lookups
from amadou_runtime.core.stopwatch import Stopwatch
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


@pytest.mark.parametrize("given", [5, None, [("customers", {})], "customers", print, {"customers"}], ids=repr)
def test_answers_of_lookups_that_are_no_mapping_are_an_error(given: Any) -> None:
    with pytest.raises(
        ValueError,
        match=r"lookups must be a mapping from names of lookups to answers, such as {'customers': {…}}, not ",
    ):
        TestRun(job(Enriched()), lookups=given)


def test_a_name_of_a_lookup_that_is_no_text_is_an_error() -> None:
    names: Any = {5: {}, "customers": {}, (1, "a"): {}}
    with pytest.raises(ValueError, match=r"the handler has no lookup \(1, 'a'\), 5 \(its lookups: customers\)"):
        TestRun(job(Enriched()), lookups=names)


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


def rows_of(keys: list[str]) -> dict[str, dict[str, Any]]:
    if "broken" in keys:
        raise OSError("the service is broken")
    return {key: {"name": "Ann", "seen": []} for key in keys}


ROW = rows_of(["c1"])["c1"]
CHANGED: list[tuple[str, Callable[[], Lookup[Any, Any]]]] = [
    ("c1", lambda: Lookup(rows_of, key=key_of)),
    ("c1", lambda: Lookup(rows_of, key=key_of, ttl=60)),
    ("broken", lambda: Lookup(rows_of, key=key_of, retries=0, on_failure=ROW)),
    ("broken", lambda: Lookup(rows_of, key=key_of, retries=0, on_failure=ROW, ttl=60)),
    ("c1", lambda: Lookup(rows_of, key=key_of, keep=True, type=dict)),
    ("broken", lambda: Lookup(rows_of, key=key_of, retries=0, on_failure=ROW, keep=True, type=dict)),
]


@pytest.mark.parametrize("batches", [1, 4])
@pytest.mark.parametrize(
    ("key", "make"), CHANGED, ids=["plain", "ttl", "default", "default with ttl", "kept", "default that is kept"]
)
def test_a_lookup_result_that_a_callback_changes_is_a_copy(
    key: str, make: Callable[[], Lookup[Any, Any]], batches: int, test_run: MakeRun
) -> None:
    class Changing(EventHandler):
        rows = make()
        out = SinkSpec(list)

        def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
            row: Any = self.rows.get(subject, event.value)
            row["seen"].append(subject.key)
            self.out.collect(subject, [row, self.rows.get(subject, event.value)])

    run = test_run(job(Changing()))
    for second, subject in enumerate("aabc"):
        run.add_record(event(second, key, subject))
        if batches > 1:
            run.end_batch()
    changed = [[{"name": "Ann", "seen": [subject]}, {"name": "Ann", "seen": []}] for subject in "aabc"]
    assert run.run().records("out") == changed
    assert ROW["seen"] == []


class Levels(EventHandler):
    """Collects the answer for an event's value."""

    levels: Lookup[Any, Any]
    out = SinkSpec(list)

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.out.collect(subject, [subject.key, self.levels.get(subject, event.value)])


def levels_of(keys: list[Any]) -> dict[Any, Any]:
    return {key: {"text": "high", "lock": [Lock()]}.get(key, 1) for key in keys}


def test_the_error_for_a_lookup_result_that_cannot_be_copied_says_so(test_run: MakeRun) -> None:
    class Plain(Levels):
        levels = Lookup(levels_of, key=key_of)

    problem = r"LookupAnswerError: the answer for the key 'lock' cannot be copied \(TypeError: cannot pickle .*lock.*\)"
    with pytest.raises(CallbackError, match=f"(?s){problem}: return a value that can be copied"):
        test_run(job(Plain())).add_record(event(1, "lock")).run()


class KeptLevels(Levels):
    levels = Lookup(levels_of, key=key_of, retries=0, keep=True, type=int)


class KeptWithDeadLetters(Levels):
    levels = Lookup(levels_of, key=key_of, retries=0, keep=True, type=int, on_failure="dead_letter")


CANNOT_FETCH = "LookupFailedError: the lookup levels cannot fetch the key"
NOT_KEPT = {
    "key": (17, "EncodeError: levels: cannot store 17 (int) as str"),
    "answer": ("text", f"{CANNOT_FETCH} 'text': EncodeError: levels: cannot store 'high' (str) as int | None"),
    "lock": ("lock", f"{CANNOT_FETCH} 'lock': EncodeError: levels: cannot store [<unlocked _thread.lock object at "),
}
on_spark = pytest.mark.on_spark("lookups")


@pytest.mark.parametrize("handler", [KeptLevels, KeptWithDeadLetters])
@pytest.mark.parametrize(
    ("key", "problem"),
    [pytest.param(*of, id=name, marks=on_spark if name == "answer" else ()) for name, of in NOT_KEPT.items()],
)
def test_only_the_event_whose_kept_lookup_key_or_result_has_another_type_becomes_a_dead_letter(
    key: Any, problem: str, handler: type[Handler], test_run: MakeRun
) -> None:
    kept = job(handler(), on_error="dead_letter")
    run = test_run(kept)
    for second, (subject, needed) in enumerate((("a", "c1"), ("b", key), ("c", "c1"), ("b", "c1"))):
        run.add_record(event(second, needed, subject))
    result = run.run()
    assert result.records("out") == [["a", 1], ["c", 1], ["b", 1]]
    (dead_letter,) = result.dead_letters
    assert dead_letter.error.startswith(problem)
    assert (dead_letter.callback, dead_letter.key) == ("on_event", "b")
    assert result.state("levels", "b") == {"c1": 1}
    again = test_run(kept, snapshot=run.snapshot(), lookups={"levels": {"c2": 2}})
    again.add_record(event(5, "c1", "b")).add_record(event(6, "c2", "b"))
    assert again.run().records("out") == [["b", 1], ["b", 2]]


@pytest.mark.parametrize(("key", "problem"), NOT_KEPT.values(), ids=NOT_KEPT)
def test_without_dead_letters_a_kept_lookup_key_or_result_of_another_type_ends_the_run_in_its_callback(
    key: Any, problem: str, test_run: MakeRun
) -> None:
    run = test_run(job(KeptLevels())).add_record(event(1, "c1", "a")).add_record(event(2, key, "b"))
    with pytest.raises(CallbackError, match=re.escape(problem)) as caught:
        run.run()
    assert (caught.value.handler, caught.value.callback, caught.value.key) == ("KeptLevels", "on_event", "b")


@pytest.mark.parametrize("default", ["none", 1.5, [1], None, 0])
def test_a_default_that_does_not_fit_the_type_of_a_kept_lookup_is_an_error_when_the_job_is_created(
    default: Any,
) -> None:
    class Kept(Levels):
        levels = Lookup(levels_of, key=key_of, keep=True, type=int, on_failure=default)

    if default is None or default == 0:
        job(Kept())
        return
    problem = re.escape(f"Kept.levels: on_failure={default!r} is kept as an answer: ")
    with pytest.raises(JobError, match=f"{problem}.*cannot store .* as int"):
        job(Kept())


def as_numbers(keys: list[str]) -> dict[int, str]:
    return {int(key): "row" for key in keys}


async def as_numbers_async(keys: list[str]) -> dict[int, str]:
    return as_numbers(keys)


def with_others(keys: list[str]) -> dict[str, str]:
    return {"c8": "other", **dict.fromkeys(keys, "row"), "c9": "other"}


@pytest.mark.parametrize("function", [as_numbers, as_numbers_async])
def test_a_service_that_answers_for_keys_of_another_type_is_an_error_that_names_both(
    function: Callable[[list[str]], Any], test_run: MakeRun
) -> None:
    class OtherKeys(Levels):
        levels = Lookup(function, key=key_of)

    asked = r"the function was asked for '17' \(str\), and answered for 17 \(int\): return the keys as they were passed"
    with pytest.raises(AmadouError, match=f"cannot fetch the key '17': LookupAnswerError: {asked}"):
        test_run(job(OtherKeys())).add_record(event(1, "17")).run()


def test_a_service_may_answer_for_more_keys_than_it_was_asked_for(test_run: MakeRun) -> None:
    class MoreKeys(Levels):
        levels = Lookup(with_others, key=key_of)

    assert test_run(job(MoreKeys())).add_record(event(1, "c1")).run().records("out") == [["k", "row"]]


@pytest.mark.parametrize("late_events", ["drop", pytest.param("divert", marks=on_spark)])
def test_the_lookup_keys_of_late_events_that_the_job_takes_out_are_not_fetched(
    late_events: str, test_run: MakeRun
) -> None:
    run = test_run(job(Enriched(), late_events=late_events)).add_record(event(10, "c1")).end_batch()
    result = run.add_record(event(1, "broken")).add_record(event(10, "c2")).run()
    assert result.records("out") == [["k", "Ann"], ["k", "Bob"]]
    assert result.counters["customers.fetched"] == 2
    assert [late.value for late in result.late] == ["broken"]


def test_the_lookup_keys_of_late_events_that_are_delivered_are_fetched(test_run: MakeRun) -> None:
    run = test_run(job(Enriched(), late_events="deliver")).add_record(event(10, "c1")).end_batch()
    assert run.add_record(event(1, "c2")).run().records("out") == [["k", "Ann"], ["k", "Bob"]]
    with pytest.raises(AmadouError, match="cannot fetch the key 'broken': OSError: the service is broken"):
        run.add_record(event(2, "broken")).run()


class ReadsInTimer(Levels):
    """Reads the answer for the key "c1" in a timer."""

    levels = Lookup(levels_of, key=key_of)

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        subject.set_timer(event.timestamp + timedelta(seconds=5))

    def on_timer_expired(self, subject: Subject, timestamp: datetime) -> None:
        self.out.collect(subject, [subject.key, self.levels.get(subject, "c1")])


def test_in_a_test_run_a_timer_reads_the_lookup_results_that_events_of_its_own_key_need(test_run: MakeRun) -> None:
    run = test_run(job(ReadsInTimer())).add_record(event(1, None, "a")).add_watermark(at(20))
    run.add_record(event(21, "c1", "other")).add_record(event(22, "c1", "a"))
    assert run.run().records("out") == [["a", 1]]


@pytest.mark.parametrize(
    ("needed", "why"),
    [
        pytest.param("c1", "no event of 'a' in the batch needs it, and a different worker may process", marks=on_spark),
        ("c2", "only the keys that key= returns for the events of the batch are fetched"),
    ],
    ids=["c1", "c2"],
)
def test_in_a_test_run_a_timer_cannot_read_a_lookup_result_that_only_events_of_other_keys_need(
    needed: str, why: str, test_run: MakeRun
) -> None:
    run = test_run(job(ReadsInTimer())).add_record(event(1, None, "a")).add_watermark(at(20))
    run.add_record(event(21, needed, "other")).add_record(event(22, None, "a"))
    with pytest.raises(CallbackError, match=f"LookupKeyError: the lookup levels has no answer for the key 'c1': {why}"):
        run.run()


def test_a_clock_that_is_set_back_does_not_extend_the_time_to_live_of_lookup_results(tmp_path: Path) -> None:
    counted = CountedFetch(tmp_path)

    class Cached(Enriched):
        customers = Lookup(counted, key=key_of, ttl=timedelta(minutes=5))

    lookups = Lookups(job(Cached()), Stopwatch())
    for minute, calls in ((10, 1), (14.9, 1), (2, 2), (6.9, 2), (7, 3), (12, 4)):
        lookups.now = int(minute * 60_000_000)
        lookups.begin()
        lookups.fetch({"customers": {"c1": None}})
        assert len(counted.calls) == calls, minute


def answer_of(key: str) -> Any:
    return None if key == "nobody" else OSError("unavailable") if key == "c9" else Customer(key.upper())


def test_a_test_run_accepts_a_function_of_the_key_in_place_of_the_service(test_run: MakeRun) -> None:
    run = test_run(job(WithDeadLetters(), on_error="dead_letter"), lookups={"customers": answer_of})
    result = run.add_records([event(second, key) for second, key in enumerate(("c1", "broken", "nobody", "c9"))]).run()
    assert result.records("out") == [["k", "C1"], ["k", "BROKEN"], ["k", None]]
    (dead_letter,) = result.dead_letters
    assert dead_letter.error.endswith("the lookup customers cannot fetch the key 'c9': OSError: unavailable")


@pytest.mark.parametrize("answers", [None, 17, "c1", ["c1"], [("c1", Customer("Ann"))]])
def test_a_test_run_accepts_only_a_mapping_or_a_function_in_place_of_the_service(answers: Any) -> None:
    problem = re.escape(
        "lookups['customers']: the answers must be a mapping from keys to answers, or a function that "
        f"returns the answer for a key, not {answers!r}"
    )
    with pytest.raises(ValueError, match=problem):
        TestRun(job(Enriched()), lookups={"customers": answers})
