import bz2
import csv
import gzip
import io
import math
import os
import pickle
import tempfile
import time
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import pyarrow as pa
import pytest
from attrs import frozen
from hypothesis import given, settings
from hypothesis import strategies as st

from amadou import DeadLetter, Handler, Job, KeyedEvent, MemorySink, Param, SinkSpec, Subject
from amadou.errors import CallbackError, EncodeError, SinkError, SourceError
from amadou.plugins import Codec, SinkBatch
from amadou_plugins.connectors import CsvSink, CsvSource, MalformedRow
from amadou_runtime import TestRun, run
from amadou_runtime.jobs.named_connectors import with_connectors

START = datetime(2025, 1, 1, tzinfo=timezone.utc)


def write(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def rows(path: Any, **options: Any) -> list[Any]:
    source = CsvSource(path, **options)
    source.check()
    return list(source.records())


def rows_of(tmp_path: Path, content: bytes, **options: Any) -> list[Any]:
    return rows(write(tmp_path / "views.csv", content), **options)


# The source.


def test_a_row_of_a_csv_file_is_a_dict_of_texts_by_column(tmp_path: Path) -> None:
    content = b"channel,views,note\r\na,1,\r\nb, 2 ,x\r\n"
    assert rows_of(tmp_path, content) == [
        {"channel": "a", "views": "1", "note": ""},
        {"channel": "b", "views": " 2 ", "note": "x"},
    ]


@pytest.mark.parametrize("end", ["", "\n", ","])
def test_a_small_compressed_csv_file_with_an_endless_row_is_an_error(end: str, tmp_path: Path) -> None:
    path = tmp_path / "views.csv.bz2"
    quote = b"" if end == "," else b'"'
    with bz2.open(path, "wb") as file:
        file.write(b"channel\na\n" + quote)
        for _ in range(17):
            file.write(("x" * 1023 + end).encode() * 1026)
    assert path.stat().st_size < 20_000
    records = iter(CsvSource(path).records())
    assert next(records) == {"channel": "a"}
    with pytest.raises(SourceError, match=r"the row that begins in line 3 has more than 16,777,216 characters"):
        next(records)


def test_quoted_cells_of_a_csv_file_can_contain_delimiters_quotes_and_line_ends(tmp_path: Path) -> None:
    content = b'a,"b ""c"""\n"1,2","line\r\nbreak\n"\n"","""x"""\n'
    assert rows_of(tmp_path, content) == [
        {"a": "1,2", 'b "c"': "line\r\nbreak\n"},
        {"a": "", 'b "c"': '"x"'},
    ]


def test_blank_lines_and_a_byte_order_mark_of_a_csv_file_are_skipped(tmp_path: Path) -> None:
    assert rows_of(tmp_path, b"\xef\xbb\xbfa,b\n\n1,\xef\xbb\xbf2\n\r\n") == [{"a": "1", "b": "\ufeff2"}]


def test_an_empty_csv_file_has_no_rows(tmp_path: Path) -> None:
    assert rows_of(tmp_path, b"") == []
    assert rows_of(tmp_path, b"a,b\n") == []


def test_columns_can_be_set_for_a_csv_file_without_a_header(tmp_path: Path) -> None:
    assert rows_of(tmp_path, b"a,1\nb,2", columns=["channel", "views"]) == [
        {"channel": "a", "views": "1"},
        {"channel": "b", "views": "2"},
    ]


def test_the_delimiter_and_the_encoding_of_a_csv_file_can_be_set(tmp_path: Path) -> None:
    expected = [{"name": "Zoë, €", "n": "1"}]
    for encoding in ("cp1252", "utf-16", "utf-8-sig"):
        assert rows_of(tmp_path, "name\tn\nZoë, €\t1\n".encode(encoding), delimiter="\t", encoding=encoding) == expected


def test_a_cell_of_a_csv_file_can_have_a_megabyte(tmp_path: Path) -> None:
    (row,) = rows_of(tmp_path, b"a\n" + b"x" * 1_000_000)
    assert len(row["a"]) == 1_000_000


def test_csv_files_have_their_own_headers_and_are_read_in_order_of_path(tmp_path: Path) -> None:
    write(tmp_path / "b.csv", b"a,b\n1,2\n")
    write(tmp_path / "a.csv.gz", gzip.compress(b"b,a\n3,4\n"))
    write(tmp_path / "c.csv.bz2", bz2.compress(b"b\n5\n"))
    write(tmp_path / "_SUCCESS", b"")
    assert rows(tmp_path) == [{"b": "3", "a": "4"}, {"a": "1", "b": "2"}, {"b": "5"}]
    assert not CsvSource(tmp_path).bounded
    assert CsvSource(tmp_path / "b.csv").bounded


@pytest.mark.parametrize(
    ("content", "line", "text", "problem"),
    [
        (b"a,b\n1,2\n3\n4,5\n", 3, "3\n", "expected 2 cells, got 1"),
        (b"a,b\n1,2\n\n3,4,5\n4,5\n", 4, "3,4,5\n", "expected 2 cells, got 3"),
        (b'a,b\n1,2\n"3"x,4\n4,5\n', 3, '"3"x,4\n', "quotes are misplaced"),
        (b'a,b\n1,2\n"3\n"x,4\n4,5\n', 3, '"3\n"x,4\n', "quotes are misplaced"),
        (b'a,b\n1,2\n4,5\n"3,\n4\n', 4, '"3,\n4\n', "quotes are misplaced"),
        (b"a,b\n1,2\n\xff,4\n4,5\n", 3, "\\xff,4\n", "the row is not valid utf-8"),
    ],
)
def test_a_malformed_row_becomes_a_dead_letter_with_its_text(
    tmp_path: Path, content: bytes, line: int, text: str, problem: str
) -> None:
    path = write(tmp_path / "views.csv", content)
    job = echo(CsvSource(path), on_error="dead_letter")
    run(job, engine="embedded")
    assert job.sinks["seen"].records == [{"a": "1", "b": "2"}, {"a": "4", "b": "5"}]
    (letter,) = job.sinks["dead_letters"].records
    assert (letter.record.file, letter.record.line, letter.record.text) == (str(path), line, text)
    assert problem in letter.error
    assert f"{path}, line {line}: " in letter.error


def test_the_error_for_a_malformed_row_names_file_and_line(tmp_path: Path) -> None:
    path = write(tmp_path / "views.csv", b"a,b\n1\n")
    with pytest.raises(CallbackError, match=r"views\.csv, line 2: expected 2 cells, got 1"):
        run(echo(CsvSource(path)), engine="embedded")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"\na,b,a\n1,2,3\n", r"views\.csv, line 2: two columns have the name 'a'"),
        (b'a,"b"x\n', r"views\.csv, line 1: quotes are misplaced"),
        (b"a,\xff\n1,2", r"views\.csv, line 1: the row is not valid utf-8"),
    ],
)
def test_the_error_for_a_malformed_header_names_file_and_line(tmp_path: Path, content: bytes, why: str) -> None:
    with pytest.raises(SourceError, match=why):
        rows_of(tmp_path, content)


