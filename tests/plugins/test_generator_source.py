import io
import math
import pickle
import random
from datetime import datetime, timezone
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from amadou import Handler, Job, KeyedEvent, MemorySink, Param, SinkSpec, Subject, ValueSpec
from amadou.errors import RunError, SourceError
from amadou.spark_versions import spark_version
from amadou_plugins.connectors import GeneratorSource
from amadou_runtime import run, start
from amadou_runtime.command.describe import describe

START = datetime(2025, 1, 1, tzinfo=timezone.utc)


def number_and_draws(number: int, random: random.Random) -> tuple[int, float, float]:
    return number, random.random(), random.gauss()


def failing(number: int, random: random.Random) -> int:
    return 1 // (3 - number)


class Copying(Handler):
    """Collects each record with the number of earlier records of its key."""

    copies = SinkSpec(tuple)
    count = ValueSpec(int, default=0)

    def key_event(self, record: tuple[int, float, float]) -> KeyedEvent[Any]:
        return KeyedEvent("a", START, record)

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        count = self.count.state_for(subject)
        self.copies.collect(subject, (count.value, *event.value))
        count.value += 1


def job(source: GeneratorSource) -> tuple[Job, MemorySink]:
    sink = MemorySink()
    return Job("copying", Copying(), {"in": source}, {"copies": sink}), sink


def expected(count: int, seed: int = 0) -> list[Any]:
    source = GeneratorSource(number_and_draws, count=count, seed=seed)
    return [(number, *record) for number, record in enumerate(source.records())]


def test_generator_source_makes_each_record_from_its_number() -> None:
    records = list(GeneratorSource(lambda number, random: (number, random.randint(0, 9)), count=100).records())
    assert [number for number, _ in records] == list(range(100))
    assert {drawn for _, drawn in records} == set(range(10))


def test_generated_records_depend_only_on_the_seed() -> None:
    first, again, other = (list(GeneratorSource(number_and_draws, count=50, seed=seed).records()) for seed in (7, 7, 8))
    assert first == again
    assert all(mine[1:] != theirs[1:] for mine, theirs in zip(first, other, strict=True))


@settings(deadline=None)  # the first example imports pyarrow
@given(st.lists(st.integers(1, 40)))
def test_generated_records_do_not_depend_on_the_division_into_tasks(cuts: list[int]) -> None:
    source = GeneratorSource(number_and_draws, rate=1, seed=3)
    bounds = [0, *sorted(set(cuts)), 41]
    parts = [{"start": start, "end": end} for start, end in pairwise(bounds)]
    made = list(source.to_records(pa.array(parts)))
    assert made == list(GeneratorSource(number_and_draws, count=41, seed=3).records())


def test_random_draws_for_one_record_do_not_change_other_records() -> None:
    def greedy(number: int, random: random.Random) -> float:
        if number == 1:
            random.random()
        return random.random()

    plain = list(GeneratorSource(lambda number, random: random.random(), count=3).records())
    changed = list(GeneratorSource(greedy, count=3).records())
    assert [mine == theirs for mine, theirs in zip(plain, changed, strict=True)] == [True, False, True]


def test_a_generator_source_is_bounded_if_it_has_a_count() -> None:
    assert GeneratorSource(number_and_draws, count=3).bounded
    assert GeneratorSource(number_and_draws, count=3, rate=1).bounded
    assert not GeneratorSource(number_and_draws, rate=1).bounded


def test_the_embedded_engine_ignores_the_rate_of_a_generator_source() -> None:
    copying, sink = job(GeneratorSource(number_and_draws, count=20, rate=0.001))
    run(copying, engine="embedded")
    assert sink.records == expected(20)


def test_the_embedded_engine_refuses_a_generator_source_without_a_count() -> None:
    copying, _ = job(GeneratorSource(number_and_draws, rate=1))
    with pytest.raises(SourceError, match="is unbounded: set count, or run the job with engine='spark'"):
        run(copying, engine="embedded")


