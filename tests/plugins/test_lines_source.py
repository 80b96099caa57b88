import bz2
import gzip
import pickle
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark import SparkContext

from amadou import Handler, Job, Param
from amadou.errors import SourceError
from amadou_plugins.connectors import CsvSource, JsonLinesSource, LinesSource, ParquetSource
from amadou_plugins.connectors.files.lines_source import READ_SIZE


def write(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def records(path: Any) -> list[bytes]:
    source = LinesSource(path)
    source.check()
    return list(source.records())


def test_lines_source_reads_each_line_without_its_ending(tmp_path: Path) -> None:
    assert records(write(tmp_path / "views.txt", b"1\n2\r\n3\r4")) == [b"1", b"2", b"3", b"4"]


def test_lines_source_reads_blank_lines_as_records(tmp_path: Path) -> None:
    assert records(write(tmp_path / "views.txt", b"\n1\n\r\n\n2\n")) == [b"", b"1", b"", b"", b"2"]


def test_lines_source_reads_no_records_from_an_empty_file(tmp_path: Path) -> None:
    assert records(write(tmp_path / "views.txt", b"")) == []


def test_lines_source_reads_bytes_that_are_not_utf8_unchanged(tmp_path: Path) -> None:
    assert records(write(tmp_path / "views.txt", b"\xff\xfe\x80\n\x00\n")) == [b"\xff\xfe\x80", b"\x00"]


def test_lines_source_removes_a_byte_order_mark_only_at_the_beginning(tmp_path: Path) -> None:
    bom = b"\xef\xbb\xbf"
    assert records(write(tmp_path / "views.txt", bom + b"1\n" + bom + b"2\n")) == [b"1", bom + b"2"]


def test_lines_are_whole_wherever_a_read_of_a_large_file_ends(tmp_path: Path) -> None:
    lines = b"ab\r\n\r\ncdef\r\rg\n\nh\r"
    for end in range(len(lines) + 1):
        before = b"x" * (READ_SIZE - end - 1)
        path = write(tmp_path / "views.txt", before + b"\n" + lines)
        assert records(path) == [before, *b"ab,,cdef,,g,,h".split(b",")]


def test_lines_source_unpacks_compressed_files(tmp_path: Path) -> None:
    write(tmp_path / "1.txt.gz", gzip.compress(b"1\n2\n"))
    write(tmp_path / "2.txt.bz2", bz2.compress(b"3\n"))
    assert records(tmp_path) == [b"1", b"2", b"3"]


def test_a_small_compressed_file_with_an_endless_line_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "lines.bz2"
    with bz2.open(path, "wb") as file:
        for _ in range(65):
            file.write(bytes(1 << 20))
    assert path.stat().st_size < 1000
    with pytest.raises(SourceError, match=r"lines\.bz2 cannot be read: .*a line is longer than 64 MiB"):
        records(path)


def test_the_error_for_a_truncated_compressed_file_names_the_file(tmp_path: Path) -> None:
    path = write(tmp_path / "views.gz", gzip.compress(b"1\n" * 1000)[:-12])
    with pytest.raises(SourceError, match=r"views\.gz cannot be read"):
        records(path)


def test_lines_source_reads_visible_files_of_a_directory_in_order_of_path(tmp_path: Path) -> None:
    for name in ("b.txt", "a.txt", "_SUCCESS", ".b.txt.crc", "below/c.txt"):
        write(tmp_path / name, name.encode())
    assert records(tmp_path) == [b"a.txt", b"b.txt"]


def test_lines_source_reads_the_files_that_match_a_glob(tmp_path: Path) -> None:
    for name in ("1/a.txt", "1/b.log", "2/a.txt", "2/_a.txt", "3.txt/d"):
        write(tmp_path / name, name.encode())
    assert records(str(tmp_path / "*" / "*.txt")) == [b"1/a.txt", b"2/a.txt"]
    assert records(str(tmp_path / "[12]")) == [b"1/a.txt", b"1/b.log", b"2/a.txt"]


def test_lines_source_reads_a_file_whose_name_is_a_glob(tmp_path: Path) -> None:
    write(tmp_path / "a1.txt", b"no")
    assert records(write(tmp_path / "a[1].txt", b"yes")) == [b"yes"]


def test_a_relative_path_of_lines_source_is_relative_to_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "[x]" / "views" / "a.txt", b"1")
    monkeypatch.chdir(tmp_path / "[x]")
    assert list(LinesSource("views").records()) == [b"1"]
    assert list(LinesSource("views/*.txt").records()) == [b"1"]