def test_a_header_with_many_or_long_names_is_read_quickly(tmp_path: Path) -> None:
    names = [f"c{number}" for number in range(300_000)]
    began = time.monotonic()
    (row,) = rows_of(tmp_path, f"{','.join(names)}\n{','.join(names)}\n".encode())
    assert time.monotonic() - began < 10
    assert row["c299999"] == "c299999"
    with pytest.raises(SourceError, match="two columns have the name") as refused:
        rows_of(tmp_path, b",".join([b"x" * 100_000] * 2))
    assert len(str(refused.value)) < 1_000


def test_the_error_for_a_csv_file_that_cannot_be_read_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"views\.csv cannot be read: .*truncated"):
        rows_of(tmp_path, "a\nb".encode("utf-16")[:-1], encoding="utf-16")
    with pytest.raises(SourceError, match=r"CsvSource: .*views\.gz cannot be read"):
        rows(write(tmp_path / "views.gz", gzip.compress(b"a\n1\n" * 100)[:-12]))
    cell = {"path": f"file:{tmp_path}/missing.csv"}
    with pytest.raises(SourceError, match=r"missing\.csv cannot be read: .*No such file"):
        list(CsvSource(tmp_path).to_records(pa.array([cell])))
    with pytest.raises(SourceError, match=r"CsvSource\('.*missing'\): there is no file"):
        CsvSource(tmp_path / "missing").check()


