"""Tables of PostgreSQL as references."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import attrs
import psycopg
import pytest
from psycopg.sql import SQL, Identifier

from amadou import Handler, Job, KeyedEvent, MemorySink, MemorySource, Param, ReferenceSpec, Secret, SinkSpec, Subject
from amadou.errors import SourceError
from amadou.event_time import from_micros
from amadou_plugins.connectors import PostgresTable
from amadou_runtime import TestRun, run


@attrs.frozen
class Limit:
    country: str
    cents: int


class Limited(Handler):
    limits = ReferenceSpec(str, Limit, source="limits")
    seen = SinkSpec(tuple)

    def key_event(self, record: str) -> KeyedEvent[str]:
        return KeyedEvent("k", from_micros(0), record)

    def on_event(self, subject: Subject, event: KeyedEvent[str]) -> None:
        limit = self.limits.get(subject, event.value)
        self.seen.collect(subject, (event.value, None if limit is None else limit.cents))


class ByPair(Limited):
    limits = ReferenceSpec(tuple[str, int], dict[str, Any], source="limits")  # type: ignore[assignment]

    def on_event(self, subject: Subject, event: KeyedEvent[str]) -> None:
        self.seen.collect(subject, tuple(sorted(key for key, _ in self.limits.items(subject))))


@pytest.fixture
def limits(postgres: Any) -> Iterator[str]:
    """The name of a table with limits."""
    name = f"limits_{uuid4().hex[:8]}"
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(SQL("CREATE TABLE {} (country text, cents int, note text)").format(Identifier(name)))
        rows = [("DE", 400, "x"), ("FR", 500, None)]
        for row in rows:
            connection.execute(SQL("INSERT INTO {} VALUES (%s, %s, %s)").format(Identifier(name)), row)
        yield name
        connection.execute(SQL("DROP TABLE {}").format(Identifier(name)))


def table_of(postgres: str, name: str, **settings: Any) -> PostgresTable:
    parts = urlsplit(postgres)
    url = parts._replace(netloc=f"{parts.hostname}:{parts.port}").geturl()
    login = {"username": parts.username, "password": Secret(parts.password)}
    return PostgresTable(**{"url": url, "table": name, **login, **settings})


def job(table: PostgresTable, *records: str, handler: Handler | None = None) -> Job:
    sources = {"events": MemorySource(records), "limits": table}
    return Job("limited", handler or Limited(), sources, {"seen": MemorySink()})


def seen(made: Job) -> list[Any]:
    return sorted(made.sinks["seen"].records, key=str)  # type: ignore[union-attr]


@pytest.mark.parametrize("engine", ["embedded", pytest.param("spark", marks=pytest.mark.spark)])
def test_rows_are_entries(postgres: Any, limits: str, engine: Any) -> None:
    table = table_of(postgres, limits, key="country", columns=["country", "cents"], row=Limit)
    made = job(table, "DE", "FR", "US")
    run(made, engine=engine, trigger="available-now")
    assert seen(made) == [("DE", 400), ("FR", 500), ("US", None)]


def test_keys_of_several_columns_and_rows_as_dicts(postgres: Any, limits: str) -> None:
    made = job(table_of(postgres, limits, key=["country", "cents"]), "x", handler=ByPair())
    run(made, engine="embedded")
    assert seen(made) == [(("DE", 400), ("FR", 500))]


def row_of(country: str, cents: int) -> Limit:
    return Limit(country, cents * 2)


def test_a_view_and_parameters(postgres: Any, limits: str) -> None:
    with psycopg.connect(postgres, autocommit=True) as connection:
        query = SQL("CREATE VIEW {} AS SELECT country, cents FROM {} WHERE cents > 450")
        connection.execute(query.format(Identifier(f"{limits}_view"), Identifier(limits)))
        try:
            table = table_of(postgres, "", key="country", row=row_of)
            made = job(attrs.evolve(table, url=Param("DATABASE"), table=Param("TABLE")), "DE", "FR")
            run(made, engine="embedded", params={"DATABASE": str(table.url), "TABLE": f"public.{limits}_view"})
        finally:
            connection.execute(SQL("DROP VIEW {}").format(Identifier(f"{limits}_view")))
    assert seen(made) == [("DE", None), ("FR", 1000)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"table": "missing_table"}, 'relation "missing_table" does not exist'),
        ({"columns": ["missing"]}, 'column "missing" does not exist'),
        ({"url": "postgresql://127.0.0.1:1/none"}, "PostgresTable .*Check the url, username= and password="),
    ],
)
def test_a_table_that_cannot_be_read_is_found_before_the_run(
    postgres: Any, limits: str, change: dict[str, Any], message: str
) -> None:
    given: dict[str, Any] = {"name": limits, "key": "country", "row": Limit, **change}
    if "table" in given:
        given["name"] = given.pop("table")
    with pytest.raises(SourceError, match=message):
        run(job(table_of(postgres, **given), "DE"), engine="embedded")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"url": "mysql://host/db"}, "the url must begin with postgresql://"),
        ({"url": "postgresql://me:secret@host/db"}, "pass the password in password=, not in the url"),
        ({"url": "postgresql://me:sec/ret@host/db"}, "pass the password in password=, not in the url"),
        ({"url": "postgresql://host/db?password=secret"}, "pass the password in password=, not in the url"),
        ({"url": "postgre://me:secret@host/db"}, "pass the password in password=, not in the url"),
        ({"url": Secret("postgresql://host/db")}, "pass the password in password=, not in the url"),
        ({"key": []}, "key must name at least one column"),
        ({"refresh": 0}, "refresh must be a positive timedelta"),
        ({"password": "open"}, "password must be a Secret"),
    ],
)
def test_settings_are_checked(settings: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"url": "postgresql://host/db", "table": "t", "key": "id", **settings}
    with pytest.raises(SourceError, match=message):
        PostgresTable(**given)
    PostgresTable("postgresql://host/db", "t", key="id", password=Secret("hidden"), refresh=1.5)


def test_records_of_a_test_run_are_rows() -> None:
    test = TestRun(job(PostgresTable("postgresql://host/db", "limits", key="country", row=Limit)))
    test.add_record({"country": "DE", "cents": 1}, "limits").add_record("DE", "events")
    result = test.run()
    assert result.records("seen") == [("DE", 1)]
    assert result.reference("limits") == {"DE": Limit("DE", 1)}
