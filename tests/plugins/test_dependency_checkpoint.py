"""Checkpoints and dependencies without a job: markers, callbacks, caches and paused streams."""

import asyncio
import doctest
import json
import logging
import pickle
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, MutableMapping
from copy import deepcopy
from datetime import date, datetime, timedelta, timezone
from importlib import import_module
from pathlib import Path
from threading import Lock, Thread
from typing import Any

import msgpack
import pytest

from amadou import Handler, Job, KeyedEvent, MapSpec, MemorySink, MemorySource, SinkSpec, Subject
from amadou_plugins.dependencies import (
    CHECKPOINT_MARKER_NAME,
    CHECKPOINT_STATE_NAME,
    CHECKPOINTS_NAME,
    STATE_MARKER_NAME,
    STATE_NAME,
    Checkpoint,
    Dependency,
    DependencyError,
    MarkerError,
    SqliteCache,
    handle,
    run_sync,
    stream,
)
from amadou_plugins.dependencies._streams import _streams
from amadou_runtime import TestRun

TEN = datetime(2025, 1, 1, 10)


def minutes(number: float) -> datetime:
    return TEN + timedelta(minutes=number)


def run(*calls: Coroutine[Any, Any, Any]) -> list[Any]:
    """Await calls one after the other. Return their results."""

    async def all_of_them() -> list[Any]:
        return [await call for call in calls]

    return asyncio.run(all_of_them())


@pytest.fixture(autouse=True)
def _streams_of_one_test() -> Iterator[None]:
    """Removes the streams that a test has not processed."""
    yield
    _streams.clear()


class Recorder:
    """Callbacks that record their calls as (what, dependency, down_marker, down_state, state)."""

    def __init__(self) -> None:
        self.recorder: list[tuple[Any, ...]] = []

    def down(self, checkpoint: Checkpoint, dependency: Dependency) -> None:
        self._record("down", checkpoint, dependency)

    def recovered(self, checkpoint: Checkpoint, dependency: Dependency) -> None:
        self._record("recovered", checkpoint, dependency)

    def _record(self, what: str, checkpoint: Checkpoint, dependency: Dependency) -> None:
        down_state = None if dependency.down_state is None else dict(dependency.down_state)
        self.recorder.append((what, dependency.name, dependency.down_marker, down_state, dict(checkpoint.state)))

    @property
    def changes(self) -> list[tuple[str, str]]:
        return [(what, name) for what, name, *_ in self.recorder]


def checkpoint(
    recorder: Recorder | None = None, *names: str, threshold: Any = timedelta(minutes=10), **settings: Any
) -> Any:
    recorder = recorder or Recorder()
    dependencies = [Dependency(name, None, threshold) for name in names or ("weather",)]
    return Checkpoint("activities", None, dependencies, recorder.down, recorder.recovered, **settings)


# Markers and callbacks


def test_pulses_and_heartbeats_give_the_results_of_the_acceptance_case(shared_data: Callable[[str], Path]) -> None:
    case = json.loads(shared_data("vectors/dependency_checkpoint.json").read_text())

    def at(time: str) -> datetime:
        return datetime.fromisoformat(f"2025-01-01T{time}:00+00:00")

    checked = checkpoint()
    for step in case["steps"]:
        if "check_pulse" in step:
            (downtime,) = run(checked.check_pulse(at(step["check_pulse"]), **step["state"]))
            seconds = step.get("returns_seconds")
            assert downtime == (None if seconds is None else timedelta(seconds=seconds))
            assert checked.state == step["state"]
        else:
            (answer,) = run(checked.heartbeat(at(step["heartbeat"])))
            assert answer["is_late"] is step["is_late"]
        if "dependency_marker" in step:
            assert checked["weather"].checkpoint_marker == at(step["dependency_marker"])
        if "is_down" in step:
            assert checked["weather"].is_down is step["is_down"]
        if "dependent" in step:
            assert checked.is_paused is (step["dependent"] == "paused")


def test_the_examples_of_the_first_design_of_checkpoints_pass(shared_data: Callable[[str], Path]) -> None:
    document = shared_data("seeds/002_2797259246cf3899.txt").read_text()
    document = document.replace("from slipstream import handle", "from amadou_plugins.dependencies import handle")
    document = document.replace("}\nproperty", "}\n\nproperty")  # an empty line ends what is expected
    names = {"Checkpoint": Checkpoint, "Dependency": Dependency, "datetime": datetime}
    test = doctest.DocTestParser().get_doctest(document, names, "seed", None, 0)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)

    assert runner.run(test).attempted == 15
    assert runner.summarize(verbose=False).failed == 0


@pytest.mark.parametrize("module", ["_checkpoint", "_dependency"])
def test_the_examples_in_docstrings_of_checkpoints_and_dependencies_pass(module: str) -> None:
    tested = doctest.testmod(import_module(f"amadou_plugins.dependencies.{module}"))

    assert tested.attempted > 0
    assert tested.failed == 0


def test_callbacks_are_called_once_for_a_change_with_the_state_before_the_downtime() -> None:
    recorder = Recorder()
    checked = checkpoint(recorder)
    run(
        checked.check_pulse(minutes(0), offset=1),
        checked.heartbeat(minutes(1)),
        checked.check_pulse(minutes(5), offset=2),
        checked.check_pulse(minutes(12), offset=3),
        checked.check_pulse(minutes(13), offset=4),
        checked.heartbeat(minutes(2)),
        checked.heartbeat(minutes(14)),
        checked.heartbeat(minutes(15)),
    )

    assert recorder.recorder == [
        ("down", "weather", minutes(1), {"offset": 1}, {"offset": 3}),
        ("recovered", "weather", minutes(1), {"offset": 1}, {"offset": 4}),
    ]
    assert (checked["weather"].down_state, checked["weather"].down_marker) == (None, None)


def test_a_dependency_is_down_only_if_it_is_behind_by_more_than_the_threshold() -> None:
    checked = checkpoint()

    assert run(checked.heartbeat(minutes(0)), checked.check_pulse(minutes(10)))[1] is None
    assert run(checked.check_pulse(minutes(10.01))) == [timedelta(minutes=10.01)]


def test_a_dependency_recovers_only_if_it_is_ahead_of_the_dependent_stream() -> None:
    checked = checkpoint()
    run(checked.heartbeat(minutes(0)), checked.check_pulse(minutes(11)))

    assert [answer["is_late"] for answer in run(checked.heartbeat(minutes(11)), checked.heartbeat(minutes(11.01)))] == [
        True,
        False,
    ]


