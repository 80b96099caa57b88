"""Faults that hit the processes of a run (`FaultedRun`), and the views of state on their disks."""

import os
import shutil
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from attrs import frozen
from tests.qualify import moments
from tests.qualify.faulted_run import FaultedRun
from tests.spark.clusters import command_of, descendants, paths


@frozen
class Fault:
    """A kind of fault.

    :param disturb: disturbs a run, and returns what was done
    :param ends_run: `True` if the program ends, and has to be started again
    """

    name: str
    disturb: Callable[[FaultedRun], str]
    ends_run: bool = False


def _program_pid(run: FaultedRun) -> int:
    assert run.running is not None
    return run.running.pid


def end_of(run: FaultedRun) -> int:
    assert run.running is not None
    return run.running.wait()


def _kill_driver(run: FaultedRun) -> str:
    """Kill the Python process of the job file. Java notices it, and ends."""
    os.kill(_program_pid(run), signal.SIGKILL)
    assert end_of(run) == -signal.SIGKILL
    return f"pid {_program_pid(run)}"


def _kill_java(run: FaultedRun) -> str:
    """Kill the driver's Java. The Python process ends with an error."""
    pid = next(
        pid for pid in descendants(_program_pid(run)) if "org.apache.spark.deploy.SparkSubmit" in command_of(pid)
    )
    os.kill(pid, signal.SIGKILL)
    assert end_of(run) not in (0, -signal.SIGKILL), run.running and run.running.log
    return f"pid {pid}"


def _kill_all(run: FaultedRun) -> str:
    """Kill driver and Java at once."""
    assert run.running is not None
    run.running.stop(signal.SIGKILL)
    return f"group {run.running.pid}"


def _interrupt(run: FaultedRun) -> str:
    """Press Ctrl-C. The run ends after the batch in hand."""
    assert run.running is not None
    run.running.stop(signal.SIGINT)
    return "ended after the batch"


def at_commit(moment: str | None = None, *, whole_group: bool | None = None) -> Fault:
    """Kill the driver in a commit: before the sinks, between two, after the last one, or before Spark's own commit.

    :param moment: drawn by default, as is `whole_group`
    """

    def kill(run: FaultedRun) -> str:
        between = range(len(run.setup.sinks) + 1)
        known = [moments.COMPLETED, *(f"{stage} {number}" for stage in run.stages for number in between)]
        chosen = run.drawn.choice(known) if moment is None else moment
        group = run.drawn.random() < 0.5 if whole_group is None else whole_group
        moments.ask(run.directory, chosen, whole_group=group)
        assert end_of(run) == -signal.SIGKILL, run.running and run.running.log
        assert moments.has_died(run.directory)
        return f"at {chosen!r}, {'driver and Java' if group else 'driver'}"

    return Fault("commit", kill, ends_run=True)


def _kill_in_task(run: FaultedRun) -> str:
    """Kill a Python worker that has written its part of a batch."""
    moments.ask(run.directory, moments.TASK, whole_group=False)
    assert run.running is not None
    run.running.wait_for(lambda: moments.has_died(run.directory))
    return "as it finished its part"


def _below(run: FaultedRun) -> list[int]:
    cluster = run.systems.cluster
    roots = [_program_pid(run)] if cluster is None else [worker.pid for worker in cluster.workers.values()]
    return [pid for root in roots for pid in descendants(root)]


def _until(run: FaultedRun, candidates: Callable[[], list[int]]) -> int:
    """Kill one of the processes, as soon as there is one. Return its number."""
    assert run.running is not None
    killed: list[int] = []

    def kill() -> bool:
        with suppress(ProcessLookupError, IndexError):
            pid = run.drawn.choice(candidates())
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)
        return bool(killed)

    run.running.wait_for(kill)
    return killed[0]


def _daemons(run: FaultedRun) -> list[int]:
    """The processes that fork the workers of tasks. A worker has the same command as the process that forked it."""
    forked = [pid for pid in _below(run) if "pyspark.daemon" in command_of(pid)]
    return [pid for pid in forked if parent_of(pid) not in forked]


def parent_of(pid: int) -> int:
    with suppress(OSError, IndexError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


def _kill_worker(run: FaultedRun) -> str:
    def workers() -> list[int]:
        return [pid for daemon in _daemons(run) for pid in descendants(daemon)]

    return f"pid {_until(run, workers)}"


def _kill_daemon(run: FaultedRun) -> str:
    return f"pid {_until(run, lambda: _daemons(run))}"


def _kill_executor(run: FaultedRun) -> str:
    def executors() -> list[int]:
        return [pid for pid in _below(run) if "CoarseGrainedExecutorBackend" in command_of(pid)]

    return f"pid {_until(run, executors)}"


def _kill_cluster_worker(run: FaultedRun) -> str:
    """Kill a worker of the cluster, with its executors, and start another one."""
    cluster = run.systems.cluster
    assert cluster is not None
    name = run.drawn.choice(sorted(cluster.workers))
    pid = cluster.workers[name].pid
    os.killpg(pid, signal.SIGKILL)
    cluster.workers[name].wait()
    cluster.start_worker(name)
    return f"pid {pid}"


def _lose_view(run: FaultedRun) -> str:
    view = _some_view(run)
    shutil.rmtree(view, ignore_errors=True)
    return f"range {view.name}"


def _some_view(run: FaultedRun) -> Path:
    assert run.running is not None
    run.running.wait_for(lambda: bool(run.views()))
    return run.drawn.choice(run.views())


def _tear_view(run: FaultedRun) -> str:
    """Write into one of the files of a view, or cut it off."""
    assert run.running is not None
    done: list[str] = []

    def tear() -> bool:
        view = _some_view(run)
        files = sorted(path for path in paths(view) if path.name.startswith(("data", "pending", "current")))
        with suppress(IndexError, ValueError, FileNotFoundError):  # no file, an empty one, or one just removed
            file = run.drawn.choice(files)
            size = file.stat().st_size
            with file.open("r+b") as opened:
                opened.seek(run.drawn.randrange(size))
                opened.write(run.drawn.randbytes(5000)) if run.drawn.random() < 0.5 else opened.truncate()
            done.append(f"range {view.name}, {file.name.partition('-')[0]} of {size:,} bytes")
        return bool(done)

    run.running.wait_for(tear)
    return done[0]


DRIVER = Fault("driver", _kill_driver, ends_run=True)
JAVA = Fault("jvm", _kill_java, ends_run=True)
ALL = Fault("driver and jvm", _kill_all, ends_run=True)
INTERRUPT = Fault("Ctrl-C", _interrupt, ends_run=True)
COMMIT = at_commit()
TASK = Fault("task", _kill_in_task)
WORKER = Fault("worker", _kill_worker)
DAEMON = Fault("daemon", _kill_daemon)
EXECUTOR = Fault("executor", _kill_executor)
CLUSTER_WORKER = Fault("cluster worker", _kill_cluster_worker)
LOST_VIEW = Fault("lost view", _lose_view)
TORN_VIEW = Fault("torn view", _tear_view)
