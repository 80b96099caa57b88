"""Reads the state of a run for its plugins."""

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from amadou import Job
from amadou_runtime.jobs.stages import stage_named
from amadou_runtime.savepoint.stored_keys import find_key, key_document
from amadou_runtime.spark.savepoints.biggest_keys import find_biggest_keys
from amadou_runtime.spark.savepoints.checkpoint_state import CheckpointState


@attrs.frozen
class RunState:
    """See `amadou.plugins.StateReader`.

    :param spark: function that returns a `SparkSession`. It is called only if the checkpoint's files cannot be read
        directly
    :param checkpoint: the checkpoint, as an absolute path or a URI
    :param job: the job, whose types the values then have; `None` to show values as they are stored
    """

    spark: Callable[[], Any]
    checkpoint: str
    job: Job | None

    def find(self, key: str, stage: str = "") -> Mapping[str, Any] | None:
        state = CheckpointState(self.checkpoint, self.spark, stage)
        owner = None if self.job is None else stage_named(self.job, state.job)
        found = find_key(state, key, None if self.job is None or owner is None else self.job.by_stage[owner])
        return None if found is None else key_document(found, state)

    def biggest(self, limit: int, stage: str = "") -> Mapping[str, Any]:
        return find_biggest_keys(self.checkpoint, limit, stage)