def test_a_heartbeat_returns_the_markers_of_both_streams() -> None:
    checked = checkpoint()

    assert run(checked.check_pulse(minutes(1)), checked.heartbeat(minutes(2)))[1] == {
        "is_late": False,
        "dependent_marker": minutes(1),
        "dependency_marker": minutes(2),
    }


def test_the_downtime_of_a_dependency_without_heartbeats_counts_from_the_first_pulse() -> None:
    recorder = Recorder()
    checked = checkpoint(recorder)

    assert run(*(checked.check_pulse(minutes(m)) for m in (0, 10, 11))) == [None, None, timedelta(minutes=11)]
    assert recorder.changes == [("down", "weather")]


def test_the_first_heartbeat_replaces_the_assumed_marker_even_if_it_is_older() -> None:
    checked = checkpoint()
    run(checked.check_pulse(minutes(0)), checked.heartbeat(minutes(-30)))

    assert checked["weather"].checkpoint_marker == minutes(-30)
    assert run(checked.check_pulse(minutes(0))) == [timedelta(minutes=30)]


def test_an_older_heartbeat_does_not_change_the_dependency() -> None:
    checked = checkpoint()
    run(checked.check_pulse(minutes(0), n=1), checked.heartbeat(minutes(5)), checked.check_pulse(minutes(6), n=2))
    run(checked.heartbeat(minutes(4)))

    assert dict(checked["weather"]) == {"checkpoint_state": {"n": 1}, "checkpoint_marker": minutes(5)}


def test_an_older_pulse_changes_the_state_but_not_the_marker() -> None:
    checked = checkpoint()
    run(checked.check_pulse(minutes(5), offset=1), checked.check_pulse(minutes(4), offset=2, part=7))

    assert checked.state_marker == minutes(5)
    assert checked.state == {"offset": 2, "part": 7}


def test_zero_is_a_valid_marker() -> None:
    checked = checkpoint(threshold=3)
    run(checked.heartbeat(0), checked.check_pulse(-5))
    assert (checked["weather"].checkpoint_marker, checked.state_marker) == (0, -5)

    run(checked.check_pulse(0))
    assert (checked["weather"].checkpoint_marker, checked.state_marker) == (0, 0)
    assert run(checked.check_pulse(4), checked.heartbeat(3), checked.check_pulse(4)) == [
        4,
        {"is_late": True, "dependent_marker": 4, "dependency_marker": 3},
        1,
    ]


def test_a_first_pulse_of_zero_is_the_assumed_marker_of_a_dependency_without_heartbeats() -> None:
    checked = checkpoint(threshold=3)

    assert run(checked.check_pulse(0), checked.check_pulse(4)) == [None, 4]


def test_a_dependency_has_a_copy_of_the_checkpoints_state() -> None:
    checked = checkpoint()
    run(checked.check_pulse(minutes(0), seen=["a"]), checked.heartbeat(minutes(1)))
    checked.state["seen"].append("b")
    run(checked.check_pulse(minutes(12)))
    checked["weather"].checkpoint_state["seen"].append("c")

    assert checked.state == {"seen": ["a", "b"]}
    assert checked["weather"].down_state == {"seen": ["a"]}


# Several dependencies


def test_the_dependent_stream_is_paused_until_all_dependencies_have_recovered() -> None:
    recorder = Recorder()
    checked = checkpoint(recorder, "weather", "traffic")
    run(*(checked.heartbeat(minutes(0), name) for name in ("weather", "traffic")), checked.check_pulse(minutes(20)))
    assert recorder.changes == [("down", "weather"), ("down", "traffic")]

    run(checked.heartbeat(minutes(21), "traffic"))
    assert recorder.changes[2:] == [("recovered", "traffic")]
    assert checked.is_paused

    run(checked.heartbeat(minutes(21), "weather"))
    assert recorder.changes[3:] == [("recovered", "weather")]
    assert not checked.is_paused


@pytest.mark.parametrize("order", [("weather", "traffic"), ("traffic", "weather")])
def test_check_pulse_returns_the_longest_downtime_for_any_order_of_dependencies(order: tuple[str, str]) -> None:
    checked = checkpoint(None, *order)
    run(checked.heartbeat(minutes(0), "weather"), checked.heartbeat(minutes(5), "traffic"))

    assert run(checked.check_pulse(minutes(20))) == [timedelta(minutes=20)]


def test_check_pulse_returns_a_downtime_below_the_threshold_until_the_recovery() -> None:
    checked = checkpoint()
    run(checked.heartbeat(minutes(0)), checked.check_pulse(minutes(20)), checked.heartbeat(minutes(18)))

    assert run(checked.check_pulse(minutes(20))) == [timedelta(minutes=2)]


def test_a_heartbeat_for_several_dependencies_needs_a_name() -> None:
    checked = checkpoint(None, "weather", "traffic")

    with pytest.raises(ValueError, match=r"several dependencies: pass one of weather, traffic as dependency_name"):
        run(checked.heartbeat(minutes(0)))
    for unknown in (lambda: run(checked.heartbeat(minutes(0), "tides")), lambda: checked["tides"]):
        with pytest.raises(DependencyError, match="no dependency 'tides': use one of weather, traffic"):
            unknown()


def test_dependencies_can_be_an_iterator() -> None:
    checked = Checkpoint("activities", None, (Dependency(name, None) for name in ("weather", "traffic")))

    assert list(checked.dependencies) == ["weather", "traffic"]


@pytest.mark.parametrize(
    "dependencies", [{"weather": Dependency("weather", None)}, Dependency("weather", None), "weather", None]
)
def test_dependencies_that_are_not_a_list_of_dependency_objects_are_an_error(dependencies: Any) -> None:
    with pytest.raises(DependencyError, match="activities: dependencies must be Dependency objects in a list, not "):
        Checkpoint("activities", None, dependencies)


@pytest.mark.parametrize(("names", "reason"), [((), "pass a dependency"), (("weather", "weather"), "its own name")])
def test_a_checkpoint_needs_dependencies_with_different_names(names: tuple[str, ...], reason: str) -> None:
    with pytest.raises(DependencyError, match=reason):
        Checkpoint("activities", None, [Dependency(name, None) for name in names])


# Invalid markers


def test_none_as_a_marker_is_an_error_and_changes_nothing() -> None:
    checked = checkpoint()
    run(checked.check_pulse(minutes(0), offset=1))

    with pytest.raises(ValueError, match="must not be None"):
        run(checked.check_pulse(None, offset=2))
    with pytest.raises(ValueError, match="must not be None"):
        run(checked.heartbeat(None))
    assert (checked.state, checked.state_marker) == ({"offset": 1}, minutes(0))
    assert not checked["weather"].has_beaten