def test_csv_files_that_spark_reads_have_the_rows_of_local_files(tmp_path: Path) -> None:
    plain, packed = b"a,b\n1,2\n3\n", gzip.compress(b"b\n4\n")
    write(tmp_path / "1.csv", plain)
    write(tmp_path / "2.csv.gz", packed)
    cells = [{"path": "s3://views/1.csv", "content": plain}, {"path": "s3://views/2.csv.gz", "content": packed}]
    first, malformed, second = CsvSource("s3://views/").to_records(pa.array(cells))
    assert [first, second] == [row for row in rows(tmp_path) if type(row) is dict]
    assert malformed == MalformedRow("s3://views/1.csv", 3, "3\n", malformed.problem)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"delimiter": ""}, "delimiter must be a single character"),
        ({"delimiter": "||"}, "delimiter must be a single character"),
        ({"delimiter": '"'}, "other than a double quote"),
        ({"delimiter": 5}, "delimiter must be a single character other than a double quote or line ending, not 5"),
        ({"encoding": "utf-9"}, "encoding must be a Python text encoding, .*, not 'utf-9'"),
        ({"encoding": "hex"}, "encoding must be a Python text encoding, .*, not 'hex'"),
        ({"encoding": "undefined"}, "encoding must be a Python text encoding, .*, not 'undefined'"),
        ({"encoding": None}, "encoding must be a Python text encoding, .*, not None"),
        ({"columns": ""}, "columns must be a non-empty list of names"),
        ({"columns": 5}, "columns must be a non-empty list of names"),
        ({"columns": "a,b,a"}, "two columns have the name 'a'"),
        ({"columns": []}, "columns must be a non-empty list of names"),
        ({"columns": ["a", "b", "a"]}, "two columns have the name 'a'"),
        ({"max_files_per_batch": 0}, "max_files_per_batch must be a positive integer"),
    ],
)
def test_invalid_settings_of_csv_source_are_refused(options: Any, why: str) -> None:
    with pytest.raises(SourceError, match=why):
        CsvSource("views", **options)


def test_settings_of_csv_source_can_be_parameters() -> None:
    settings = {name: Param(name.upper()) for name in ("columns", "delimiter", "encoding")}
    params = {"VIEWS": "views/", "COLUMNS": "a,b", "DELIMITER": ";", "ENCODING": "cp1252"}
    filled = echo(CsvSource(Param("VIEWS"), **settings)).with_params(params).sources["in"]
    assert filled == CsvSource("views/", columns=["a", "b"], delimiter=";", encoding="cp1252")
    assert pickle.loads(pickle.dumps(filled)) == filled


def test_the_columns_of_a_csv_file_can_be_set_on_the_command_line(tmp_path: Path) -> None:
    path = write(tmp_path / "views.csv", b"a\t1\n")
    text = f"csv:{path}?columns=channel,views&delimiter=%09"
    source = with_connectors(echo(CsvSource("in")), {"in": text}, {}).sources["in"]
    assert source == CsvSource(str(path), columns=["channel", "views"], delimiter="\t")
    assert list(source.records()) == [{"channel": "a", "views": "1"}]


def test_records_of_a_test_run_with_csv_source_are_rows() -> None:
    assert TestRun(echo(CsvSource("in"))).add_record({"a": "1"}).run().records("seen") == [{"a": "1"}]


CELLS = st.text(st.characters(codec="utf-8", exclude_characters="\0"))


