"""Jobs whose files, checkpoints and savepoints are on HDFS or S3."""

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import attrs
import pytest
from tests.services import Storage, mounted

from amadou import Handler, Job, KeyedEvent, SinkSpec, Subject, ValueSpec
from amadou.errors import CheckpointError, SavepointError, SinkError, SourceError
from amadou.remote_files import RemoteDirectory
from amadou_plugins.connectors import JsonLinesSink, LinesSource, ParquetSink
from amadou_plugins.connectors.tables.spark_tables import explained
from amadou_runtime import run, start
from amadou_runtime.spark.savepoints.remote import open_savepoint
from amadou_runtime.spark.savepoints.rescaling import rescale
from amadou_runtime.spark.savepoints.writing import write_savepoint

pytestmark = pytest.mark.spark


def mainly(kind: str) -> pytest.MarkDecorator:
    """Leaves a test on all kinds of storage but one to `scripts/qualify`."""
    kinds = ("hdfs", "s3", "other")
    of = [pytest.param(each, marks=[] if each == kind else pytest.mark.qualify) for each in kinds]
    return pytest.mark.parametrize("storage", of, indirect=True)


@attrs.frozen
class Count:
    key: str
    count: int


class Counts(Handler):
    count = ValueSpec(int, default=0)
    counts = SinkSpec(Count)

    def key_event(self, record: bytes) -> KeyedEvent[None]:
        key, second = json.loads(record)
        return KeyedEvent(key, datetime(2025, 1, 1, tzinfo=timezone.utc) + timedelta(seconds=second))

    def on_event(self, subject: Subject, event: KeyedEvent[None]) -> None:
        count = self.count.state_for(subject)
        count.value += 1
        self.counts.collect(subject, Count(subject.key, count.value))


def job(directory: str, sink: Any = None) -> Job:
    return Job(
        "counts",
        Counts(),
        {"in": LinesSource(f"{directory}/in/")},
        {"counts": sink or JsonLinesSink(f"{directory}/counts")},
        key_groups=2,
    )


@pytest.fixture
def place(storage: Storage, spark: Any) -> RemoteDirectory:
    return storage.opened(spark)


def bring(place: RemoteDirectory, number: int, *keys: str) -> None:
    place.write(f"in/{number}.txt", "".join(json.dumps([key, number]) + "\n" for key in keys).encode())


def counts(place: RemoteDirectory) -> list[tuple[str, int]]:
    found = (place.read(f"counts/{name}") for name in place.names("counts") if not name.startswith("."))
    lines = [json.loads(line) for content in found for line in (content or b"").splitlines()]
    return sorted((line["key"], line["count"]) for line in lines)


def process(made: Job, spark: Any, checkpoint: str, **more: Any) -> None:
    start(made, spark, checkpoint=checkpoint, trigger="available-now", **more).await_termination()


def test_a_file_is_replaced_and_leaves_nothing_else(place: RemoteDirectory, tmp_path: Path) -> None:
    place.write("a/b", b"first")
    place.write("a/b", b"second")
    (tmp_path / "local").write_bytes(b"third")
    place.upload(str(tmp_path / "local"), "a/c")
    assert (place.read("a/b"), place.read("a/c"), place.read("a/d")) == (b"second", b"third", None)
    assert sorted(place.names("a")) == ["b", "c"]
    place.download("a", str(tmp_path / "copy"))
    assert (tmp_path / "copy" / "b").read_bytes() == b"second"
    place.remove("a")
    assert not place.exists("a/b")


def test_an_interrupted_move_is_continued(place: RemoteDirectory) -> None:
    for name in ("from/1", "from/both/2", "from/both/3", "from/left/4", "to/both/2", "to/moved/5"):
        place.write(name, name.encode())
    place.move("from", "to")
    assert not place.exists("from")
    assert sorted(place.names("to")) == ["1", "both", "left", "moved"]
    contents = {place.read(f"to/{name}") for name in ("1", "both/2", "both/3", "left/4", "moved/5")}
    assert contents == {b"from/1", b"from/both/2", b"from/both/3", b"from/left/4", b"to/moved/5"}


