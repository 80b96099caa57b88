"""State of windows and joins, as from imported rows, that has another form than they store: it is never read."""

import base64
import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.handlers import EventHandler, event, job

from amadou import Job, KeyedEvent, MapSpec, SinkSpec, Subject, ValueSpec
from amadou.components import Component
from amadou.engine import Envelope, StateTable, pack
from amadou.errors import CallbackError, LoadError, StateDecodeError
from amadou_plugins.aggregates import Collect
from amadou_plugins.joins import AsOfJoin, IntervalJoin, JoinSpec, LatestJoin
from amadou_plugins.windows import CountWindow, HoppingWindow, SessionWindow, SlidingWindow, TumblingWindow, WindowSpec
from amadou_runtime import TestRun
from amadou_runtime.command.state_rows import import_rows
from amadou_runtime.savepoint.job_savepoint import JobSavepoint

HOUR = timedelta(hours=1)
SPECS: dict[str, Callable[[], Any]] = {
    "tumbling": lambda: TumblingWindow(HOUR, Collect(), on_close=print),
    "hopping": lambda: HoppingWindow(HOUR, HOUR / 2, Collect(), on_close=print),
    "sliding": lambda: SlidingWindow(HOUR, Collect(), on_close=print),
    "session": lambda: SessionWindow(HOUR, Collect(), on_close=print),
    "cut session": lambda: SessionWindow(HOUR, Collect(), max_duration=HOUR, on_close=print),
    "count": lambda: CountWindow(3, Collect(), on_close=print),
    "old": lambda: TumblingWindow(HOUR, Collect(), version=1, migrate=lambda old, version: old, on_close=print),
    "expiring": lambda: CountWindow(3, Collect(), ttl=HOUR, on_close=print),
    "latest": lambda: LatestJoin(left="events", right="others", on_match=print),
    "as of": lambda: AsOfJoin(left="events", right="others", on_match=print),
    "interval": lambda: IntervalJoin(left="events", right="others", lower=-HOUR, upper=HOUR, on_match=print),
    "value": lambda: ValueSpec(int, default=0, ttl=HOUR),
    "map": lambda: MapSpec(str, int, ttl=HOUR),
}
TIME = 1_735_689_600_000_000
VALUES: dict[str, list[Any]] = {
    "tumbling": [
        *(
            [1, 2, 3],
            [None, [1]],
            ["x", {}],
            [None, {"x": [1, [], 1, 1]}],
            7,
            "x",
            [None, {TIME: 7}],
            [None, {TIME: [1]}],
        ),
        *(
            [None, {TIME: [None, [], TIME, TIME]}],
            [None, {TIME: [1, [], "x", TIME]}],
            [None, {TIME: [1, [], TIME, 1 << 62]}],
        ),
        [None, {1 << 62: [1, [], TIME, TIME]}],
    ],
    "hopping": [[None, {TIME + 7: [1, [], TIME, TIME]}]],
    "sliding": [[None, {TIME: [1, [], TIME, TIME]}], [None, [TIME]]],
    "session": [[None, {TIME: [1]}], [None, [[1, [], TIME, TIME]]], [None, [[1, [], None, TIME, None]]]],
    "cut session": [[None, [[1, [], TIME, TIME, None]]], [None, [[1, {"x": [1, []]}, TIME, TIME, None]]]],
    "count": [[0, {}], [0, [[1, []]]], ["x", []]],
    "old": [[1, 2, 3], 7],
    "expiring": [Envelope(0, True, 7), Envelope(0, True, [TIME]), Envelope(0, True, ["x", [0, []]])],
    "latest": [7, [TIME], ["x", 1]],
    "as of": [7, [[[TIME], []], [[], []]], [[[TIME + 1, TIME], [1, 2]], [[], []]], [[[], []], [[], []], "x"]],
    "interval": [[[[TIME], [7]], [[], []]], [[[], []]]],
    "value": [Envelope(0, True, 7), Envelope(0, True, ["x", 1])],
    "map": [Envelope(0, True, {"a": 7}), Envelope(0, True, {"a": ["x", 1]})],
}


def job_of(name: str) -> Job:
    class Uses(EventHandler):
        spec = SPECS[name]()
        out = SinkSpec(Any)

        def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
            if isinstance(self.spec, WindowSpec | JoinSpec):
                self.spec.add(subject, event)
            elif isinstance(self.spec, MapSpec):
                self.spec.state_for(subject)["a"] = 1
            elif isinstance(self.spec, ValueSpec):
                self.spec.state_for(subject).value += 1

    return job(Uses(), "events", "others")


CASES = [(name, value) for name, values in VALUES.items() for value in values]


@pytest.mark.parametrize(("name", "value"), CASES)
def test_state_of_another_form_ends_the_run_with_its_key_and_the_way_out(name: str, value: Any, tmp_path: Path) -> None:
    made = job_of(name)
    run = TestRun(made).add_record(event(1, 1), "others").add_record(event(2, 1), "events")
    run.run()
    run.savepoint(tmp_path / "saved")
    with pytest.raises((CallbackError, StateDecodeError), match=r"state 'spec' of key 'k'.*To continue, ") as caught:
        _with_packed(made, tmp_path, pack(value)).add_record(event(3, 1), "events").run()
    error = caught.value
    assert isinstance(error if isinstance(error, StateDecodeError) else error.__cause__, StateDecodeError)


def _with_packed(made: Job, directory: Path, packed: bytes) -> TestRun:
    """Return a run from a savepoint in which the state of the key is replaced."""
    row = {"key": "k", "spec": "spec", "value": {"$msgpack": base64.b64encode(packed).decode()}}
    (directory / "row.jsonl").write_text(json.dumps(row))
    base = JobSavepoint(directory / "saved")
    import_rows(directory / "row.jsonl", directory / "changed", base, None, "job", None, None)
    return TestRun(made, savepoint=directory / "changed")


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, value in CASES if name not in ("old", "expiring", "value", "map")]
)
def test_rows_of_another_form_are_not_imported_if_the_job_is_named(name: str, value: Any, tmp_path: Path) -> None:
    row = {"key": "k", "spec": "spec", "value": {"$msgpack": base64.b64encode(pack(value)).decode()}}
    (tmp_path / "row.jsonl").write_text(json.dumps(row))
    with pytest.raises(LoadError, match=r"row 1 cannot be imported: state 'spec' of key 'k'"):
        import_rows(tmp_path / "row.jsonl", tmp_path / "changed", None, job_of(name), "job", None, None)


@pytest.mark.parametrize("name", SPECS)
def test_the_form_that_components_store_is_theirs(name: str, tmp_path: Path) -> None:
    made = job_of(name)
    run = TestRun(made)
    for second in (0, 7_201, 3_600, 10):
        run.add_record(event(second, 1), "events").add_record(event(second, 2), "others")
    run.run()
    run.savepoint(tmp_path / "saved")
    spec = made.specs["spec"]
    assert isinstance(spec, Component) or name in ("value", "map")
    TestRun(made, savepoint=tmp_path / "saved").add_record(event(8_000, 1), "events").add_watermark(
        event(20_000).timestamp
    ).run()


@pytest.mark.parametrize("packed", [b"\x01\x02", b"", b"\xdf\x00\x00\x00\x00\x00"])
def test_bytes_that_are_not_one_packed_value_name_their_key(packed: bytes) -> None:
    table = StateTable({"fine": b"\x01", "k": packed})
    with pytest.raises(StateDecodeError, match=r"state 'spec' of key 'k'.*To continue, "):
        table.load(["fine", "k"], "spec")
    assert not table.encoded_values