def test_the_error_for_markers_that_cannot_be_compared_says_what_to_do() -> None:
    checked = checkpoint()
    run(checked.heartbeat(minutes(0)))

    with pytest.raises(MarkerError, match="pass markers of the same type to heartbeat and check_pulse") as raised:
        run(checked.check_pulse(minutes(0).replace(tzinfo=timezone.utc)))
    assert raised.value.dependency == "weather"
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)
    assert run(checked.check_pulse(minutes(0))) == [None]  # the right type is still accepted


@pytest.mark.parametrize("pulse", [1, 11])
def test_a_heartbeat_with_a_marker_of_another_type_is_an_error(pulse: int) -> None:
    checked = checkpoint()
    run(checked.heartbeat(minutes(0)), checked.check_pulse(minutes(pulse)))

    with pytest.raises(MarkerError):
        run(checked.heartbeat(7))
    assert run(checked.heartbeat(minutes(12)))[0]["is_late"] is False


def test_the_error_for_a_threshold_of_another_type_than_the_markers_names_it() -> None:
    checked = Checkpoint("activities", None, [Dependency("weather", None)])

    with pytest.raises(
        DependencyError, match=r"weather: downtime_threshold datetime.timedelta\(.*cannot be compared with 0"
    ):
        run(checked.check_pulse(7))


# States that cannot be stored


def test_a_state_that_cannot_be_copied_is_an_error_and_changes_nothing() -> None:
    checked = checkpoint()
    run(checked.check_pulse(minutes(0), offset=1))

    with pytest.raises(DependencyError, match=r"activities: consumer=<unlocked _thread.lock .* cannot be copied"):
        run(checked.check_pulse(minutes(1), offset=2, consumer=Lock()))
    with pytest.raises(DependencyError, match=r"activities: batch=<unlocked _thread.lock .* cannot be copied"):
        run(checked.heartbeat(minutes(1), batch=Lock()))
    assert (checked.state, checked.state_marker) == ({"offset": 1}, minutes(0))
    assert dict(checked["weather"]) == {"checkpoint_state": {"offset": 1}, "checkpoint_marker": minutes(0)}
    assert run(checked.heartbeat(minutes(-20)), checked.check_pulse(minutes(0)))[1] == timedelta(minutes=20)


def test_a_state_that_a_cache_cannot_store_is_an_error_and_changes_nothing(tmp_path: Path) -> None:
    cache = SqliteCache(tmp_path / "cache.db")
    checked = checkpoint(cache=cache)
    run(checked.check_pulse(minutes(0), offset=1))

    with pytest.raises(
        DependencyError, match=r"activities: marker, offset, consumer cannot be stored in the cache SqliteCache\("
    ):
        run(checked.check_pulse(minutes(1), offset=2, consumer=object()))
    with pytest.raises(
        DependencyError,
        match=r"weather: marker, batch cannot be stored in the cache .*: values of type object are not supported",
    ):
        run(checked.heartbeat(minutes(1), batch=object()))
    with pytest.raises(DependencyError, match="weather: the entry cannot be stored in the cache"):
        checked["weather"].save(cache, "_/activities/", object(), minutes(1))
    for each in (checked, checkpoint(cache=cache)):
        assert (each.state, each.state_marker) == ({"offset": 1}, minutes(0))
        assert dict(each["weather"]) == {"checkpoint_state": {"offset": 1}, "checkpoint_marker": minutes(0)}
    assert run(checked.heartbeat(minutes(-20)), checked.check_pulse(minutes(0)))[1] == timedelta(minutes=20)
    cache.close()


class Disk(dict[str, Any]):
    """A cache that can be full."""

    is_full = False

    def __setitem__(self, key: str, value: Any) -> None:
        if self.is_full:
            raise OSError("no space left")
        super().__setitem__(key, value)


def test_the_dependent_stream_resumes_if_a_recovery_cannot_be_stored() -> None:
    def fills(checkpoint: Checkpoint, dependency: Dependency) -> None:
        disk.is_full = True

    disk = Disk()
    checked = Checkpoint("activities", None, [Dependency("weather", None)], None, fills, cache=disk)
    run(checked.heartbeat(minutes(0)), checked.check_pulse(minutes(11)))

    with pytest.raises(
        DependencyError, match=r"weather: the new status \(up\) cannot be stored in the cache .*: no space left"
    ):
        run(checked.heartbeat(minutes(12)))
    assert not checked.is_paused


# Callbacks and checks


def test_callbacks_of_a_checkpoint_can_be_async() -> None:
    recorder = Recorder()

    async def down(checkpoint: Checkpoint, dependency: Dependency) -> None:
        await asyncio.sleep(0)
        recorder.down(checkpoint, dependency)

    async def recovered(checkpoint: Checkpoint, dependency: Dependency) -> None:
        await asyncio.sleep(0)
        recorder.recovered(checkpoint, dependency)

    checked = Checkpoint("activities", None, [Dependency("weather", None)], down, recovered)
    run(checked.heartbeat(minutes(0)), checked.check_pulse(minutes(11)), checked.heartbeat(minutes(12)))

    assert recorder.changes == [("down", "weather"), ("recovered", "weather")]


def test_a_checkpoint_works_without_callbacks() -> None:
    checked = Checkpoint("activities", None, [Dependency("weather", None)])
    run(checked.heartbeat(minutes(0)), checked.check_pulse(minutes(11)))
    assert checked["weather"].is_down

    run(checked.heartbeat(minutes(12)))
    assert not checked["weather"].is_down


class Broken(Recorder):
    """Callbacks that record their calls, and then fail."""

    def _record(self, what: str, checkpoint: Checkpoint, dependency: Dependency) -> None:
        super()._record(what, checkpoint, dependency)
        raise OSError(f"{dependency.name} {what}")


def test_an_error_of_the_downtime_callback_is_raised_and_the_dependency_is_down() -> None:
    recorder = Broken()
    cache: dict[str, Any] = {}
    checked = checkpoint(recorder, "weather", "traffic", cache=cache)

    with pytest.raises(OSError, match="weather down"):
        run(
            *(checked.heartbeat(minutes(0), name) for name in ("weather", "traffic")),
            checked.check_pulse(minutes(11)),
        )
    assert recorder.changes == [("down", "weather"), ("down", "traffic")]
    assert checked.is_paused
    assert run(checked.check_pulse(minutes(12))) == [timedelta(minutes=12)]  # the callback is called once
    assert checkpoint(None, "weather", "traffic", cache=cache).is_paused


