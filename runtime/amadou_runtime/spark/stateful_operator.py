"""Connects a stage with the Spark operator of the checkpoint's store."""

from typing import Any

from amadou_runtime.spark.checkpoint import CheckpointMetadata
from amadou_runtime.spark.groups_stage import on_groups
from amadou_runtime.spark.session import check_log_store
from amadou_runtime.spark.stateful_stage import Stage


def stateful_results(rows: Any, stage: Stage, identity: CheckpointMetadata, name: str = "") -> Any:
    """Return the results of a stage for keyed rows, with the state on the checkpoint's store.

    :param rows: a streaming data frame with the columns of `KEYED`
    :param name: the stage's name; empty in a job with one handler
    """
    if identity.state == "groups":
        return on_groups(rows, stage)
    check_log_store()
    from amadou_runtime.spark.log_stage import on_log  # needs pyspark

    full_name = f"{identity.run}-{name}" if name else identity.run
    is_first = name == identity.stages[0]
    return on_log(rows, stage, full_name, output_mode(identity), has_timers=is_first)


def output_mode(identity: CheckpointMetadata) -> str:
    """Return the output mode of a query. Stateful operators can follow one another only in the mode `append`."""
    return "update" if len(identity.stages) == 1 else "append"
