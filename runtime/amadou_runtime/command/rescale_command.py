"""The commands that change a checkpoint in place: `amadou rescale` and `amadou convert`."""

from typing import Annotated, Any, Literal

import typer

from amadou.engine import MOST_KEY_GROUPS
from amadou.errors import SavepointError
from amadou_runtime.command.options import ConfOption, MasterOption, ParamOption, errors_as_messages, pairs
from amadou_runtime.jobs.given_path import check_given

CheckpointArgument = Annotated[
    str, typer.Argument(metavar="CHECKPOINT", help="The checkpoint. No run may use it.", show_default=False)
]
SavepointOption = Annotated[
    str | None,
    typer.Option(
        metavar="DIR",
        help="New directory for the savepoint that is taken before. Default: savepoints/before-rescale-TIME in the "
        "checkpoint.",
    ),
]
JobOption = Annotated[
    str | None,
    typer.Option(metavar="TARGET", help="The job. Needed only if key groups change and windows are vectorised."),
]


def rescale_checkpoint(
    checkpoint: CheckpointArgument,
    key_groups: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, max=MOST_KEY_GROUPS, help="New number of key groups. Also set it in the job."),
    ] = None,
    partitions: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="New number of shuffle partitions. Default: the number of cores."),
    ] = None,
    savepoint: SavepointOption = None,
    job: JobOption = None,
    param: ParamOption = None,
    master: MasterOption = None,
    conf: ConfOption = None,
) -> None:
    """Change the parallelism of a stopped job's checkpoint. A savepoint is taken before, and stays."""
    _change(checkpoint, savepoint, job, param, master, conf, key_groups=key_groups, partitions=partitions)


def convert_checkpoint(
    checkpoint: CheckpointArgument,
    to: Annotated[Literal["groups", "log"], typer.Option("--to", help="groups: small state; log: state of any size.")],
    savepoint: SavepointOption = None,
    job: JobOption = None,
    param: ParamOption = None,
    master: MasterOption = None,
    conf: ConfOption = None,
) -> None:
    """Move the state of a stopped job's checkpoint to the other store. A savepoint is taken before, and stays."""
    _change(checkpoint, savepoint, job, param, master, conf, store=to)


def _change(
    checkpoint: str,
    savepoint: str | None,
    target: str | None,
    param: list[str] | None,
    master: str | None,
    conf: list[str] | None,
    **changes: Any,
) -> None:
    from amadou_runtime.jobs.load_job import load_job
    from amadou_runtime.spark import session
    from amadou_runtime.spark.checkpoint import absolute
    from amadou_runtime.spark.savepoints.rescaling import rescale

    params, settings = pairs(param, "-p"), pairs(conf, "--conf")
    with errors_as_messages():
        job = None if target is None else load_job(target).with_params(params, connectors=False)
        directory = absolute(checkpoint)
        if savepoint is not None:
            check_given(savepoint, SavepointError)
        spark = session("amadou rescale", master=master, conf=settings)
        done = rescale(spark, directory, savepoint=savepoint, job=job, **changes)
    before, after = done.before, done.after
    ranges = f"{after.key_groups} key groups in {after.key_ranges} key ranges"
    number = "1 partition" if done.partitions == 1 else f"{done.partitions} partitions"
    print(f"{checkpoint}: {ranges}, {number}, store {after.state}")
    print(f"Before: {before.key_groups} key groups in {before.key_ranges} key ranges, store {before.state}")
    print(f"To return: amadou run JOB --from {done.savepoint} --checkpoint NEW")