@pytest.mark.qualify
@pytest.mark.parametrize("scheme", ["hdfs", "viewfs"])
def test_hdfs_replaces_a_file_at_once(scheme: str, hdfs: str, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = f"{hdfs}/test-{uuid4().hex[:12]}"
    storage = mounted("viewfs", directory) if scheme == "viewfs" else Storage(directory, {})
    place = storage.opened(spark)
    monkeypatch.delattr(RemoteDirectory, "_replace")
    place.write("file", b"first")
    place.write("file", b"second")
    assert (place.read("file"), place.names()) == (b"second", ["file"])


@pytest.mark.qualify  # `scripts/qualify remote` kills such runs
@mainly("hdfs")
def test_a_batch_that_is_processed_again_replaces_its_files(
    place: RemoteDirectory, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    bring(place, 1, "a", "b", "a")
    made, checkpoint = job(place.path), f"{place.path}/state"
    with monkeypatch.context() as patch:
        write = JsonLinesSink.commit

        def crash(self: Any, batch: Any, parts: Any) -> None:
            write(self, batch, [*parts, [b'{"key":"x","count":0}\n', f"counts-{batch.run}-{batch.number:09}-x.jsonl"]])
            if place.writes_partial_files:
                place.write(f"counts/.counts-{batch.run}-{batch.number:09}-y.jsonl.0a", b"")
            raise SinkError("crash")

        patch.setattr(JsonLinesSink, "commit", crash)
        with pytest.raises(SinkError, match="crash"):
            process(made, spark, checkpoint)
    assert ("x", 0) in counts(place)
    process(made, spark, checkpoint)
    assert counts(place) == [("a", 1), ("a", 2), ("b", 1)]
    (name,) = (name for name in place.names("counts") if name.startswith("."))
    assert name.endswith(".jsonl.list")
    bring(place, 2, "a")
    process(made, spark, checkpoint)
    assert counts(place) == [("a", 1), ("a", 2), ("a", 3), ("b", 1)]


@pytest.mark.qualify  # plugins/test_parquet.py has this for local files
@mainly("s3")
def test_parquet_files_are_partitioned_and_joined(place: RemoteDirectory, spark: Any) -> None:
    bring(place, 1, "a", "b", "a", "c")
    sink = ParquetSink(f"{place.path}/counts", partition_by="key", rows_per_file=1)
    process(job(place.path, sink), spark, f"{place.path}/state")
    assert len(place.names("counts/key=a")) == 2
    rows = spark.read.parquet(f"{place.path}/counts").collect()
    assert sorted((row["key"], row["count"]) for row in rows) == [("a", 1), ("a", 2), ("b", 1), ("c", 1)]


@pytest.mark.needs_spark(4)
@mainly("s3")
def test_savepoints_are_written_and_loaded(place: RemoteDirectory, spark: Any) -> None:
    bring(place, 1, "a", "b", "a")
    first, second, savepoint = f"{place.path}/first", f"{place.path}/second", f"{place.path}/saved/{place.path[-6:]}"
    process(job(place.path), spark, first)
    assert write_savepoint(spark, first, savepoint).keys == 2
    open_savepoint(spark, savepoint).verify()
    with pytest.raises(SavepointError, match="the path is not empty: use a new directory"):
        write_savepoint(spark, first, savepoint)
    bring(place, 2, "a")
    process(job(place.path), spark, second, from_savepoint=savepoint)
    assert counts(place) == [("a", 1), ("a", 2), ("a", 3), ("b", 1)]


@pytest.mark.qualify  # test_rescaling.py has this for local files
@pytest.mark.needs_spark(4)
def test_checkpoints_are_rescaled(place: RemoteDirectory, spark: Any) -> None:
    bring(place, 1, "a", "b", "a")
    checkpoint = f"{place.path}/state"
    process(job(place.path), spark, checkpoint)
    done = rescale(spark, checkpoint, partitions=3, store="log")
    assert done.savepoint.startswith(f"{checkpoint}/savepoints/before-rescale-")
    bring(place, 2, "b")
    process(job(place.path), spark, checkpoint)
    assert counts(place) == [("a", 1), ("a", 2), ("b", 1), ("b", 2)]


@mainly("s3")
def test_dead_letters_are_in_a_checkpoint_without_a_scheme_which_is_in_sparks_default_file_system(
    place: RemoteDirectory, spark: Any
) -> None:
    place.write("in/1.txt", b"nonsense\n")
    conf, at = spark.sparkContext._jsc.hadoopConfiguration(), urlsplit(place.path)
    before = conf.get("fs.defaultFS")
    conf.set("fs.defaultFS", f"{at.scheme}://{at.netloc}")
    try:
        process(attrs.evolve(job(place.path), on_error="dead_letter"), spark, f"{at.path}/state/")
    finally:
        conf.set("fs.defaultFS", before)
    assert {"amadou.json", "commits", "dead_letters"} <= set(place.names("state"))
    (name,) = (name for name in place.names("state/dead_letters") if not name.startswith("."))
    assert b"nonsense" in (place.read(f"state/dead_letters/{name}") or b"")


@pytest.mark.qualify
def test_dead_letters_are_in_a_checkpoint_with_a_scheme(place: RemoteDirectory, spark: Any) -> None:
    place.write("in/1.txt", b"nonsense\n")
    process(attrs.evolve(job(place.path), on_error="dead_letter"), spark, f"{place.path}/state")
    (name,) = (name for name in place.names("state/dead_letters") if not name.startswith("."))
    assert b"nonsense" in (place.read(f"state/dead_letters/{name}") or b"")


@pytest.mark.needs_spark(4)
@mainly("other")
def test_a_run_ends_with_a_savepoint(place: RemoteDirectory, spark: Any) -> None:
    bring(place, 1, "a")
    run(job(place.path), trigger="available-now", to_savepoint=f"{place.path}/at-the-end")
    assert place.exists("at-the-end/savepoint.json")


def test_a_missing_savepoint_is_an_error(place: RemoteDirectory, spark: Any) -> None:
    with pytest.raises(SavepointError, match=r"missing: there is no savepoint\.json: it is not a savepoint"):
        open_savepoint(spark, f"{place.path}/missing")


@pytest.mark.parametrize(
    ("bucket", "settings", "message"),
    [
        ("amadou-no-such-bucket", {}, "create the bucket, or correct its name"),
        ("wrong-secret", {"secret.key": "wrong"}, "check the credentials, and that the user .* may read and write"),
        (
            "no-login",
            {
                "access.key": "",
                "secret.key": "",
                "aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
            },
            "no credentials were found: set spark.hadoop.fs.s3a.access.key and",
        ),
        (
            "no-server",
            {
                "endpoint": "http://127.0.0.1:9",
                "attempts.maximum": "1",
                "retry.limit": "1",
                "retry.interval": "1ms",
            },
            "check the address",
        ),
    ],
)
def test_a_mistake_in_the_settings_of_s3_is_an_error_of_one_line(
    bucket: str, settings: dict[str, str], message: str, s3: Any, spark: Any, tmp_path: Path
) -> None:
    conf = spark.sparkContext._jsc.hadoopConfiguration()
    for name, value in settings.items():
        conf.set(f"fs.s3a.bucket.{bucket}.{name}", value)
    made = job(f"s3a://{bucket}/x", ParquetSink(f"s3a://{bucket}/x/counts"))
    with pytest.raises(SinkError, match=f"^ParquetSink cannot write to s3a://{bucket}/x/counts: .*{message}") as failed:
        made.sinks["counts"].check("counts", Count)  # type: ignore[attr-defined]
    with pytest.raises(SinkError, match=f"^Table: .*{message}"), explained(spark, "Table", ()):
        spark.range(1).write.parquet(f"s3a://{bucket}/table")
    with pytest.raises(SourceError, match=f"s3a://{bucket}/x/in/'\\) cannot be read: .*{message}") as of_source:
        start(job(f"s3a://{bucket}/x", JsonLinesSink(tmp_path)), spark)
    RemoteDirectory(f"s3a://{s3.name}/x", spark.sparkContext).write("in/0.txt", b"")
    with pytest.raises(CheckpointError, match=message) as of_checkpoint:
        start(job(f"s3a://{s3.name}/x"), spark, checkpoint=f"s3a://{bucket}/state")
    assert "\n" not in f"{failed.value}{of_source.value}{of_checkpoint.value}"


def test_a_missing_input_directory_is_an_error_of_one_line(place: RemoteDirectory, spark: Any) -> None:
    with pytest.raises(SourceError, match=r"there is no file or directory .*/in/: create it, or correct the path"):
        start(job(place.path), spark)


@pytest.mark.qualify
def test_a_directory_that_may_not_be_written_is_an_error_of_one_line(hdfs: str, spark: Any) -> None:
    RemoteDirectory(hdfs, spark.sparkContext).write("of-another-user/file", b"")
    users = spark._jvm.org.apache.hadoop.security.UserGroupInformation
    user = users.getLoginUser()
    users.setLoginUser(users.createRemoteUser("somebody"))
    try:
        with pytest.raises(SinkError, match=r"Permission denied: user=somebody.* may read and write there") as failed:
            JsonLinesSink(f"{hdfs}/of-another-user").check("counts", Count)
    finally:
        users.setLoginUser(user)
    assert "\n" not in str(failed.value)