@settings(deadline=None)
@given(
    st.lists(st.lists(CELLS, min_size=2, max_size=2)),
    st.sampled_from([",", ";", "\t"]),
    st.sampled_from([("\r\n", csv.QUOTE_MINIMAL), ("\n", csv.QUOTE_ALL)]),
)
def test_csv_source_reads_the_files_of_other_writers(
    cells: list[list[str]], delimiter: str, way: tuple[str, Any]
) -> None:
    text, (end, quoting) = io.StringIO(newline=""), way
    writer = csv.writer(text, delimiter=delimiter, lineterminator=end, quoting=quoting)
    writer.writerows([["a", "b"], *cells])
    with tempfile.NamedTemporaryFile() as file:
        file.write(text.getvalue().encode())
        file.flush()
        assert [list(row.values()) for row in rows(file.name, delimiter=delimiter)] == cells


# The sink.


class Colour(Enum):
    RED = "red"
    NONE = None


@frozen
class Inner:
    colour: Colour
    at: datetime


@frozen
class Reading:
    name: str
    value: Any


class Pair(NamedTuple):
    left: Any
    right: Any


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        ("", '""'),
        ("plain text", "plain text"),
        ('say "a,b"', '"say ""a,b"""'),
        ("line\nbreak", '"line\nbreak"'),
        ("line\rbreak", '"line\rbreak"'),
        ("'=1+1; é", "'=1+1; é"),
        (True, "true"),
        (-3, "-3"),
        (2**63, "9223372036854775808"),
        (0.1, "0.1"),
        (math.nan, "nan"),
        (-math.inf, "-inf"),
        (datetime(2025, 1, 1, 0, 1, microsecond=7, tzinfo=timezone.utc), "2025-01-01T00:01:00.000007Z"),
        (date(2025, 1, 1), "2025-01-01"),
        (timedelta(minutes=1, milliseconds=500), "60.5"),
        (Decimal("1.10"), "1.10"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (b"\xff\x00", "/wA="),
        (Colour.RED, "red"),
        (Colour.NONE, ""),
        (["a", 1], '"[""a"",1]"'),
        ({"a": None}, '"{""a"":null}"'),
        (Inner(Colour.RED, START), '"{""colour"":""red"",""at"":""2025-01-01T00:00:00Z""}"'),
    ],
)
def test_csv_sink_writes_values_as_cells(value: Any, text: str) -> None:
    assert CsvSink("out").codec(Reading).encode(Reading("a", value)) == f"a,{text}\n".encode()


@pytest.mark.parametrize(
    ("type_", "value", "why"),
    [
        (Reading, ("a", 1), "cannot store"),
        (Reading, Reading("a", object()), "object is not JSON serializable"),
        (Reading, Reading("\ud800", 1), "surrogates not allowed"),
        (int, "3", "cannot store"),
    ],
)
def test_csv_sink_refuses_values_that_it_cannot_write(type_: Any, value: Any, why: str) -> None:
    with pytest.raises(EncodeError, match=why):
        CsvSink("out").codec(type_).encode(value)


def written(sink: CsvSink, *values: Any, type_: Any, codec: Any = None) -> dict[str, str]:
    """Write a batch in two parts, of which the first has all values. Return the files."""
    batch = SinkBatch("run1", "views", "sums", 7, codec or sink.codec(type_))
    sink.check("sums", type_)
    parts = []
    for part, of_part in (("00000", values), ("00001", ())):
        writer = sink.open(batch, part)
        for value in of_part:
            writer.write([batch.codec.encode(value)])
        parts.append(writer.finish())
    sink.commit(batch, [part for part in parts if part is not None])
    return files(sink)


def files(sink: CsvSink) -> dict[str, str]:
    return {path.name: path.read_bytes().decode() for path in sorted(Path(str(sink.path)).iterdir())}


def test_csv_sink_writes_a_file_with_a_header_for_each_part(tmp_path: Path) -> None:
    sink = CsvSink(tmp_path / "out")
    assert written(sink, Reading("a", 1), Reading("b", 2), type_=Reading) == {
        "sums-run1-000000007-00000.csv": "name,value\na,1\nb,2\n"
    }


