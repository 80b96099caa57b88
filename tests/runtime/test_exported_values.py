"""Values of each type are the same after `amadou state export` and `import --into`, or are refused."""

import json
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from tests.commands import amadou
from tests.conformance.handlers import at, event, job
from tests.runtime.exporting import (
    Color,
    Item,
    Marks,
    Pair,
    Rights,
    Stores,
    rows_of,
    same_again,
    saved,
    shown,
)

from amadou import ValueSpec
from amadou_runtime import TestRun
from amadou_runtime.savepoint.readable import StateFormat
from amadou_runtime.savepoint.tagged import NotReadableError


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
@pytest.mark.parametrize(
    ("type_", "value", "settings"),
    [
        (Any, Item("a", Decimal("1.50"), anything=Item("b")), {}),
        (Any, [Pair(timedelta(1), Color.RED), {1: (Color.LATE,)}], {}),
        (int | None, None, {"default": 5}),
        (int | None, None, {"default": 5, "ttl": timedelta(days=1)}),
        (int | None, None, {"default": 5, "version": 1, "migrate": int}),
        (Any, None, {"default": 5}),
        (Marks, Marks.NEW | Marks.OLD, {}),
        (Marks, Marks(0), {}),
        (Rights, Rights.READ | Rights.WRITE, {}),
        (Rights, Rights(8), {}),
        (dict[str, Rights | None], {"a": Rights.READ | Rights.WRITE, "b": None}, {}),
        (Any, [Marks.NEW | Marks.OLD, Rights(3)], {}),
        (timedelta, timedelta(days=400_000, microseconds=1), {}),
        (timedelta, timedelta.max, {}),
        (timedelta, timedelta.min, {}),
    ],
    ids=str,
)
def test_a_job_reads_the_same_value_after_its_state_is_exported_and_imported(
    type_: Any, value: Any, settings: dict[str, Any], suffix: str, tmp_path: Path
) -> None:
    of_type = job(Stores(type_, **settings))
    run = TestRun(of_type).set_state("one", "k", value, written=at(0) if "ttl" in settings else None)
    new = same_again(saved(run, tmp_path), suffix)
    result = TestRun(of_type, savepoint=new).add_record(event(1)).run()
    assert result.records("seen") == [value]


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (dict[str, int | None], {"$None": None}),
        (dict[str, str], {"$msgpack": "wAA="}),
        (dict[str, str], {"$msgpack": "text"}),
        (dict[str, datetime] | None, {"_type": at(0), "_value": at(0)}),
        (dict[str, str] | None, {"_type": "a", "_value": "b"}),
        (dict[str, Any], {"$bytes": "YQ=="}),
        (dict, {"$None": None}),
        (Any, {"$None": None}),
        (Any, {"$msgpack": "text"}),
        (Any, [{"$object": ["a:b", {}]}, {"$map": []}, {"$set": 1}]),
    ],
    ids=str,
)
def test_a_dict_whose_keys_are_those_of_the_notation_of_rows_is_exported_and_imported(
    type_: Any, value: Any, tmp_path: Path
) -> None:
    stored = job(Stores(type_))
    new = same_again(saved(TestRun(stored).set_state("one", "k", value), tmp_path), "jsonl")
    assert TestRun(stored, savepoint=new).add_record(event(1)).run().records("seen") == [value]


def of_earlier(encoded: Any, version: int) -> Any:
    return MIGRATED[type(encoded)]


MIGRATED: dict[Any, Any] = {
    int: timedelta(minutes=5),
    float: Decimal(5),
    str: datetime(2025, 1, 1, tzinfo=timezone.utc),
}
MIGRATED |= {bytes: b"", datetime: "noon", dict: Item("a")}


@pytest.mark.parametrize(
    ("earlier", "value", "type_"),
    [
        (int, 5, timedelta),
        (float, 5.5, Decimal),
        (str, "2025-01-01T00:00:00+00:00", datetime),
        (int, 5, Any),
        (dict[datetime, int], {at(0): 1}, Item),
        (datetime, at(0), str),
        (bytes, b"a", bytes),
    ],
    ids=str,
)
def test_state_that_has_not_been_migrated_yet_is_exported_and_imported(
    earlier: Any, value: Any, type_: Any, tmp_path: Path
) -> None:
    run = TestRun(job(Stores(earlier)))
    run.set_state("one", "k", value).set_state("by_key", "k", {"a": value}).set_state("items", "k", [value]).run()
    run.savepoint(tmp_path / "earlier")
    migrating = job(Stores(type_, version=1, migrate=of_earlier))
    run = TestRun(migrating, savepoint=tmp_path / "earlier").add_record(event(1, key="another"))
    new = same_again(saved(run, tmp_path), "jsonl")
    assert shown(TestRun(migrating, savepoint=new)) == shown(TestRun(migrating, savepoint=tmp_path / "earlier"))


@pytest.mark.parametrize(
    ("span", "seconds"),
    [
        (timedelta(days=1), 86400),
        (timedelta(microseconds=1), 1e-06),
        (timedelta(days=400_000, microseconds=1), "34560000000.000001"),
        (timedelta.min, -86399999913600),
        (timedelta.max, "86399999999999.999999"),
    ],
    ids=str,
)
def test_an_exported_timedelta_is_a_readable_number_of_seconds(span: timedelta, seconds: Any, tmp_path: Path) -> None:
    run = TestRun(job(Stores(timedelta))).set_state("items", "k", [span, timedelta(0)])
    (row,) = rows_of(saved(run, tmp_path))
    assert row["value"] == [seconds, 0]


def test_an_import_of_a_timedelta_that_is_out_of_range_is_an_error(tmp_path: Path) -> None:
    savepoint = saved(TestRun(job(Stores(timedelta))).set_state("one", "k", timedelta(1)), tmp_path)
    for value in (1e20, "86400000000000", "NaN", "inf", "day", "", True, [1], 10**400):
        file = tmp_path / "changed.jsonl"
        file.write_text(json.dumps({"key": "k", "spec": "one", "value": value}))
        done = amadou("state", "import", str(file), str(tmp_path / "new"), "--into", str(savepoint))
        assert (done.exit_code, isinstance(done.exception, SystemExit)) == (1, True), value
        assert "row 1 cannot be imported" in " ".join(done.output.split()), value


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (list[int], [1, "x"]),
        (dict[str, int], {"a": None}),
        (tuple[int, str], [1]),
        (Item, {"name": 5}),
        (Item | None, 3),
        (str | int, 1.5),
        (bytes, {"$datetime": "2025-01-01T00:00:00+00:00"}),
    ],
    ids=str,
)
def test_a_value_of_another_type_is_refused(type_: Any, value: Any) -> None:
    structure = ValueSpec(type_, name="value").structure()
    with pytest.raises(NotReadableError, match="is not of the type"):
        StateFormat([structure]).from_json({"value": value})


@pytest.mark.parametrize("type_", [str, int, float, bool, bytes, datetime, date, timedelta, Decimal, UUID], ids=str)
@pytest.mark.parametrize("value", [None, False, 1, -1.5, "", "x", [], [1], {}, {"a": 1}], ids=str)
def test_a_json_value_is_one_of_the_type_or_is_refused(type_: Any, value: Any) -> None:
    format_ = StateFormat([ValueSpec(type_, name="value").structure()])
    try:
        assert format_.from_json({"value": value})
    except NotReadableError:
        return
