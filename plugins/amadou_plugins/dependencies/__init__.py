"""Streams that depend on other streams: detects when a dependency goes down, and when it is back.

In a job, `DependsOn` declares a source's dependency on another::

    job = Job(
        "enrich",
        handler=Enrich(),
        sources={"activities": …, "weather": …},
        sinks={"enriched": …},
        dependencies=[DependsOn("activities", on="weather", threshold=timedelta(minutes=10))],
    )

While the weather is silent, events of the activities are held in the state, in their order, and other events are
processed. A handler may define the callbacks of `amadou.dependencies.DependencyCallbacks`.

`Checkpoint` and `Dependency` apply the same rules without a job: in one process, to async iterables that `handle` and
`stream` process, with a cache that outlives the process, such as `SqliteCache`. Synchronous code calls them through
`run_sync`.
"""

from amadou import DependsOn
from amadou_plugins.dependencies._checkpoint import CHECKPOINTS_NAME, STATE_MARKER_NAME, STATE_NAME, Checkpoint
from amadou_plugins.dependencies._dependency import CHECKPOINT_MARKER_NAME, CHECKPOINT_STATE_NAME, Cache, Dependency
from amadou_plugins.dependencies._errors import DependencyError, MarkerError
from amadou_plugins.dependencies._run_sync import run_sync
from amadou_plugins.dependencies._sqlite import SqliteCache
from amadou_plugins.dependencies._streams import handle, stream

__all__ = [
    "CHECKPOINTS_NAME",
    "CHECKPOINT_MARKER_NAME",
    "CHECKPOINT_STATE_NAME",
    "STATE_MARKER_NAME",
    "STATE_NAME",
    "Cache",
    "Checkpoint",
    "Dependency",
    "DependencyError",
    "DependsOn",
    "MarkerError",
    "SqliteCache",
    "handle",
    "run_sync",
    "stream",
]
