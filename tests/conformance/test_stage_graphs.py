"""Random graphs of stages, cut into batches at random, with restarts and crashes, emit what one pass over the sorted
input emits (`semantics.md` 36).
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import attrs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.conformance.handlers import START, at
from tests.conformance.stores import IN_PROCESS, embedded_on

from amadou import FromPort, Handler, Job, KeyedEvent, MapSpec, MemorySink, MemorySource, SinkSpec, Stage, Subject
from amadou_runtime import TestRun

DISORDER = 3
"""Number of seconds by which events can be out of order."""


@attrs.frozen
class Total:
    key: int
    total: int


class Totals(Handler):
    """Sums the values of each key by windows of some seconds, and emits each sum when its window ends."""

    sums = MapSpec(int, int)
    out = SinkSpec(Total)

    def __init__(self, length: int, keys: int) -> None:
        self.length = length
        self.keys = keys

    def key_event(self, record: Any) -> KeyedEvent[int]:
        if isinstance(record, Total):
            return KeyedEvent(record.key % self.keys, None, record.total)  # type: ignore[arg-type]
        second, key, value = record
        return KeyedEvent(key % self.keys, at(second), value)

    def on_event(self, subject: Subject[int], event: KeyedEvent[int]) -> None:
        end = window_end(event.timestamp, self.length)
        sums = self.sums.state_for(subject)
        sums[end] = sums.get(end, 0) + event.value
        subject.set_timer(at(end))

    def on_timer_expired(self, subject: Subject[int], timestamp: datetime) -> None:
        total = self.sums.state_for(subject).pop((timestamp - START) // timedelta(seconds=1))
        self.out.collect(subject, Total(subject.key, total))


def window_end(timestamp: datetime, length: int) -> int:
    return ((timestamp - START) // timedelta(seconds=1) // length + 1) * length


@attrs.frozen
class Node:
    """A stage of a random graph.

    :param feeds: numbers of the stages that feed this stage
    :param reads: `True` if this stage also has its own source
    """

    length: int
    keys: int
    feeds: tuple[int, ...]
    reads: bool


@attrs.frozen
class Script:
    nodes: tuple[Node, ...]
    events: Mapping[int, Sequence[tuple[int, int, int]]]
    """The records of the stages with a source: second, key and value, in the order in which they arrive."""
    cuts: tuple[tuple[int, str, int], ...]
    """Number of records after which a batch ends, how the batch ends, and a number for the crash."""


@st.composite
def scripts(draw: st.DrawFn) -> Script:
    nodes = []
    for number in range(draw(st.integers(1, 4))):
        feeds = draw(st.sets(st.integers(0, number - 1), max_size=2)) if number else set()
        reads = not feeds or draw(st.booleans())
        nodes.append(Node(draw(st.integers(1, 5)), draw(st.integers(1, 3)), tuple(sorted(feeds)), reads))
    events = {
        number: sorted(
            draw(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 4), st.integers(-9, 9)), max_size=12)),
            key=lambda each: each[0] + draw(st.floats(0, DISORDER - 0.1)),
        )
        for number, node in enumerate(nodes)
        if node.reads
    }
    count = sum(map(len, events.values()))
    cut = st.tuples(st.integers(0, count), st.sampled_from(["end", "restart", "crash"]), st.integers(0, 6))
    return Script(tuple(nodes), events, tuple(sorted(draw(st.lists(cut, max_size=6)))))


def job(nodes: Sequence[Node]) -> Job:
    stages = {}
    for number, node in enumerate(nodes):
        sources: dict[str, Any] = {f"from{feed}": FromPort(f"s{feed}", "out") for feed in node.feeds}
        if node.reads:
            sources["own"] = MemorySource()
        delays = {"own": float(DISORDER)} if node.reads else {}
        handler = Totals(node.length, node.keys)
        stages[f"s{number}"] = Stage(handler, sources, {"out": MemorySink()}, watermark_delay=delays)
    return Job("graph", stages=dict(reversed(stages.items())))


def expected(script: Script) -> list[Counter[Total]]:
    """Return what each stage emits in one pass over its sorted input."""
    emitted: list[list[tuple[int, Total]]] = []
    for number, node in enumerate(script.nodes):
        events = [(second, key, value) for second, key, value in script.events.get(number, ())]
        events += [(second, total.key, total.total) for feed in node.feeds for second, total in emitted[feed]]
        sums: dict[tuple[int, int], int] = defaultdict(int)
        for second, key, value in sorted(events):
            sums[window_end(at(second), node.length), key % node.keys] += value
        emitted.append([(end, Total(key, total)) for (end, key), total in sorted(sums.items())])
    return [Counter(total for _, total in each) for each in emitted]


def arrival(script: Script) -> list[tuple[int, tuple[int, int, int]]]:
    """Return all records with their stages, in the order in which they arrive. Sources arrive in step."""
    records = [(stage, record) for stage, records_of_stage in script.events.items() for record in records_of_stage]
    places = dict.fromkeys(script.events, 0)
    ordered = []
    while len(ordered) < len(records):
        stage = min(
            (stage for stage in places if places[stage] < len(script.events[stage])),
            key=lambda stage: script.events[stage][places[stage]][0],
        )
        ordered.append((stage, script.events[stage][places[stage]]))
        places[stage] += 1
    return ordered


def results_of(script: Script, **options: Any) -> list[Counter[Total]]:
    graph = job(script.nodes)
    stages = list(graph.by_stage)
    with TestRun(graph, **options) as test:
        cuts = list(script.cuts)
        for position, (stage, record) in enumerate([*arrival(script), (None, None)]):
            while cuts and cuts[0][0] <= position:
                _, how, number = cuts.pop(0)
                if how == "end":
                    test.end_batch()
                elif how == "restart":
                    test.restart()
                else:
                    test.crash(number, stage=stages[number % len(stages)])
            if record is not None:
                test.add_record(record, "own", stage=f"s{stage}")
        result = test.run(flush=True)
        assert result.late == []
        assert [result.keys(stage=stage) for stage in stages] == [[]] * len(stages)
        return [Counter(result.records("out", stage=f"s{number}")) for number in range(len(stages))]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(scripts(), st.sampled_from(IN_PROCESS))
def test_random_graphs_of_stages_emit_the_results_of_one_pass_over_sorted_input(script: Script, store: str) -> None:
    with embedded_on(store):
        assert results_of(script) == expected(script)


@pytest.mark.qualify
@pytest.mark.spark
@pytest.mark.needs_spark(4)
def test_random_graphs_of_stages_on_spark_emit_the_results_of_one_pass_over_sorted_input(spark: Any) -> None:
    @settings(max_examples=1, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
    @given(scripts().filter(lambda script: len(script.nodes) > 2 and 1 < len(script.cuts) < 4))
    def same(script: Script) -> None:
        assert results_of(script, engine="both", spark=spark) == expected(script)

    same()
