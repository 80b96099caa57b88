"""Reads the state of a run for its plugins."""

from collections.abc import Mapping
from typing import Any

import attrs

from amadou import Job
from amadou_runtime.savepoint.stored_keys import find_key, key_document
from amadou_runtime.spark.savepoints.biggest_keys import find_biggest_keys
from amadou_runtime.spark.savepoints.checkpoint_state import CheckpointState


@attrs.frozen
class RunState:
    """See `amadou.StateReader`.

    :param spark: the run's `SparkSession`, which is used only if the checkpoint's files cannot be read directly
    :param checkpoint: the checkpoint, as an absolute path or a URI
    """

    spark: Any
    checkpoint: str
    job: Job

    def find(self, key: str) -> Mapping[str, Any] | None:
        state = CheckpointState(self.checkpoint, lambda: self.spark)
        found = find_key(state, key, self.job)
        return None if found is None else key_document(found, state)

    def biggest(self, limit: int) -> Mapping[str, Any]:
        return find_biggest_keys(self.checkpoint, limit)
