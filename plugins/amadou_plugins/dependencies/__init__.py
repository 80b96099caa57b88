"""Dependencies between streams: detects when a stream's dependency goes down or recovers.

In a job, `DependsOn` declares that a source depends on another source::

    job = Job(
        "enrich",
        handler=Enrich(),
        sources={"activities": …, "weather": …},
        sinks={"enriched": …},
        dependencies=[DependsOn("activities", on="weather", threshold=timedelta(minutes=10))],
    )

While the source `weather` is down, amadou holds activities in the state, in the order in which they arrived. Events
from other sources are processed as usual. To react to an outage or a recovery, a handler can define the callbacks of
`amadou.dependencies.DependencyCallbacks`.

`Checkpoint` and `Dependency` apply the same rules without a job, in a single process. `handle` and `stream` process
async iterables. A cache such as `SqliteCache` preserves the progress of a `Checkpoint` and its dependencies across
restarts of the process. Synchronous code can run a coroutine through `run_sync` if the coroutine does not wait for
anything.
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