def test_an_error_of_the_recovery_callback_is_raised_and_the_dependent_stream_resumes() -> None:
    recorder = Broken()
    cache: dict[str, Any] = {}
    checked = checkpoint(recorder, cache=cache)
    with pytest.raises(OSError, match="down"):
        run(checked.heartbeat(minutes(0)), checked.check_pulse(minutes(11)))

    with pytest.raises(OSError, match="weather recovered"):
        run(checked.heartbeat(minutes(12)))
    assert not checked.is_paused
    assert (checked["weather"].is_down, checked["weather"].down_state) == (False, None)
    assert not checkpoint(cache=cache).is_paused
    assert run(checked.heartbeat(minutes(13)))[0]["is_late"] is False  # the callback is called once


@pytest.mark.parametrize("what", ["down", "recovered"])
def test_a_callback_is_called_again_after_a_restart_if_the_process_died_in_it(what: str) -> None:
    class Dying(Recorder):
        def _record(self, now: str, checkpoint: Checkpoint, dependency: Dependency) -> None:
            super()._record(now, checkpoint, dependency)
            if now == what:
                raise KeyboardInterrupt

    cache: dict[str, Any] = {}
    dying = checkpoint(Dying(), cache=cache)
    run(dying.heartbeat(minutes(0)))
    if what == "recovered":
        run(dying.check_pulse(minutes(11), n=1))
    with pytest.raises(KeyboardInterrupt):
        run(dying.check_pulse(minutes(11), n=1) if what == "down" else dying.heartbeat(minutes(12)))

    recorder = Recorder()
    again = checkpoint(recorder, cache=cache)
    run(again.check_pulse(minutes(11), n=1), again.heartbeat(minutes(13)))
    assert recorder.changes == [("down", "weather"), ("recovered", "weather")][what == "recovered" :]
    assert {marker for _, _, marker, *_ in recorder.recorder} == {minutes(0)}


@pytest.mark.parametrize("what", ["down", "recovered"])
def test_a_callback_is_called_again_if_it_was_cancelled(what: str) -> None:
    calls: list[str] = []

    async def call_back(checkpoint: Checkpoint, dependency: Dependency) -> None:
        calls.append("down" if checkpoint.state_marker == minutes(11) and not dependency.checkpoint_marker else "")
        await asyncio.sleep(3600 if len(calls) == (1 if what == "down" else 2) else 0)

    checked = Checkpoint("activities", None, [Dependency("weather", None)], call_back, call_back)

    async def interrupted() -> None:
        await checked.heartbeat(minutes(0))
        for call in (lambda: checked.check_pulse(minutes(11)), lambda: checked.heartbeat(minutes(12))):
            try:
                await asyncio.wait_for(call(), 0.01)
            except TimeoutError:
                await call()

    asyncio.run(interrupted())
    assert len(calls) == 3
    assert not checked.is_paused


@pytest.mark.parametrize("order", [("weather", "traffic"), ("traffic", "weather")])
def test_an_error_of_a_check_is_raised_after_all_dependencies_were_checked(order: tuple[str, str]) -> None:
    def fails(checkpoint: Checkpoint, dependency: Dependency) -> Any:
        raise OSError("the check failed")

    recorder = Recorder()
    dependencies = [Dependency(name, None, 10, fails if name == "weather" else None) for name in order]
    checked = Checkpoint("activities", None, dependencies, recorder.down)

    for pulse in (0, 11):
        with pytest.raises(OSError, match="the check failed"):
            run(checked.check_pulse(pulse))
    assert recorder.changes == [("down", "traffic")]
    assert (checked["weather"].is_down, checked.is_paused) == (False, True)


def test_the_first_of_several_errors_in_checks_and_callbacks_is_raised() -> None:
    def fails(checkpoint: Checkpoint, dependency: Dependency) -> Any:
        raise OSError(dependency.name)

    dependencies = [Dependency("traffic", None, 10), Dependency("weather", None, 10, fails)]
    checked = Checkpoint("activities", None, dependencies, fails)

    with pytest.raises(OSError, match="traffic"):
        run(checked.heartbeat(0, "traffic"), checked.check_pulse(11))


def test_checks_of_the_user_decide_about_downtime_and_recovery() -> None:
    def downtime(checkpoint: Checkpoint, dependency: Dependency) -> Any:
        return "down" if checkpoint.state_marker == "b" else None

    def recovery(checkpoint: Checkpoint, dependency: Dependency) -> bool:
        return bool(dependency.checkpoint_marker == "back")

    checked = Checkpoint("activities", None, [Dependency("weather", None, None, downtime, recovery)])

    assert run(checked.check_pulse("a"), checked.check_pulse("b")) == [None, "down"]
    assert [answer["is_late"] for answer in run(checked.heartbeat("not yet"), checked.heartbeat("zzz back"))] == [
        True,
        True,
    ]
    assert run(checked.check_pulse("c")) == [True]  # there is no difference of texts
    assert checked["weather"].downtime_check is downtime
    assert checked["weather"].recovery_check is recovery


def test_checks_of_the_user_can_be_async_and_accept_any_markers() -> None:
    async def downtime(checkpoint: Checkpoint, dependency: Dependency) -> Any:
        await asyncio.sleep(0)
        return checkpoint.state["behind"] > 2 and checkpoint.state["behind"]

    async def recovery(checkpoint: Checkpoint, dependency: Dependency) -> bool:
        await asyncio.sleep(0)
        return dependency.checkpoint_marker == {"is": "up"}

    checked = Checkpoint("activities", None, [Dependency("weather", None, None, downtime, recovery)])

    assert run(checked.check_pulse({"a": 1}, behind=2), checked.check_pulse({"a": 2}, behind=3)) == [None, 3]
    assert run(checked.heartbeat({"is": "near"}))[0]["is_late"] is True
    assert run(checked.heartbeat({"is": "up"}))[0]["is_late"] is False


def test_check_pulse_returns_the_downtime_of_the_first_name_if_downtimes_cannot_be_compared() -> None:
    dependencies = [
        Dependency("weather", None, downtime_check=lambda checkpoint, dependency: "long"),
        Dependency("traffic", None, downtime_check=lambda checkpoint, dependency: 7),
    ]

    for order in (dependencies, dependencies[::-1]):
        assert run(Checkpoint("activities", None, order).check_pulse(1)) == [7]


# Caches


@pytest.fixture(params=["dict", "sqlite"])
def reopened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], MutableMapping[str, Any]]]:
    """Returns a function that closes the cache and opens it again."""
    mapping: dict[str, Any] = {}
    opened: list[SqliteCache] = []

    def reopen() -> MutableMapping[str, Any]:
        if request.param == "dict":
            return mapping
        for cache in opened:
            cache.close()
        opened.append(SqliteCache(tmp_path / "cache.db"))
        return opened[-1]

    yield reopen
    for cache in opened:
        cache.close()


