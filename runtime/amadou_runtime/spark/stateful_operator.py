"""Connects a stage with the Spark operator of the checkpoint's store."""

from typing import Any

from amadou_runtime.spark.checkpoint import CheckpointMetadata
from amadou_runtime.spark.groups_stage import on_groups
from amadou_runtime.spark.session import check_log_store
from amadou_runtime.spark.stateful_stage import Stage


def stateful_results(rows: Any, stage: Stage, identity: CheckpointMetadata) -> Any:
    """Return the results of a stage for keyed rows, with the state on the checkpoint's store.

    :param rows: a streaming data frame with the columns of `KEYED`
    """
    if identity.state == "groups":
        return on_groups(rows, stage)
    check_log_store()
    from amadou_runtime.spark.log.stage import on_log  # needs pyspark

    return on_log(rows, stage, identity.run)