def test_lines_source_reads_file_uris(tmp_path: Path) -> None:
    path = write(tmp_path / "views.txt", b"1")
    assert records(f"file://{path}") == records(f"file:{path}") == [b"1"]


def test_lines_source_is_bounded_only_for_a_single_file(tmp_path: Path) -> None:
    path = write(tmp_path / "views.txt", b"1")
    assert LinesSource(path).bounded
    assert not LinesSource(tmp_path).bounded
    assert not LinesSource(str(tmp_path / "*.txt")).bounded
    assert not LinesSource("s3://bucket/views/").bounded


def test_the_check_of_lines_source_refuses_a_missing_path(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path / "none" / "*.txt"):
        with pytest.raises(SourceError, match=r"there is no .*none: create it, or correct the path"):
            LinesSource(str(path)).check()


def test_lines_source_accepts_a_glob_that_matches_no_file(tmp_path: Path) -> None:
    assert records(str(tmp_path / "*.txt")) == []


def test_lines_source_refuses_a_file_that_spark_would_skip(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"begins with '\.' or '_', so Spark would skip the file: rename"):
        records(write(tmp_path / "_views.txt", b"1"))


@pytest.mark.parametrize("name", ["a[1].txt", "a{1}.txt", "a\\1.txt", "a?.txt"])
def test_lines_source_refuses_names_for_which_spark_would_read_files_twice(tmp_path: Path, name: str) -> None:
    write(tmp_path / "other.txt", b"1")
    write(tmp_path / name, b"1")
    with pytest.raises(SourceError, match="rename the file or its directory"):
        records(tmp_path)


def test_lines_source_refuses_a_colon_in_a_name(tmp_path: Path) -> None:
    path = write(tmp_path / "00:01.txt", b"1")
    for source in (LinesSource(path), LinesSource(tmp_path)):
        with pytest.raises(SourceError, match="':' in its name"):
            source.check()


def test_the_embedded_engine_refuses_remote_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    source = LinesSource("s3://bucket/views/")
    with pytest.raises(SourceError, match=r"LinesSource\('s3://bucket/views/'\) cannot be read: .*engine='spark'"):
        source.check()
    with pytest.raises(SourceError, match="embedded engine reads local files only"):
        list(source.records())


@pytest.mark.parametrize("files", [0, -1, 1.5, "2", True])
def test_max_files_per_batch_must_be_a_positive_integer(files: Any) -> None:
    with pytest.raises(SourceError, match="max_files_per_batch must be a positive integer"):
        LinesSource("views", max_files_per_batch=files)


@pytest.mark.parametrize("path", ["", None, 5, b"views"])
def test_sources_of_files_refuse_values_that_are_not_paths(path: Any) -> None:
    message = f"Source needs a path, such as views/, not {path!r}"
    for source in (LinesSource, JsonLinesSource, CsvSource, ParquetSource):
        with pytest.raises(SourceError, match=source.__name__.removesuffix("Source") + message):
            source(path)


def test_the_path_of_a_parameter_is_checked_when_it_is_filled() -> None:
    class Ignore(Handler):
        def on_event(self, subject: Any, event: Any) -> None: ...

    job = Job("ignore", Ignore(), {"views": LinesSource(Param("VIEWS"), key_event=lambda line: None)}, {})
    with pytest.raises(SourceError, match="LinesSource needs a path, such as views/, not ''"):
        job.with_params({"VIEWS": ""})


@pytest.mark.parametrize(("end", "deeper"), [("", "/*"), ("/", "/*"), ("/*", "/*/*")])
def test_a_warning_names_subdirectories_that_lines_source_does_not_read(
    tmp_path: Path, end: str, deeper: str, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path / "in" / "day=1" / "hour=1" / "a.txt", b"1")
    assert records(f"{tmp_path}/in{end}") == []
    (record,) = caplog.records
    below = f"{tmp_path}/in/day=1" + ("/hour=1" if deeper == "/*/*" else "")
    assert record.getMessage() == (
        f"LinesSource('{tmp_path}/in{end}'): there are no files yet, and subdirectories such as {below} are not "
        f"read: use LinesSource('{tmp_path}/in{deeper}') to read them"
    )
    assert records(f"{tmp_path}/in/*/*") == [b"1"]


def test_no_warning_is_logged_for_subdirectories_next_to_files(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path / "in" / "a.txt", b"1")
    write(tmp_path / "in" / "done" / "b.txt", b"2")
    write(tmp_path / "other" / "_spark_metadata" / "0", b"3")
    assert records(tmp_path / "in") == [b"1"]
    assert records(tmp_path / "other") == []
    assert caplog.records == []