@pytest.mark.parametrize(
    ("markers", "threshold"),
    [
        ([minutes(0), minutes(11), minutes(12)], timedelta(minutes=10)),
        ([minutes(m).replace(tzinfo=timezone.utc) for m in (0, 11, 12)], timedelta(minutes=10)),
        ([date(2025, 1, 1), date(2025, 1, 3), date(2025, 1, 4)], timedelta(days=1)),
        ([timedelta(0), timedelta(3), timedelta(4)], timedelta(2)),
        ([0, 11, 12], 10),
        ([0.5, 11.5, 12.25], 10),
    ],
    ids=["naive", "aware", "date", "timedelta", "int", "float"],
)
def test_downtime_state_and_markers_are_restored_from_a_cache(
    reopened: Callable[[], MutableMapping[str, Any]], markers: list[Any], threshold: Any
) -> None:
    first, down_at, back = markers
    before = checkpoint(cache=reopened(), threshold=threshold)
    run(before.check_pulse(first, offset=1), before.heartbeat(first), before.check_pulse(down_at, offset=2))

    recorder = Recorder()
    after = checkpoint(recorder, cache=reopened(), threshold=threshold)
    assert after["weather"].is_down
    assert after.is_paused
    assert repr(after) == repr(before)

    assert run(after.check_pulse(down_at, offset=2)) == [down_at - first]
    run(after.heartbeat(back))
    assert recorder.recorder == [("recovered", "weather", first, {"offset": 1}, {"offset": 2})]

    last = checkpoint(cache=reopened(), threshold=threshold)
    assert (last["weather"].is_down, last["weather"].checkpoint_marker) == (False, back)
    assert not last.is_paused


def test_the_first_heartbeat_after_a_restart_replaces_the_assumed_marker(
    reopened: Callable[[], MutableMapping[str, Any]],
) -> None:
    run(checkpoint(cache=reopened()).check_pulse(minutes(0)))
    run(checkpoint(cache=reopened()).heartbeat(minutes(-5)))
    run(checkpoint(cache=reopened()).heartbeat(minutes(-6)))

    assert checkpoint(cache=reopened())["weather"].checkpoint_marker == minutes(-5)


def test_a_cache_that_evaluates_to_false_is_used() -> None:
    class Falsy(dict[str, Any]):
        def __bool__(self) -> bool:
            return False

    cache = Falsy()
    run(checkpoint(cache=cache).check_pulse(minutes(0), offset=1))

    assert checkpoint(cache=cache).state == {"offset": 1}


def test_a_checkpoint_without_a_cache_has_no_state_after_a_restart() -> None:
    run(checkpoint().check_pulse(minutes(0), offset=1))

    assert (checkpoint().state, checkpoint().state_marker) == ({}, None)


def test_changing_the_state_of_a_checkpoint_does_not_change_its_cache() -> None:
    cache: dict[str, Any] = {}
    before = checkpoint(cache=cache)
    run(before.check_pulse(minutes(0), seen=["a"]))
    before.state["seen"].append("b")
    after = checkpoint(cache=cache)
    after.state["seen"].append("c")

    assert checkpoint(cache=cache).state == {"seen": ["a"]}


def test_checkpoints_and_dependencies_have_different_keys_in_a_cache() -> None:
    cache: dict[str, Any] = {}
    names = [("a", "b"), ("a/b", "c"), ("a", "b/c"), ("a%2Fb", "c"), ("", "a"), ("state", "state_marker")]
    checkpoints = [
        [Checkpoint(name, None, [Dependency(needs, None, 10)], cache=cache) for name, needs in names] for _ in range(2)
    ]
    for n, checked in enumerate(checkpoints[0]):
        run(checked.check_pulse(n, n=n))

    assert len(cache) == 2 * len(names) - 1  # two are the same checkpoint with different dependencies
    for n, (name, needs) in enumerate(names):
        again = Checkpoint(name, None, [Dependency(needs, None, 10)], cache=cache)
        assert again[needs].checkpoint_marker == n
        assert name == "a" or again.state == {"n": n}


def test_checkpoints_with_different_prefixes_share_a_cache() -> None:
    cache: dict[str, Any] = {}
    for marker, prefix in enumerate(("_", "mine")):
        run(checkpoint(cache=cache, cache_key_prefix=prefix).check_pulse(minutes(marker)))

    assert list(cache) == ["_/activities", "_/activities/weather", "mine/activities", "mine/activities/weather"]
    assert checkpoint(cache=cache, cache_key_prefix="mine").state_marker == minutes(1)


def test_the_entries_of_a_cache_and_the_repr_of_a_checkpoint_have_these_names() -> None:
    cache: dict[str, Any] = {}
    checked = checkpoint(cache=cache)
    run(checked.check_pulse(minutes(0), offset=1))

    assert cache["_/activities"] == {STATE_NAME: {"offset": 1}, STATE_MARKER_NAME: minutes(0)}
    entry = cache["_/activities/weather"]
    assert (entry[CHECKPOINT_STATE_NAME], entry[CHECKPOINT_MARKER_NAME]) == ({"offset": 1}, minutes(0))
    shown = {CHECKPOINT_STATE_NAME: {"offset": 1}, CHECKPOINT_MARKER_NAME: minutes(0)}
    assert repr(checked) == repr({**cache["_/activities"], CHECKPOINTS_NAME: {"weather": shown}})
    names = (STATE_NAME, STATE_MARKER_NAME, CHECKPOINT_STATE_NAME, CHECKPOINT_MARKER_NAME, CHECKPOINTS_NAME)
    assert names == ("state", "state_marker", "checkpoint_state", "checkpoint_marker", "checkpoints")


@pytest.mark.parametrize("cache", ["cache.db", Path("cache.db"), b"cache.db", 7, ()])
def test_the_error_for_a_value_that_is_not_a_cache_names_sqlite_cache(cache: Any) -> None:
    with pytest.raises(
        DependencyError, match=r"activities: cache must be a mutable mapping like SqliteCache\(path\), not "
    ):
        checkpoint(cache=cache)


@pytest.mark.parametrize("entry", [5, "text", [1], {}, {"state": {}}, {"state": None, "state_marker": 1}])
@pytest.mark.parametrize("key", ["_/activities", "_/activities/weather"])
def test_an_entry_of_a_cache_that_no_checkpoint_stored_is_an_error(key: str, entry: Any, tmp_path: Path) -> None:
    cache = SqliteCache(tmp_path / "cache.db")
    cache[key] = entry

    with pytest.raises(
        DependencyError,
        match=f"the entry '{key}' in the cache SqliteCache.* was not stored by a Checkpoint: remove the entry",
    ):
        checkpoint(cache=cache)
    cache.close()