def test_csv_sink_writes_one_column_for_a_type_without_fields(tmp_path: Path) -> None:
    assert list(written(CsvSink(tmp_path / "1"), 1, 2, type_=int).values()) == ["value\n1\n2\n"]
    assert list(written(CsvSink(tmp_path / "2"), None, "", "a", type_=str | None).values()) == ['value\n""\n""\na\n']
    assert list(written(CsvSink(tmp_path / "3"), {"a": 1}, type_=dict).values()) == ['value\n"{""a"":1}"\n']


def test_csv_sink_writes_one_column_with_json_for_a_port_with_a_codec(tmp_path: Path) -> None:
    class Reversed(Codec[str]):
        def encode(self, value: str) -> Any:
            return value[::-1]

        def decode(self, encoded: Any) -> str:
            return str(encoded)[::-1]

    assert list(written(CsvSink(tmp_path), "abc", type_=str, codec=Reversed()).values()) == ['value\n"""cba"""\n']


def test_csv_sink_writes_dead_letters(tmp_path: Path) -> None:
    path = write(tmp_path / "in.csv", b"a,b\n1\n")
    job = echo(CsvSource(path), on_error="dead_letter", dead_letters=CsvSink(tmp_path / "dead_letters"))
    run(job, engine="embedded")
    (row,) = rows(tmp_path / "dead_letters")
    assert list(row) == list(DeadLetter.__annotations__)
    assert row["record"].startswith(f'{{"file":"{path}","line":2,"text":"1\\n"')
    assert (row["key"], row["timers"], row["state"]) == ("", "[]", "{}")


def test_a_reprocessed_batch_leaves_no_duplicates_in_csv_files(tmp_path: Path) -> None:
    sink = CsvSink(tmp_path / "out")
    killed = sink.open(SinkBatch("run1", "views", "sums", 7, sink.codec(int)), "00002")
    killed.write([b"9\n"])
    sink.commit(SinkBatch("run1", "views", "sums", 7, sink.codec(int)), [killed.finish()])
    assert written(sink, 1, type_=int) == {"sums-run1-000000007-00000.csv": "value\n1\n"}


def test_csv_sink_leaves_no_file_of_an_aborted_part(tmp_path: Path) -> None:
    sink = CsvSink(tmp_path)
    writer = sink.open(SinkBatch("run1", "views", "sums", 7, sink.codec(int)), "00000")
    writer.write([b"1\n"])
    writer.abort()
    assert os.listdir(tmp_path) == []


def test_errors_of_the_check_of_csv_sink_state_the_problem(tmp_path: Path) -> None:
    with pytest.raises(SinkError, match="is not a directory: give CsvSink a different path"):
        CsvSink(write(tmp_path / "file", b"")).check("sums", int)

    @frozen
    class Empty:
        pass

    with pytest.raises(SinkError, match="the type of port 'sums' has no fields"):
        CsvSink(tmp_path).check("sums", Empty)


def test_a_pickled_csv_sink_has_an_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sent = pickle.dumps(CsvSink("out"))
    monkeypatch.chdir("/")
    assert pickle.loads(sent).path == str(tmp_path / "out")


@settings(deadline=None)
@given(st.lists(st.tuples(CELLS, CELLS | st.none())))
def test_csv_source_reads_the_files_of_csv_sink(values: list[tuple[str, str | None]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        written(CsvSink(directory), *(Pair(*value) for value in values), type_=Pair)
        assert [tuple(row.values()) for row in rows(directory)] == [(left, right or "") for left, right in values]


class Echo(Handler):
    seen = SinkSpec(Any)

    def key_event(self, record: Any) -> KeyedEvent:
        return KeyedEvent("a", START, record)

    def on_event(self, subject: Subject, event: KeyedEvent) -> None:
        self.seen.collect(subject, event.value)


def echo(source: Any, dead_letters: Any = None, **options: Any) -> Job:
    sinks = {"seen": MemorySink()}
    if options.get("on_error"):
        sinks["dead_letters"] = dead_letters or MemorySink()
    return Job("echo", Echo(), {"in": source}, sinks, **options)
