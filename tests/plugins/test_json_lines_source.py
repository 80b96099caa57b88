import gzip
import pickle
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from amadou import Handler, Job, KeyedEvent, MemorySink, Param, Secret, SinkSpec, Subject
from amadou.errors import CallbackError, SourceError
from amadou_plugins.connectors import JsonLinesSource
from amadou_runtime import TestRun, run

START = datetime(2025, 1, 1, tzinfo=timezone.utc)


class Echo(Handler):
    seen = SinkSpec(Any)

    def key_event(self, record: Any) -> KeyedEvent:
        return KeyedEvent("a", START, record["value"])

    def on_event(self, subject: Subject, event: KeyedEvent) -> None:
        self.seen.collect(subject, event.value)


def job(source: Any, **settings: Any) -> Job:
    sinks = {"seen": MemorySink()}
    if settings.get("on_error"):
        sinks["dead_letters"] = MemorySink()
    return Job("echo", Echo(), {"in": source}, sinks, **settings)


def write(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def test_json_lines_source_passes_the_value_of_each_line_to_key_event(tmp_path: Path) -> None:
    views = job(JsonLinesSource(write(tmp_path / "in.jsonl", b'{"value": [1, "\\u00e9", null]}\r\n{"value": 2.5}')))
    run(views, engine="embedded")
    assert views.sinks["seen"].records == [[1, "é", None], 2.5]


def test_json_lines_source_skips_blank_lines(tmp_path: Path) -> None:
    source = JsonLinesSource(write(tmp_path / "in.jsonl", b'\n{"value": 1}\r\n  \t\n\n{"value": 2}\n\n'))
    assert list(source.records()) == [b'{"value": 1}', b'{"value": 2}']


def test_the_key_event_of_json_lines_source_gets_the_value_of_each_line(tmp_path: Path) -> None:
    path = write(tmp_path / "in.jsonl", b'["b", 7]\n')
    views = job(JsonLinesSource(path, key_event=lambda pair: KeyedEvent(pair[0], START, pair[1])))
    run(views, engine="embedded")
    assert views.sinks["seen"].records == [7]


def test_the_error_for_a_line_that_is_not_json_shows_the_line(tmp_path: Path) -> None:
    views = job(JsonLinesSource(write(tmp_path / "in.jsonl", b'{"value": 1}\n{"value": \n')))
    with pytest.raises(CallbackError) as raised:
        run(views, engine="embedded")
    assert raised.value.source == "in"
    assert raised.value.error == (
        """SourceError: JsonLinesSource: the line b'{"value": ' is not JSON: """
        "correct the line (unexpected end of data at character 11)"
    )


def test_the_error_for_a_long_line_that_is_not_json_shows_its_beginning() -> None:
    message = r"the line b'\[1, x{94}… is not JSON: correct the line \(.* at character 5\)$"
    with pytest.raises(SourceError, match=message) as raised:
        JsonLinesSource.decode(b"[1, " + b"x" * 10_000)
    assert isinstance(raised.value.__cause__, orjson.JSONDecodeError)


def test_the_error_for_a_long_line_hides_a_secret_completely() -> None:
    secret = Secret("Zq7-secret-of-lines")
    with pytest.raises(SourceError, match=r"x\*\*\*") as raised:
        JsonLinesSource.decode(b"[" + b"x" * 90 + secret.reveal().encode())
    assert "Zq7" not in str(raised.value)


def test_a_line_that_is_not_json_becomes_a_dead_letter_with_the_line(tmp_path: Path) -> None:
    path = write(tmp_path / "in.jsonl", b'{"value": 1}\n{"value": \n{"value": "\xff"}\n{"value": 2}\n')
    views = job(JsonLinesSource(path), on_error="dead_letter")
    run(views, engine="embedded")
    assert views.sinks["seen"].records == [1, 2]
    dead_letters = views.sinks["dead_letters"].records
    assert [letter.record for letter in dead_letters] == [b'{"value": ', b'{"value": "\xff"}']
    assert all(letter.error.startswith("SourceError: JsonLinesSource: the line b") for letter in dead_letters)


def test_records_of_a_test_run_with_json_lines_source_are_lines_or_values() -> None:
    result = TestRun(job(JsonLinesSource("in"))).add_record(b'{"value": 1}').add_record({"value": 2}).run()
    assert result.records("seen") == [1, 2]


@given(st.recursive(st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(), st.lists))
def test_json_lines_source_reads_any_value_of_json(value: Any) -> None:
    assert JsonLinesSource.decode(orjson.dumps(value)) == value


def test_json_lines_source_reads_the_files_that_lines_source_reads(tmp_path: Path) -> None:
    write(tmp_path / "b.jsonl", b"2\n")
    write(tmp_path / "a.jsonl.gz", gzip.compress(b"\xef\xbb\xbf1\n"))
    write(tmp_path / "_SUCCESS", b"no")
    assert list(JsonLinesSource(tmp_path).records()) == [b"1", b"2"]
    assert list(JsonLinesSource(str(tmp_path / "b*")).records()) == [b"2"]
    assert JsonLinesSource(tmp_path / "b.jsonl").bounded
    assert not JsonLinesSource(tmp_path).bounded


def test_errors_of_json_lines_source_name_the_source(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"JsonLinesSource\('.*missing'\): there is no file"):
        JsonLinesSource(tmp_path / "missing").check()
    with pytest.raises(SourceError, match=r"JsonLinesSource\('s3://views/'\): the embedded engine"):
        list(JsonLinesSource("s3://views/").records())
    with pytest.raises(SourceError, match=r"JsonLinesSource: .*a\.gz cannot be read"):
        list(JsonLinesSource(write(tmp_path / "a.gz", b"no gzip")).records())
    packed = gzip.compress(b"1\n" * 100)
    with pytest.raises(SourceError, match=r"JsonLinesSource: .*b\.gz cannot be read"):
        list(JsonLinesSource(write(tmp_path / "b.gz", packed[:12] + b"\xff" + packed[13:])).records())
    with pytest.raises(SourceError, match="max_files_per_batch must be a positive integer"):
        JsonLinesSource("views", max_files_per_batch=0)


def test_settings_of_json_lines_source_can_be_parameters() -> None:
    filled = job(JsonLinesSource(Param("VIEWS"), max_files_per_batch=Param("FILES", type=int))).with_params(
        {"VIEWS": "views/", "FILES": "3"}
    )
    assert filled.sources["in"] == JsonLinesSource("views/", max_files_per_batch=3)
    assert pickle.loads(pickle.dumps(filled.sources["in"])) == filled.sources["in"]