@pytest.mark.parametrize("value", [b"\xc1", b"", b"\x01\x01", "text", 7, msgpack.packb(msgpack.ExtType(9, b"x"))])
def test_a_damaged_entry_of_a_sqlite_cache_is_an_error(value: Any, tmp_path: Path) -> None:
    cache = SqliteCache(tmp_path / "cache.db")
    run(checkpoint(cache=cache).check_pulse(minutes(0)))
    with sqlite3.connect(tmp_path / "cache.db") as database:
        database.execute("UPDATE entries SET value = ?", (value,))
    database.close()

    with pytest.raises(DependencyError, match=r"the entry '_/activities' of .*cache\.db cannot be read: delete it"):
        cache["_/activities"]
    with pytest.raises(
        DependencyError, match=r"cannot read '_/activities' from cache SqliteCache\('.*cache\.db'\): check the cache"
    ):
        checkpoint(cache=cache)
    cache.close()


def test_a_cache_that_cannot_be_read_is_an_error() -> None:
    with pytest.raises(
        DependencyError, match=r"cannot read '_/activities' from cache \[\]: check the cache \(list indices must be"
    ):
        checkpoint(cache=[])


def test_a_sqlite_cache_can_be_used_by_several_threads(tmp_path: Path) -> None:
    cache = SqliteCache(tmp_path / "cache.db")
    checked = checkpoint(cache=cache)
    in_a_thread(checked.heartbeat(minutes(1))).join()

    assert checkpoint(cache=cache)["weather"].checkpoint_marker == minutes(1)
    cache.close()


def test_a_dependency_can_be_saved_and_loaded_without_a_checkpoint() -> None:
    cache: dict[str, Any] = {}
    Dependency("weather", None).save(cache, "mine/", {"offset": 1}, minutes(0))
    loaded = Dependency("weather", None)
    loaded.load(cache, "mine/")
    unknown = Dependency("tides", None)
    unknown.load(cache, "mine/")

    assert dict(loaded) == {"checkpoint_state": {"offset": 1}, "checkpoint_marker": minutes(0)}
    assert dict(unknown) == {"checkpoint_state": None, "checkpoint_marker": None}


def test_a_sqlite_cache_is_a_mapping(tmp_path: Path) -> None:
    value = {"a": [None, True, -1, 0.5, "é", b"\x00", minutes(0), date(2025, 1, 1), timedelta(days=-1, microseconds=1)]}
    cache = SqliteCache(tmp_path / "cache.db")
    cache["b"] = cache["a"] = value
    cache["a"] = (1, {2: "two"})

    assert dict(cache) == {"a": [1, {2: "two"}], "b": value}
    assert (len(cache), "a" in cache, cache.pop("a"), "a" in cache) == (2, True, [1, {2: "two"}], False)
    with pytest.raises(KeyError, match="a"):
        del cache["a"]
    cache.close()


@pytest.mark.parametrize("value", [object(), {"a": {1}}, 1 << 64], ids=["object", "set", "int"])
def test_a_value_that_a_sqlite_cache_cannot_store_is_an_error(value: Any, tmp_path: Path) -> None:
    cache = SqliteCache(tmp_path / "cache.db")

    with pytest.raises(DependencyError, match="cannot store"):
        cache["a"] = value
    cache.close()


def test_a_path_that_is_not_a_sqlite_cache_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("this is not a database, but it is long enough to be read like one\n" * 100)
    with sqlite3.connect(tmp_path / "other.db") as other:
        other.execute("CREATE TABLE entries (id INTEGER)")
    other.close()

    for path in (tmp_path, tmp_path / "nowhere" / "cache.db", tmp_path / "text", tmp_path / "other.db"):
        with pytest.raises(DependencyError, match="cannot be used"):
            SqliteCache(path)


def test_a_closed_sqlite_cache_is_an_error(tmp_path: Path) -> None:
    cache = SqliteCache(tmp_path / "cache.db")
    checked = checkpoint(cache=cache)
    cache.close()

    with pytest.raises(DependencyError, match="cannot be used"):
        run(checked.check_pulse(minutes(0)))


class Rides(Handler):
    """Checks the dependency of each key by itself, with the key's state as a cache."""

    stored = MapSpec(str, Any)
    changes = SinkSpec(str)

    def key_event(self, record: tuple[str, int]) -> KeyedEvent[Any]:
        key, minute = record
        return KeyedEvent(key, minutes(minute).replace(tzinfo=timezone.utc))

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        def collect(checkpoint: Checkpoint, dependency: Dependency) -> None:
            self.changes.collect(subject, f"{subject.key} {'down' if dependency.is_down else 'recovered'}")

        cache = self.stored.state_for(subject)
        checked = Checkpoint("rides", None, [Dependency("weather", None)], collect, collect, cache=cache)
        if subject.source == "weather":
            run_sync(checked.heartbeat(event.timestamp))
        else:
            run_sync(checked.check_pulse(event.timestamp))


@pytest.mark.parametrize("notebook", [False, True])
def test_the_state_of_a_key_can_be_the_cache_of_a_checkpoint(notebook: bool) -> None:
    job = Job("rides", Rides(), {"rides": MemorySource(), "weather": MemorySource()}, {"changes": MemorySink()})
    test_run = TestRun(job)
    for source, key, minute in (
        ("weather", "Delft", 0),
        ("weather", "Ghent", 0),
        ("rides", "Delft", 5),
        ("rides", "Ghent", 11),
        ("weather", "Delft", 12),
        ("rides", "Delft", 13),
        ("weather", "Ghent", 14),
    ):
        test_run.add_record((key, minute), source).end_batch().restart()

    async def within_a_loop() -> Any:
        return test_run.run()

    result = asyncio.run(within_a_loop()) if notebook else test_run.run()
    assert result.records("changes") == ["Ghent down", "Ghent recovered"]
    assert result.state(Rides.stored, "Delft")["_/rides"]["state_marker"] == minutes(13).replace(tzinfo=timezone.utc)


# Synchronous calls


def test_run_sync_runs_a_coroutine_that_does_not_wait_inside_and_outside_an_event_loop() -> None:
    checked = checkpoint()

    async def within_a_loop() -> Any:
        run_sync(checked.heartbeat(minutes(0)))
        return run_sync(checked.check_pulse(minutes(11)))

    assert asyncio.run(within_a_loop()) == timedelta(minutes=11)
    assert run_sync(checked.check_pulse(minutes(12))) == timedelta(minutes=12)


