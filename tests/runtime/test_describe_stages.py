"""`amadou describe` and the description of a job with several stages."""

import io
import json
from datetime import datetime, timezone
from pathlib import Path

from rich.console import Console
from tests.top_pages import PageSum, Top, Views, top_pages

from amadou import FromPort, Job, MemorySource, Param, SinkSpec, Stage
from amadou.plugins import Counts, PartitionReport
from amadou_plugins.connectors import ConsoleSink, JsonLinesSink, LinesSource
from amadou_runtime.command.describe import describe
from amadou_runtime.command.progress_display import progress_line
from amadou_runtime.jobs.job_document import job_document
from amadou_runtime.runs.files import LocalFiles
from amadou_runtime.runs.progress import Progress
from amadou_runtime.spark.checkpoint import CheckpointMetadata, keep

NOON = datetime(2025, 1, 1, 12, tzinfo=timezone.utc)


def described(job: Job, checkpoint: Path | None = None) -> str:
    out = io.StringIO()
    describe(job, {}, Console(file=out, width=80, markup=False, highlight=False), checkpoint)
    return out.getvalue()


class Both(Top):
    """Has a port with the name of a port that feeds it."""

    sums = SinkSpec(PageSum)


def joined() -> Job:
    """Return a job whose last stage reads a source and two other stages."""
    return Job(
        "joined",
        stages={
            "all": Stage(
                Both(),
                sources={
                    "web": FromPort("web", "sums"),
                    "app": FromPort("app", "sums"),
                    "more": MemorySource(()),
                },
                sinks={"top": [ConsoleSink(), JsonLinesSink("top/")], "sums": ConsoleSink()},
                on_error="dead_letter",
            ),
            "web": Stage(Views(), sources={"clicks": LinesSource(Param("WEB"))}),
            "app": Stage(Views(), sources={"clicks": LinesSource("app/")}, sinks={"sums": ConsoleSink()}),
        },
    )


def test_describe_draws_stages_between_their_sources_and_ports() -> None:
    picture = """\
joined
                            ┌─────┐
 LinesSource ──▶ clicks ──▶ │ web │ ──▶ sums         ──▶ stage all
                            └─────┘
                            ┌─────┐
 LinesSource ──▶ clicks ──▶ │ app │ ──▶ sums         ──▶ stage all, ConsoleSink
                            └─────┘
                            ┌─────┐
    web.sums ──▶ web    ──▶ │ all │ ──▶ top          ──▶ ConsoleSink, JsonLinesSink
    app.sums ──▶ app    ──▶ │     │ ──▶ sums         ──▶ ConsoleSink
MemorySource ──▶ more   ──▶ │     │ ──▶ dead_letters ──▶ the checkpoint
                            └─────┘

joined.web
"""
    assert [line.rstrip() for line in described(joined()).splitlines()[: picture.count("\n")]] == picture.splitlines()


def test_describe_shows_the_tables_of_each_stage_and_the_parameters_of_the_job() -> None:
    shown = described(joined())
    for row in (
        "handler          tests.runtime.test_describe_stages.Both",
        "counts   MapSpec   datetime → int",
        "best   ValueSpec   PageSum",
        "sums   PageSum   stage all       exactly-once",
        "web      FromPort('web', 'sums')             key_event of the handler",
        "WEB    str              missing: -p WEB=…",
    ):
        assert row in shown
    assert shown.count("Parameters") == 1


def test_describe_shows_the_progress_of_each_stage_after_a_batch_with_the_number_that_the_run_reported(
    tmp_path: Path,
) -> None:
    metadata = CheckpointMetadata("top-pages", "0a", 1, 1, "log", {}, [], batches_before=9, stages=["views", "top"])
    keep(LocalFiles(str(tmp_path), tmp_path), metadata)
    (tmp_path / "clock").mkdir()
    partition = {"source": "clicks", "partition": "", "newest": "noon", "lag": 3, "age": None, "holds_back": True}
    status = [7, 4, 5, 2048, 0, None, {}]
    stages = {"views": {"ranges": {"0": status}, "partitions": [partition]}, "top": {"ranges": {}, "partitions": []}}
    (tmp_path / "clock" / "4").write_text(json.dumps({"stages": stages}))
    shown = described(top_pages(MemorySource(())), tmp_path)
    rows = [line.split() for line in shown.partition("Stored state after batch 13")[2].splitlines()]
    assert ["views", "7", "5", "2.0", "KiB", "4"] in rows
    assert ["top", "0", "0", "0", "B", "0"] in rows
    assert "Sources after batch 13" in shown
    assert ["views.clicks", "noon", "3"] in [row[:3] for row in rows]


def test_the_description_of_a_job_for_machines_has_its_stages() -> None:
    document = job_document(joined())
    assert [*document] == ["job", "stages"]
    assert [*document["stages"]] == ["web", "app", "all"]
    assert document["stages"]["all"]["sources"][0] == {
        "name": "web",
        "connector": "FromPort('web', 'sums')",
        "bounded": None,
        "stage": "web",
        "port": "sums",
    }
    assert document["stages"]["web"]["ports"] == [{"name": "sums", "type": "PageSum", "sinks": []}]
    json.dumps(document)


def test_the_progress_line_names_the_partition_that_is_furthest_behind() -> None:
    partitions = [
        PartitionReport("web.clicks", "", NOON, 2, None, True),
        PartitionReport("app.clicks", "", NOON.replace(hour=11), 3, None, True),
        PartitionReport("all.more", "", NOON.replace(hour=10), 0, None, False),
    ]
    line = progress_line(Progress("joined", 1, Counts(), 0.0, NOON, 1.0, partitions))
    assert line.endswith("5 records behind · watermark held back by app.clicks (newest event: 2025-01-01T11:00:00Z)")