def test_the_error_of_a_generating_function_names_the_record_number() -> None:
    message = r"test_generator_source\.failing failed for record number 3: ZeroDivisionError: "
    with pytest.raises(SourceError, match=message) as caught:
        list(GeneratorSource(failing, count=5).records())
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_a_generator_source_can_have_its_own_key_event() -> None:
    copying, sink = job(
        GeneratorSource(lambda number, _: number, count=2, key_event=lambda number: KeyedEvent("a", START, (number,)))
    )
    run(copying, engine="embedded")
    assert sink.records == [(0, 0), (1, 1)]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({}, "GeneratorSource needs a rate or a count: set rate=, count= or both"),
        ({"count": 0}, "count must be a positive integer, not 0"),
        ({"count": 1.5}, "count must be a positive integer"),
        ({"count": True}, "count must be a positive integer"),
        ({"rate": 0}, "rate must be a positive, finite number of records per second, not 0"),
        ({"rate": math.inf}, "rate must be"),
        ({"rate": math.nan}, "rate must be"),
        ({"rate": "5"}, "rate must be"),
        ({"rate": 1, "seed": "a"}, "seed must be an integer, not 'a'"),
    ],
)
def test_invalid_settings_of_generator_source_are_refused(arguments: dict[str, Any], why: str) -> None:
    with pytest.raises(SourceError, match=why):
        GeneratorSource(number_and_draws, **arguments)


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "made_here.py").write_text(
        "class Maker:\n    def make(number, random):\n        return number * 2\n\nlimit = 5\ndef plain(number): ...\n"
    )
    (tmp_path / "broken_here.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    return "made_here"


def test_the_function_of_generator_source_can_be_named_as_text(module: str) -> None:
    assert list(GeneratorSource(f"{module}:Maker.make", count=3).records()) == [0, 2, 4]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("made_here", "'made_here' is not the name of a function: use the form module:function"),
        (":make", "':make' is not the name of a function: use the form module:function"),
        ("made_here:nothing", "made_here:nothing cannot be loaded: AttributeError: .*no attribute 'nothing'"),
        ("not_here:make", "not_here:make cannot be loaded: ModuleNotFoundError: No module named 'not_here'"),
        ("broken_here:make", "broken_here:make cannot be loaded: ZeroDivisionError: division by zero"),
        ("made_here:limit", r"GeneratorSource needs function\(number, random\), not 5"),
        ("made_here:plain", r"GeneratorSource needs function\(number, random\), but made_here.plain takes \(number\)"),
    ],
)
def test_the_error_for_a_text_that_names_no_generating_function_states_the_reason(
    module: str, name: str, why: str
) -> None:
    with pytest.raises(SourceError, match=why):
        GeneratorSource(name, count=3)


def test_settings_of_generator_source_can_be_parameters(module: str) -> None:
    source = GeneratorSource(
        Param("FUNCTION"),
        rate=Param("RATE", type=float),
        count=Param("COUNT", type=int),
        seed=Param("SEED", default=5, type=int),
    )
    copying, _ = job(source)
    params = {"FUNCTION": f"{module}:Maker.make", "RATE": "2.5", "COUNT": "3"}
    filled: Any = copying.with_params(params).sources["in"]
    assert (filled.rate, filled.count, filled.seed) == (2.5, 3, 5)
    assert list(filled.records()) == [0, 2, 4]


def test_a_generator_source_can_be_named_on_the_command_line(module: str) -> None:
    from amadou_runtime.jobs.named_connectors import with_connectors

    copying, _ = job(GeneratorSource(number_and_draws, count=1))
    named: Any = with_connectors(copying, {"in": f"generator:{module}:Maker.make?rate=0.5&count=2&seed=9"}, {})
    source = named.sources["in"]
    assert (source.rate, source.count, source.seed) == (0.5, 2, 9)
    assert list(source.records()) == [0, 2]


def test_describe_shows_the_name_of_the_function_of_generator_source() -> None:
    out = io.StringIO()
    describe(job(GeneratorSource(failing, count=5))[0], {}, Console(file=out, width=200))
    assert f"GeneratorSource({__name__}.failing, count=5)" in out.getvalue()


def test_a_generator_source_can_be_pickled() -> None:
    source = GeneratorSource(number_and_draws, rate=5, count=3)
    assert pickle.loads(pickle.dumps(source)) == source