@pytest.mark.parametrize("seconds", [0, 60])
def test_run_sync_of_a_coroutine_that_waits_is_an_error(seconds: float) -> None:
    ended: list[str] = []

    async def waits() -> None:
        try:
            await asyncio.sleep(seconds)
        finally:
            ended.append("ended")

    async def within_a_loop() -> None:
        run_sync(waits())

    for call in (lambda: run_sync(waits()), lambda: asyncio.run(within_a_loop())):
        with pytest.raises(DependencyError, match="the coroutine waits for something: await the coroutine"):
            call()
    assert ended == ["ended", "ended"]


def test_run_sync_raises_the_error_of_the_coroutine() -> None:
    async def fails() -> None:
        raise RuntimeError("it failed")

    with pytest.raises(RuntimeError, match="it failed"):
        run_sync(fails())


# Streams


async def items(*values: Any) -> AsyncIterator[Any]:
    for item in values:
        await asyncio.sleep(0)
        yield item


def process_streams(limit: float = 5) -> None:
    async def within() -> None:
        await asyncio.wait_for(stream(), limit)

    asyncio.run(within())


def watched(*checkpoints: Checkpoint) -> list[Any]:
    """Handle the streams of checkpoints. Return a list, to which items of dependent streams are added."""
    seen: list[Any] = []

    def handled(checked: Checkpoint) -> None:
        async def activity(minute: int) -> None:
            seen.append(minute)
            await checked.check_pulse(minute)

        handle(checked.dependent)(activity)
        for dependency in checked.dependencies.values():
            if dependency.dependency is not None:
                handle(dependency.dependency)(checked.heartbeat)

    for checked in checkpoints:
        handled(checked)
    return seen


def in_a_thread(call: Coroutine[Any, Any, Any]) -> Thread:
    """Start to await a coroutine in another thread, with another event loop."""
    thread = Thread(target=run, args=(call,))
    thread.start()
    return thread


def test_the_dependent_stream_waits_while_a_dependency_is_down() -> None:
    down = asyncio.Event()

    async def late_weather() -> AsyncIterator[int]:
        yield 0
        await down.wait()
        for _ in range(5):
            await asyncio.sleep(0)
        for minute in (5, 10, 15, 20, 21):
            yield minute

    activities, weather = items(1, 9, 20, 22, 23), late_weather()
    recoveries: list[tuple[int, list[int]]] = []

    async def recovered(checkpoint: Checkpoint, dependency: Dependency) -> None:
        for _ in range(5):
            await asyncio.sleep(0)  # no stream continues before the callback ends
        recoveries.append((dependency.checkpoint_marker, seen.copy()))

    checked = Checkpoint(
        "activities",
        activities,
        [Dependency("weather", weather, 10)],
        lambda checkpoint, dependency: down.set(),
        recovered,
    )
    seen = watched(checked)

    process_streams()
    assert seen == [1, 9, 20, 22, 23]
    assert recoveries == [(21, [1, 9, 20])]


def test_the_dependent_stream_is_not_paused_with_pause_dependent_false() -> None:
    activities = items(1, 20, 21)
    checked = Checkpoint("activities", activities, [Dependency("weather", None, 10)], pause_dependent=False)
    downtimes = []

    @handle(activities)
    async def activity(minute: int) -> None:
        downtimes.append(await checked.check_pulse(minute))

    process_streams()
    assert downtimes == [None, 19, 20]
    assert checked["weather"].is_down
    assert not checked.is_paused


def test_a_paused_dependent_stream_stays_paused_after_a_restart() -> None:
    cache: dict[str, Any] = {}
    before = checkpoint(cache=cache, threshold=10)
    run(before.check_pulse(0), before.check_pulse(11))
    activities, weather = items(12), items(5, 13)
    checked = Checkpoint("activities", activities, [Dependency("weather", weather, 10)], cache=cache)
    seen = []

    @handle(activities, weather)
    async def either(minute: int) -> None:
        seen.append(minute)
        if minute != 12:
            await checked.heartbeat(minute)

    process_streams()
    assert seen == [5, 13, 12]


@pytest.mark.parametrize("last", ["weather", "tides"])
def test_the_dependent_stream_of_two_checkpoints_waits_for_both(last: str) -> None:
    activities = items(0, 20, 21)
    checkpoints = [Checkpoint("activities", activities, [Dependency(name, None, 10)]) for name in ("weather", "tides")]
    seen: list[Any] = []

    @handle(activities)
    async def activity(minute: int) -> None:
        seen.append(minute)
        for checked in checkpoints:
            await checked.check_pulse(minute)

    async def beat(checked: Checkpoint) -> None:
        (name,) = checked.dependencies
        await asyncio.sleep(0.02 if name == last else 0.01)
        await checked.heartbeat(21)
        seen.append(name)

    async def all_of_them() -> None:
        await asyncio.gather(stream(), *map(beat, checkpoints))

    asyncio.run(asyncio.wait_for(all_of_them(), 5))
    assert seen[:2] == [0, 20]
    assert seen[3:] == [last, 21]


def test_the_dependent_stream_resumes_after_the_recovery_callback() -> None:
    recovering = asyncio.Event()

    async def comes_meanwhile() -> AsyncIterator[int]:
        yield 0
        yield 20
        await recovering.wait()
        yield 21

    async def recovered(checkpoint: Checkpoint, dependency: Dependency) -> None:
        recovering.set()
        await asyncio.sleep(0.01)
        seen.append("recovered")

    weather = items(*[0] * 10, 30)
    seen = watched(
        Checkpoint("activities", comes_meanwhile(), [Dependency("weather", weather, 10)], None, recovered),
    )

    process_streams()
    assert seen == [0, 20, "recovered", 21]


def test_handlers_of_streams_can_be_functions_generators_and_async_with_any_number_of_sinks() -> None:
    source = items(1, 2)
    results: list[Any] = []

    async def later(value: Any) -> None:
        await asyncio.sleep(0)
        results.append(("later", value))

    @handle(source)
    def plain(item: int) -> str:
        return "without a sink"

    @handle(source, sink=results.append)
    def nothing(item: int) -> None:
        return None

    @handle(source, sink=results.append)
    async def one(item: int) -> Any:
        return item

    @handle(source, sink=(results.append, later))
    def several(item: int) -> Iterator[Any]:
        yield item * 10
        yield item * 100

    @handle(source, sink=later)
    async def several_later(item: int) -> AsyncIterator[Any]:
        yield item * 1000

    process_streams()
    assert results == [
        value
        for n in (1, 2)
        for value in (n, n * 10, ("later", n * 10), n * 100, ("later", n * 100), ("later", n * 1000))
    ]
    assert plain(1) == "without a sink"  # a handler can still be called