def test_settings_of_lines_source_can_be_parameters(tmp_path: Path) -> None:
    write(tmp_path / "views.txt", b"1")

    class Ignore(Handler):
        def on_event(self, subject: Any, event: Any) -> None: ...

    source = LinesSource(Param("VIEWS"), max_files_per_batch=Param("FILES", type=int), key_event=lambda line: None)
    job = Job("ignore", Ignore(), {"views": source}, {})
    filled = job.with_params({"VIEWS": str(tmp_path), "FILES": "3"}).sources["views"]
    assert isinstance(filled, LinesSource)
    assert (filled.path, filled.max_files_per_batch, filled.key_event) == (str(tmp_path), 3, source.key_event)


def test_a_lines_source_can_be_pickled() -> None:
    source = LinesSource(Path("views"), max_files_per_batch=2)
    assert pickle.loads(pickle.dumps(source)) == source


@settings(deadline=None)  # the first example imports pyarrow
@given(st.lists(st.sampled_from([b"\r", b"\n", b"a", b"\xef\xbb\xbf", b"bcdef"])), st.lists(st.integers(0, 40)))
def test_the_parts_of_a_file_have_each_line_once(pieces: list[bytes], cuts: list[int]) -> None:
    content = b"".join(pieces)
    bounds = [0, *sorted({cut for cut in cuts if 0 < cut < len(content)}), len(content)]
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        parts = [{"path": f"file:{file.name}", "start": start, "end": end} for start, end in pairwise(bounds)]
        assert list(LinesSource.to_records(pa.array(parts))) == records(Path(file.name))


def test_the_error_for_a_part_of_a_missing_file_names_the_file(tmp_path: Path) -> None:
    part = {"path": f"file:{tmp_path}/missing.txt", "start": 0, "end": 5}
    with pytest.raises(SourceError, match=r"missing\.txt cannot be read: .*No such file"):
        list(LinesSource.to_records(pa.array([part])))


@pytest.mark.spark
def test_on_spark_lines_source_reads_the_records_of_the_embedded_engine(tmp_path: Path, spark: Any) -> None:
    directory = tmp_path / "we[ir]d{x} *"
    single = write(directory / "[one] ?.txt", b"1\xff\xfe\r\n2\r3\n\n4")
    write(tmp_path / "plain" / "a b.txt", b"5\n\n\n")
    write(tmp_path / "plain" / "a!b.txt", b"\xef\xbb\xbf6\n\xef\xbb\xbf7\r")
    write(tmp_path / "plain" / "z.gz", gzip.compress(b"8\r\n9"))
    write(tmp_path / "plain" / "_no.txt", b"no")
    write(tmp_path / "plain" / "large.txt", b"".join(b"line %d of a large file\n" % n for n in range(200_000)))
    paths = (single, tmp_path / "plain", tmp_path / "plain" / "*.txt", tmp_path / "p*")
    for number, path in enumerate(paths):
        rows: list[Any] = []
        source = LinesSource(path)
        stream = source.read_stream(spark, spark.readStream, "views", str(tmp_path)).writeStream
        stream = stream.foreachBatch(lambda frame, _, rows=rows: rows.extend(frame.collect()))
        stream = stream.option("checkpointLocation", str(tmp_path / f"checkpoint-{number}"))
        stream.trigger(availableNow=True).start().awaitTermination()
        rows.sort(key=lambda row: (row.partition, row.position))
        parts = {row.partition.rpartition("/")[2]: row.position for row in rows}
        assert parts.get("large.txt") != 0
        assert list(source.to_records(pa.array([row.record.asDict() for row in rows]))) == records(path)


@pytest.mark.parametrize(
    ("by", "path", "partition"),
    [
        (r"in/(\w+)/", "in/north/1.txt", "north"),
        (r"\d+", "in/north/17.txt", "17"),
        (r"in/(?:(\w+)/)?", "in/north/1.txt", "north"),
    ],
)
def test_the_partition_of_a_file_is_the_match_of_partition_by_in_its_path(by: str, path: str, partition: str) -> None:
    name = LinesSource("in", partition_by=by).partition_of
    assert name is not None
    assert name(path) == partition


@pytest.mark.parametrize("by", [r"out/(\w+)/", r"in/(?:(\w+)/)?\d"])
def test_the_error_for_a_file_without_a_partition_names_the_file(by: str) -> None:
    name = LinesSource("in", partition_by=by).partition_of
    assert name is not None
    with pytest.raises(SourceError, match=r"does not match in/1\.txt: correct the pattern, or move the file"):
        name("in/1.txt")