class Clock:
    """A clock that advances only by calls of `sleep`."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    pytest.importorskip("pyspark")
    from amadou_plugins.connectors import _generator_stream

    clock = Clock()
    monkeypatch.setattr(_generator_stream, "time", clock)
    return clock


def reader(**options: str) -> Any:
    from amadou_plugins.connectors._generator_stream import GeneratorStream

    return GeneratorStream({"parts": "4", **options}).streamReader(None)


def due(reader: Any, start: int) -> int:
    return int(reader.latestOffset({"records": start}, None)["records"])


def test_generated_records_become_due_at_the_rate_since_the_start_of_the_run(clock: Clock) -> None:
    resumed = reader(rate="10", count="150")
    assert due(resumed, 100) == 100
    clock.now += 2
    assert due(resumed, 100) == 120
    clock.now += 1
    assert due(resumed, 120) == 130
    clock.now += 1000
    assert due(resumed, 130) == due(resumed, 150) == 150


def test_an_available_now_run_waits_until_all_generated_records_are_due(clock: Clock) -> None:
    ending = reader(rate="0.5", count="2")
    ending.prepareForTriggerAvailableNow()
    reached = [0]
    while len(reached) < 5:
        reached.append(due(ending, reached[-1]))
    assert reached == [0, 1, 2, 2, 2]
    assert 1004 <= clock.now < 1005


def test_a_run_ends_if_the_count_is_below_that_of_an_earlier_run(clock: Clock) -> None:
    for options in ({"rate": "10"}, {}):
        ending = reader(count="100", **options)
        ending.prepareForTriggerAvailableNow()
        assert due(ending, 130) == 130


@pytest.mark.parametrize(("start", "end", "parts"), [(0, 0, 0), (5, 6, 1), (5, 1005, 1), (5, 1006, 2), (0, 99_999, 4)])
def test_tasks_divide_the_generated_records_of_a_batch(clock: Clock, start: int, end: int, parts: int) -> None:
    shared = reader(rate="1")
    tasks = shared.partitions({"records": start}, {"records": end})
    ranges = [rows for task in tasks for rows in shared.read(task)]
    assert len(ranges) == parts
    assert [number for first, last in ranges for number in range(first, last)] == list(range(start, end))


@pytest.mark.spark
@pytest.mark.needs_spark(4)
def test_on_spark_the_records_of_the_embedded_engine_are_generated_at_their_rate_until_the_count(spark: Any) -> None:
    copying, sink = job(GeneratorSource(number_and_draws, count=5000, rate=2500, seed=2))
    summary = run(copying)
    assert summary.batches > (2 if spark_version() >= (4, 2) else 1)  # older versions plan such a run when it starts
    assert sink.records == expected(5000, seed=2)


@pytest.mark.qualify  # tests above generate the records of a batch again, and count on from an earlier run
@pytest.mark.spark
@pytest.mark.needs_spark(4)
def test_a_resumed_run_reprocesses_a_batch_with_the_same_records_and_continues_with_the_next(
    spark: Any, tmp_path: Path
) -> None:
    class Failing(MemorySink):
        has_failed = False

        def commit(self, batch: Any, parts: Any) -> None:
            if batch.number == 1 and not self.has_failed:
                self.has_failed = True
                self.lost = [batch.codec.decode(encoded) for part in parts for encoded in part]
                raise SourceError("the first time")
            super().commit(batch, parts)

    sink = Failing()
    copying = Job("copying", Copying(), {"in": GeneratorSource(number_and_draws, rate=500)}, {"copies": sink})
    checkpoint = str(tmp_path / "checkpoint")
    with pytest.raises(SourceError, match="the first time"):
        start(copying, spark, checkpoint=checkpoint).await_termination()
    before = len(sink.records)
    running = start(copying, spark, checkpoint=checkpoint)
    while len(sink.records) <= before + len(sink.lost):
        assert not running.await_termination(0.05)
    running.stop()
    assert sink.records[before : before + len(sink.lost)] == sink.lost
    assert sink.records == expected(len(sink.records))


@pytest.mark.spark
@pytest.mark.needs_spark(4)
def test_an_available_now_run_refuses_a_generator_source_without_a_count(spark: Any) -> None:
    copying, _ = job(GeneratorSource(number_and_draws, rate=500))
    with pytest.raises(
        RunError, match="a GeneratorSource without a count never ends: set count, or use a different trigger"
    ):
        run(copying, trigger="available-now")


@pytest.mark.qualify  # the test before it has this without Spark
@pytest.mark.spark
@pytest.mark.needs_spark(4)
def test_on_spark_the_error_of_a_generating_function_names_the_record_number(spark: Any) -> None:
    copying, _ = job(GeneratorSource(failing, count=5))
    with pytest.raises(RunError, match="failing failed for record number 3: ZeroDivisionError: "):
        run(copying)