def test_each_stream_is_processed_once() -> None:
    source = items(1)
    seen: list[int] = []
    handle(source, sink=seen.append)(lambda item: item)
    process_streams()
    process_streams()

    assert seen == [1]


def test_an_error_in_a_handler_ends_all_streams() -> None:
    closed: list[str] = []

    async def endless() -> AsyncIterator[int]:
        try:
            while True:
                await asyncio.sleep(0)
                yield 1
        finally:
            closed.append("endless")

    ticks, bad = endless(), items(1, 2)
    handle(ticks)(lambda item: None)

    @handle(bad)
    def fails(item: int) -> None:
        if item == 2:
            raise OSError("the handler failed")

    async def both() -> None:
        with pytest.raises(OSError, match="the handler failed"):
            await stream()
        assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []

    asyncio.run(both())
    assert closed == ["endless"]


def test_a_warning_is_logged_if_all_remaining_streams_are_paused(caplog: pytest.LogCaptureFixture) -> None:
    checked = Checkpoint("activities", items(0, 20, 21), [Dependency("weather", items(0), 10)])
    watched(checked)

    with caplog.at_level(logging.WARNING, "amadou"), pytest.raises(TimeoutError):
        process_streams(0.1)
    (record,) = caplog.records
    assert record.getMessage() == (
        "all remaining streams are paused (checkpoints: activities): call heartbeat in another task to resume"
    )


def test_the_dependent_stream_resumes_if_its_dependency_recovers_with_the_last_event(
    caplog: pytest.LogCaptureFixture,
) -> None:
    checked = Checkpoint("activities", items(0, 20, 21), [Dependency("weather", items(*[0] * 10, 21), 10)])
    seen = watched(checked)

    process_streams()
    assert seen == [0, 20, 21]
    assert caplog.records == []


def test_a_heartbeat_from_another_task_resumes_the_dependent_stream() -> None:
    def beat_later(checkpoint: Checkpoint, dependency: Dependency) -> None:
        asyncio.get_running_loop().call_later(0.01, lambda: beats.append(asyncio.create_task(checkpoint.heartbeat(21))))

    beats: list[asyncio.Task[Any]] = []
    checked = Checkpoint("activities", items(0, 20, 21), [Dependency("weather", None, 10)], beat_later)
    seen = watched(checked)

    process_streams()
    assert seen == [0, 20, 21]


def test_a_heartbeat_from_another_thread_resumes_the_dependent_stream() -> None:
    async def beat(checkpoint: Checkpoint) -> dict[str, Any]:
        await asyncio.sleep(0.05)
        return await checkpoint.heartbeat(21)

    def beat_elsewhere(checkpoint: Checkpoint, dependency: Dependency) -> None:
        threads.append(in_a_thread(beat(checkpoint)))

    threads: list[Thread] = []
    checked = Checkpoint("activities", items(0, 20, 21), [Dependency("weather", None, 10)], beat_elsewhere)
    seen = watched(checked)

    process_streams()
    assert seen == [0, 20, 21]
    threads[0].join()


def test_a_heartbeat_from_another_thread_at_the_start_of_waiting_is_not_missed() -> None:
    async def waits(checked: Checkpoint) -> None:
        began = time.monotonic()
        thread = in_a_thread(checked.heartbeat(21))
        await asyncio.wait_for(checked.resumed(), 5)
        thread.join()
        assert time.monotonic() - began < 4

    for _ in range(100):
        checked = checkpoint(threshold=10)
        run(checked.check_pulse(0), checked.check_pulse(20), waits(checked))


def test_a_checkpoint_can_be_awaited_in_several_event_loops_one_after_the_other() -> None:
    checked = checkpoint(threshold=10)
    run(checked.check_pulse(0), checked.check_pulse(20))

    for _ in range(2):
        with pytest.raises(TimeoutError):
            run(asyncio.wait_for(checked.resumed(), 0.01))
    assert run(checked.heartbeat(21), checked.resumed())[0]["is_late"] is False


def test_waiting_in_an_event_loop_ends_even_if_another_waiting_event_loop_is_closed() -> None:
    checked = checkpoint(threshold=10)
    run(checked.check_pulse(0), checked.check_pulse(20))
    loop = asyncio.new_event_loop()
    left = loop.create_task(checked.resumed())
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    thread = in_a_thread(checked.resumed())

    run(checked.heartbeat(21))
    thread.join(5)
    assert not thread.is_alive()
    assert not left.done()


def test_a_checkpoint_can_be_copied() -> None:
    checked = Checkpoint("activities", None, [Dependency("weather", None, 10)])
    run(checked.check_pulse(0), checked.check_pulse(20))
    copied = deepcopy(checked)
    run(checked.heartbeat(21))

    assert (checked.is_paused, copied.is_paused) == (False, True)


@pytest.mark.parametrize("streams", [[1, 2], items, "text", None])
def test_a_stream_that_is_not_an_async_iterable_is_an_error(streams: Any) -> None:
    with pytest.raises(DependencyError, match="streams must be async iterables, such as async generators, not "):
        handle(streams)


def test_streams_of_two_checkpoints_with_the_same_name_are_paused_and_resumed() -> None:
    weather = items(*[0] * 20, 21)
    checkpoints = [Checkpoint("same", items(0, 20, 21), [Dependency("weather", weather, 10)]) for _ in range(2)]
    seen = watched(*checkpoints)

    process_streams()
    assert sorted(seen) == [0, 0, 20, 20, 21, 21]


def test_values_of_a_heartbeat_are_added_to_the_state_of_the_dependency() -> None:
    checked = checkpoint()
    run(checked.check_pulse(minutes(0), offset=1), checked.heartbeat(minutes(1), batch=7))
    assert checked["weather"].checkpoint_state == {"offset": 1, "batch": 7}
    assert checked.state == {"offset": 1}


def test_a_sqlite_cache_refuses_keys_that_it_could_not_read(tmp_path: Path) -> None:
    cache = SqliteCache(tmp_path / "cache.db")
    with pytest.raises(DependencyError, match="cannot store"):
        cache["offsets"] = {("topic", 0): 5}
    assert list(cache) == []
    cache.close()


def test_the_downtime_of_a_dependency_that_caught_up_but_is_not_ahead_is_zero() -> None:
    checked = checkpoint()
    run(checked.heartbeat(minutes(0)), checked.check_pulse(minutes(11)), checked.heartbeat(minutes(11)))
    assert run(checked.check_pulse(minutes(11))) == [timedelta(0)]
