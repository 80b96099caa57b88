import logging
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from io import StringIO
from pathlib import Path
from typing import Any, Literal, NamedTuple, NewType, TypedDict
from urllib.parse import urlsplit
from uuid import UUID, uuid4

import attrs
import psycopg
import pytest
from attrs import frozen
from psycopg.sql import SQL, Identifier
from rich.console import Console
from tests.services import OwnService, need, new_database, own_service
from typing_extensions import NotRequired

from amadou import DeadLetter, Handler, Job, KeyedEvent, LateEvent, MemorySource, Param, Secret, SinkSpec, Subject
from amadou.errors import RunError, SinkError
from amadou.plugins import SinkBatch, hookimpl
from amadou_plugins.connectors import LinesSource, PostgresSink
from amadou_runtime import run, start
from amadou_runtime.command.describe import describe
from amadou_runtime.jobs.named_connectors import with_connectors

START = datetime(2025, 1, 1, tzinfo=timezone.utc)
SUMS = "CREATE TABLE sums (channel text PRIMARY KEY, sum bigint NOT NULL, seen timestamptz DEFAULT now(), id serial)"
WAITING = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


@frozen
class MaybeSum:
    channel: str | None
    sum: int


@frozen
class Sum:
    channel: str
    sum: int


class Sums(Handler):
    """Counts the events of each channel, and tells each count."""

    sums = SinkSpec(Sum)

    def key_event(self, record: Any) -> KeyedEvent[int]:
        channel, _, number = (record.decode() if isinstance(record, bytes) else record).partition(" ")
        return KeyedEvent(channel, START, int(number))

    def on_event(self, subject: Subject, event: KeyedEvent[int]) -> None:
        self.sums.collect(subject, Sum(subject.key, event.value))


@attrs.frozen
class Database:
    """A database, and how a sink reaches it.

    :param raw: its URL with user and password
    :param connection: an open connection to it; `None` to connect for each statement
    """

    raw: str
    connection: Any = None

    def sink(self, table: str, **settings: Any) -> PostgresSink:
        parts = urlsplit(self.raw)
        login = {"username": parts.username, "password": Secret(parts.password)}
        return PostgresSink(f"postgresql://{self.address}", table, **{**login, **settings})

    @property
    def address(self) -> str:
        return self.raw.partition("@")[2]

    def ask(self, sql: Any) -> list[Any]:
        if self.connection is None:
            with psycopg.connect(self.raw, autocommit=True) as connection:
                return attrs.evolve(self, connection=connection).ask(sql)
        answer = self.connection.execute(sql)
        return answer.fetchall() if answer.description else []

    def sums(self) -> list[Any]:
        return self.ask("SELECT channel, sum FROM sums ORDER BY id")

    def empty(self) -> None:
        """Drop what tests have created in the database."""
        self.ask(
            "DROP SCHEMA IF EXISTS amadou, public CASCADE; CREATE SCHEMA public; GRANT USAGE ON SCHEMA public TO PUBLIC"
        )


@pytest.fixture(scope="module")
def shared_database() -> Iterator[Database]:
    with new_database() as url, psycopg.connect(url, autocommit=True) as to_it:
        yield Database(url, to_it)


@pytest.fixture
def database(shared_database: Database) -> Iterator[Database]:
    """A database without tables; to make one for each test takes longer than the test."""
    yield shared_database
    shared_database.empty()


@pytest.fixture
def sums(database: Database) -> Database:
    """A database with the table `sums`."""
    database.ask(SUMS)
    return database


@pytest.fixture(scope="module")
def own_postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnService]:
    """A PostgreSQL of these tests' own, to stop and start."""
    need("PostgreSQL", "AMADOU_POSTGRES")
    yield from own_service("postgres", tmp_path_factory.mktemp("own") / "postgres")


@pytest.fixture
def own_sums(own_postgres: OwnService) -> Database:
    """A database with the table `sums` on a PostgreSQL that the test may stop."""
    own_postgres.start()  # if the test before has stopped it
    own = Database(own_postgres.url)
    own.empty()
    own.ask(SUMS)
    return own


def checked(sink: PostgresSink, type_: Any = Sum) -> PostgresSink:
    sink.check("sums", type_)
    return sink


def batch(sink: PostgresSink, number: int = 0, type_: Any = Sum, run: str = "run") -> SinkBatch:
    return SinkBatch(run, "job", "sums", number, sink.codec(type_))


def stored(sink: PostgresSink, into: SinkBatch, *values: Any, part: str = "00000") -> Any:
    """What the writer of a part tells of values that it stored."""
    writer = sink.open(into, part)
    writer.write([into.codec.encode(value) for value in values])
    return writer.finish()


def commit(sink: PostgresSink, into: SinkBatch, *values: Any) -> None:
    sink.commit(into, [stored(sink, into, *values)])


def put(sink: PostgresSink, type_: Any, *values: Any) -> None:
    checked(sink, type_)
    commit(sink, batch(sink, type_=type_), *values)


def job(sink: PostgresSink | list[PostgresSink], records: list[str], **settings: Any) -> Job:
    return Job("sums", Sums(), {"in": MemorySource(records)}, {"sums": sink}, **settings)


def test_a_run_inserts_a_row_for_each_value(sums: Database) -> None:
    run(job(sums.sink("sums"), ["b 1", "a 2"]), engine="embedded")

    assert sums.ask("SELECT channel, sum, id, seen IS NULL FROM sums ORDER BY channel") == [
        ("a", 2, 2, False),
        ("b", 1, 1, False),
    ]


def test_an_upsert_replaces_rows_of_the_same_key(sums: Database) -> None:
    sums.ask("INSERT INTO sums VALUES ('a', 7, '2025-01-01Z'), ('c', 8, NULL)")

    run(job(sums.sink("sums", upsert_key=["channel"]), ["a 1", "b 5", "a 2"]), engine="embedded")

    assert sums.ask("SELECT channel, sum FROM sums ORDER BY channel") == [("a", 2), ("b", 5), ("c", 8)]
    # what is no field stays as it was
    assert sums.ask("SELECT seen FROM sums WHERE channel = 'a'") == [(START,)]


def test_the_last_value_of_a_key_in_a_batch_wins_in_any_part(sums: Database) -> None:
    sink = checked(sums.sink("sums", upsert_key="channel"))
    into = batch(sink)
    many = [Sum("a", number) for number in range(2500)]
    second = stored(sink, into, Sum("b", 1), Sum("c", 2), Sum("c", 3), part="00001")
    first = stored(sink, into, *many, Sum("b", 9), part="00000")

    sink.commit(into, [first, second])

    assert sorted(sums.sums()) == [("a", 2499), ("b", 1), ("c", 3)]


def test_an_upsert_by_all_columns_leaves_rows_unchanged(database: Database) -> None:
    database.ask("CREATE TABLE pairs (channel text, sum bigint, UNIQUE (sum, channel))")
    sink = database.sink("pairs", upsert_key="channel,sum")

    put(sink, Sum, Sum("a", 1), Sum("a", 1))
    commit(sink, batch(sink, 1), Sum("a", 1), Sum("a", 2))

    assert database.ask("SELECT * FROM pairs ORDER BY sum") == [("a", 1), ("a", 2)]


def test_values_keep_their_order(database: Database) -> None:
    database.ask("CREATE TABLE sums (id serial, channel text, sum bigint)")
    sink = checked(database.sink("sums"))
    into = batch(sink)
    second = stored(sink, into, *(Sum("b", number) for number in range(1001)), part="00001")
    first = stored(sink, into, *(Sum("a", number) for number in range(2001)), part="00000")

    sink.commit(into, [first, second])

    assert database.sums() == [("a", n) for n in range(2001)] + [("b", n) for n in range(1001)]


def test_long_values_are_stored_whole(database: Database) -> None:
    database.ask("CREATE TABLE sums (id serial, channel text, sum bigint)")
    texts = [character * (700 << 10) for character in 'a"\\ü\n']

    put(database.sink("sums"), Sum, *(Sum(text, 1) for text in texts))

    assert database.sums() == [(text, 1) for text in texts]


# Types


class Colour(Enum):
    RED = "red"


class Point(NamedTuple):
    x: int
    y: int


Name = NewType("Name", str)
EAST = timezone(timedelta(hours=2))


@pytest.mark.parametrize(
    ("type_", "value", "column", "held"),
    [
        (int, 2**60, "bigint", 2**60),
        (int, 3, "numeric(5, 2)", Decimal("3.00")),
        (bool, True, "boolean", True),
        (float, 0.1, "double precision", 0.1),
        (float, 1e-300, "numeric", Decimal("1e-300")),
        (float, float("nan"), "real", None),
        (str, 'tab\t"quote" \\ \n ü 😀', "text", 'tab\t"quote" \\ \n ü 😀'),
        (str, "00000000-0000-0000-0000-000000000001", "uuid", UUID(int=1)),
        (str, "abc", "character(5)", "abc  "),
        (Name, "x", "varchar(3)", "x"),
        (Literal["a", "b"], "a", "text", "a"),
        (str | None, None, "text", None),
        (Decimal, Decimal("12345678901234567890.123456789"), "numeric", Decimal("12345678901234567890.123456789")),
        (datetime, datetime(2025, 1, 1, 2, 0, 0, 7, tzinfo=EAST), "timestamptz", START.replace(microsecond=7)),
        (datetime, datetime(2025, 1, 1, 2, tzinfo=EAST), "timestamp", datetime(2025, 1, 1)),
        (datetime, datetime(2025, 1, 1), "timestamptz", START),
        (date, date(2025, 1, 31), "date", date(2025, 1, 31)),
        (time, time(1, 2, 3), "time", time(1, 2, 3)),
        (timedelta, timedelta(days=1, microseconds=5), "interval", timedelta(days=1, microseconds=5)),
        (timedelta, timedelta(seconds=1.5), "double precision", 1.5),
        (UUID, UUID(int=1), "uuid", UUID(int=1)),
        (bytes, b"\x00\xff\\", "bytea", b"\x00\xff\\"),
        (Colour, Colour.RED, "text", "red"),
        (list[int], [1, 2], "smallint[]", [1, 2]),
        (list[list[int]], [[1, 2], [3, 4]], "integer[]", [[1, 2], [3, 4]]),
        (tuple[str, ...], ("a", 'b,"'), "text[]", ["a", 'b,"']),
        (frozenset[datetime], frozenset([START]), "timestamptz[]", [START]),
        (list[int], [1], "jsonb", [1]),
        (dict[str, Any], {"a": [1, None]}, "jsonb", {"a": [1, None]}),
        (Point, Point(1, 2), "json", {"x": 1, "y": 2}),
        (str, "text", "jsonb", "text"),
        (dict[str, int], {"a": 1}, "text", '{"a": 1}'),
        (Any, {"a": 1}, "jsonb", {"a": 1}),
        (Any, 5, "integer", 5),
        (list[bytes], [b"a"], "text[]", ["YQ=="]),
        (str | int, 5, "text", "5"),
        (str, "12:00", "small_text", "12:00"),
        (datetime, datetime(2025, 1, 1, 2, tzinfo=EAST), "local_time", datetime(2025, 1, 1)),
        (str, "happy", "mood", "happy"),
        (Point, Point(1, 2), "pair", "(1,2)"),
    ],
)
def test_a_column_stores_the_value_of_a_field(
    database: Database, type_: Any, value: Any, column: str, held: Any
) -> None:
    database.ask(
        "CREATE DOMAIN small_text AS varchar(9); CREATE DOMAIN local_time AS timestamp; "
        "CREATE TYPE mood AS ENUM ('happy'); CREATE TYPE pair AS (x integer, y integer); "
        f"CREATE TABLE held (value {column})"
    )
    port = attrs.make_class("Held", {"value": attrs.field(type=type_)}, frozen=True)

    put(database.sink("held"), port, port(value))

    shown = "value::text" if column == "pair" else "value"
    [(found,)] = database.ask(f"SELECT {shown} FROM held")
    assert found == held
    assert type(found) is type(held)


@pytest.mark.parametrize(
    ("type_", "column"),
    [
        (str, "integer"),
        (str, "bytea"),
        (str, "text[]"),
        (str, "boolean"),
        (float, "bigint"),
        (int, "boolean"),
        (int, "timestamptz"),
        (bool, "integer"),
        (datetime, "date"),
        (datetime, "bigint"),
        (bytes, "uuid"),
        (list[int], "integer"),
        (list[str], "integer[]"),
        (list[bytes], "bytea[]"),
        (int, "integer[]"),
        (dict[str, int], "integer"),
        (int | str, "integer"),
        (int | None, "date"),
        (Colour, "integer"),
    ],
)
def test_a_type_that_does_not_fit_its_column_is_an_error_before_the_run(
    database: Database, type_: Any, column: str
) -> None:
    database.ask(f"CREATE TABLE held (value {column})")
    port = attrs.make_class("Held", {"value": attrs.field(type=type_)}, frozen=True)

    with pytest.raises(SinkError, match=r"the column value \(.*\) cannot store .*: make it "):
        database.sink("held").check("held", port)


@dataclass
class Everything:
    name: str
    count: int
    ratio: float | None
    is_open: bool
    price: Decimal
    at: datetime
    day: date
    clock: time
    took: timedelta
    id: UUID
    raw: bytes
    colour: Colour
    numbers: list[int]
    more: dict[str, list[int]]
    either: int | str
    anything: Any


EVERYTHING = Everything(
    "a",
    1,
    None,
    True,
    Decimal("1.5"),
    START,
    date(2025, 1, 1),
    time(1),
    timedelta(1),
    UUID(int=3),
    b"\0",
    Colour.RED,
    [1],
    {"a": [1]},
    "x",
    {"b": 2},
)


def suggested(sink: PostgresSink, type_: Any) -> str:
    """The definition of the table that `check` says is missing."""
    with pytest.raises(
        SinkError, match=r"the database .* has no table .*: correct the name, or create the table:"
    ) as caught:
        sink.check("port", type_)
    return str(caught.value).partition("\n")[2]


@pytest.mark.parametrize("type_", [Everything, DeadLetter, LateEvent, Sum, Point])
def test_the_error_of_a_missing_table_has_a_statement_that_creates_it(database: Database, type_: Any) -> None:
    sink = database.sink("missing")

    database.ask(suggested(sink, type_))

    checked(sink, type_)


def test_all_missing_tables_of_a_job_are_named_at_once(database: Database) -> None:
    both = attrs.evolve(job(database.sink("sums"), []), sinks={"sums": [database.sink("other"), database.sink("lost")]})
    with pytest.raises(SinkError) as caught:
        run(both, engine="embedded")
    for name in ("other", "lost"):
        assert f" has no table {name}: correct the name" in str(caught.value)
        assert f'CREATE TABLE "{name}" (' in str(caught.value)


def test_the_suggested_table_stores_values_of_each_type(database: Database) -> None:
    sink = database.sink("missing", upsert_key=("name", "id"))
    database.ask(suggested(sink, Everything))

    put(sink, Everything, EVERYTHING)

    values = attrs.asdict if attrs.has(Everything) else vars
    want = {**values(EVERYTHING), "colour": "red"}
    assert database.ask("SELECT * FROM missing") == [tuple(want.values())]


class Named(TypedDict):
    channel: str
    sum: int


@pytest.mark.parametrize(("type_", "value"), [(Named, {"channel": "a", "sum": 1}), (Sum, Sum("a", 1))])
def test_types_with_fields_become_rows(sums: Database, type_: Any, value: Any) -> None:
    put(sums.sink("sums"), type_, value)

    assert sums.sums() == [("a", 1)]


class Noted(Named):
    note: NotRequired[str]


def test_a_key_that_a_typed_dict_may_leave_out_becomes_null(database: Database) -> None:
    sink = database.sink("noted")
    database.ask(suggested(sink, Noted))
    put(sink, Noted, {"channel": "a", "sum": 1}, {"channel": "b", "sum": 2, "note": "x"})
    assert database.ask("SELECT * FROM noted ORDER BY channel") == [("a", 1, None), ("b", 2, "x")]


def test_a_job_can_write_typed_dicts(sums: Database) -> None:
    class Sums(Handler):
        sums = SinkSpec(Named)

        def key_event(self, record: str) -> KeyedEvent:
            return KeyedEvent(record, datetime(2025, 1, 1, tzinfo=timezone.utc), 1)

        def on_event(self, subject: Subject, event: KeyedEvent) -> None:
            self.sums.collect(subject, {"channel": subject.key, "sum": event.value})

    job = Job("sums", Sums(), {"in": MemorySource(["a", "b"])}, {"sums": sums.sink("sums")})
    run(job, engine="embedded")
    assert sums.sums() == [("a", 1), ("b", 1)]


@pytest.mark.parametrize("type_", [int, dict[str, int], Any, list[Sum]])
def test_a_type_without_fields_is_an_error(sums: Database, type_: Any) -> None:
    with pytest.raises(SinkError, match=r"the type of port 'sums' has no fields .* attrs class"):
        sums.sink("sums").check("sums", type_)


def test_tables_and_columns_can_have_any_name(database: Database) -> None:
    Odd = TypedDict("Odd", {'a "b" 50%{}': int, "place": int, "Order": str, "c0": int, "number": int})
    value: Any = {'a "b" 50%{}': 1, "place": 2, "Order": "x", "c0": 3, "number": 4}
    database.ask('CREATE SCHEMA "My schema"')
    sink = database.sink('My schema.a "table" 100%s', upsert_key=("Order", 'a "b" 50%{}'))
    database.ask(suggested(sink, Odd))

    put(sink, Odd, value, {**value, "place": 5})

    table = Identifier("My schema", 'a "table" 100%s')
    assert database.ask(SQL("SELECT * FROM {}").format(table)) == [(1, 5, "x", 3, 4)]


# What is looked at before a run


@pytest.mark.parametrize(
    ("table", "settings", "error"),
    [
        ("channel text", {}, r"the field sum has no column: run ALTER TABLE \"sums\" ADD COLUMN \"sum\" bigint"),
        (
            "channel text, sum bigint, day date NOT NULL",
            {},
            r"the column day is required but has no field: .*ALTER TABLE \"sums\" ALTER \"day\" SET DEFAULT",
        ),
        ("channel text, sum date", {}, r"the column sum \(date\) cannot store int: make it bigint"),
        ("channel text, sum bigint GENERATED ALWAYS AS IDENTITY", {}, "the column sum is always generated"),
        ("channel text, sum int GENERATED ALWAYS AS (1) STORED", {}, "the column sum is always generated"),
        (
            "channel text, sum bigint",
            {"upsert_key": ["channel"]},
            r"there is no unique index on exactly the upsert_key columns: "
            r"run CREATE UNIQUE INDEX ON \"sums\" \(\"channel\"\)",
        ),
        (
            "channel text, sum bigint, UNIQUE (channel, sum)",
            {"upsert_key": ["sum"]},
            "there is no unique index on exactly",
        ),
        (
            "channel text, sum bigint",
            {"upsert_key": ["minute"]},
            r"port .* has no field 'minute' for upsert_key: use one of channel, sum",
        ),
    ],
)
def test_a_table_that_does_not_fit_is_an_error_before_the_run(
    database: Database, table: str, settings: dict[str, Any], error: str
) -> None:
    database.ask(f"CREATE TABLE sums ({table})")

    with pytest.raises(SinkError, match=error):
        run(job(database.sink("sums", **settings), ["a 1"]), engine="embedded")
    assert database.ask("SELECT * FROM sums") == []


def test_an_upsert_key_that_can_be_none_is_an_error(database: Database) -> None:
    database.ask("CREATE TABLE sums (channel text UNIQUE, sum bigint)")
    with pytest.raises(
        SinkError, match="channel in upsert_key can be None, which matches no row: remove None from its type"
    ):
        database.sink("sums", upsert_key="channel").check("sums", MaybeSum)


def test_one_error_names_everything_that_does_not_fit(database: Database) -> None:
    database.ask("CREATE TABLE sums (sum date, day date NOT NULL)")

    with pytest.raises(SinkError) as caught:
        database.sink("sums").check("sums", Sum)

    assert str(caught.value).count("\n  - ") == 3


def test_a_wrong_password_is_an_error_that_does_not_show_it(sums: Database) -> None:
    sink = sums.sink("sums", password=Secret("not-the-password"))

    with pytest.raises(SinkError, match=r"password authentication failed .* Check username= and password=") as caught:
        sink.check("sums", Sum)

    assert "not-the-password" not in repr(caught.value)
    assert "not-the-password" not in repr(sink)


def test_a_missing_password_is_an_error(sums: Database) -> None:
    with pytest.raises(SinkError, match=r"no password supplied\. Check username= and password="):
        sums.sink("sums", password=None).check("sums", Sum)


def test_a_database_that_does_not_answer_the_check_is_an_error_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]

    with pytest.raises(SinkError, match=r"Connection refused.* Check the url, and that PostgreSQL is running"):
        PostgresSink(f"postgresql://127.0.0.1:{port}/x", "sums").check("sums", Sum)


def test_a_missing_psycopg_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)

    with pytest.raises(SinkError, match=r"needs psycopg: run pip install 'amadou\[postgres\]'"):
        PostgresSink("postgresql://127.0.0.1/x", "sums").check("sums", Sum)


@pytest.fixture
def nobody(sums: Database) -> Iterator[PostgresSink]:
    """A sink whose user may log in and no more."""
    name = f"nobody_{uuid4().hex}"
    sums.ask(f"CREATE ROLE {name} LOGIN PASSWORD 'a long password'; GRANT ALL ON SEQUENCE sums_id_seq TO {name}")
    yield sums.sink("sums", username=name, password=Secret("a long password"), upsert_key="channel")
    sums.ask(f"DROP OWNED BY {name}")
    sums.ask(f"DROP ROLE {name}")


def test_the_error_of_a_missing_right_has_the_statement_that_grants_it(sums: Database, nobody: PostgresSink) -> None:
    errors = []
    for _ in range(3):
        with pytest.raises(SinkError) as caught:
            nobody.check("sums", Sum)
        errors.append(str(caught.value))
        for right in errors[-1].partition(" run ")[2].split("; "):
            sums.ask(right)
        if len(errors) == 1:  # else the sink may make its schema itself
            checked(sums.sink("sums"))

    checked(nobody)
    commit(nobody, batch(nobody), Sum("a", 1))

    assert sums.sums() == [("a", 1)]
    assert [text.partition("reports: ")[2].partition(";")[0].split(" for ")[1] for text in errors] == [
        f"database {sums.address.rpartition('/')[2]}",
        "schema amadou",
        "table sums",
    ]


def test_the_sink_creates_its_tables_in_a_schema_that_an_administrator_created(
    sums: Database, nobody: PostgresSink
) -> None:
    sums.ask("CREATE SCHEMA amadou")
    errors = []
    for _ in range(2):
        with pytest.raises(SinkError) as caught:
            nobody.check("sums", Sum)
        errors.append(str(caught.value).partition(" run ")[2])
        for right in errors[-1].split("; "):
            sums.ask(right)

    checked(nobody)

    assert "ON SCHEMA amadou" in errors[0]
    assert "sums" in errors[1]


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"url": "postgresql://me:hunter22@host/x"}, "does not accept a password in its url"),
        ({"url": "postgresql://host/x?password=hunter22"}, "does not accept a password in its url"),
        ({"url": "postgresql://me:hunt/er22@host/x"}, "does not accept a password in its url"),
        ({"url": "postgresql://host/x?sslpassword=hunter22"}, "does not accept a password in its url"),
        ({"url": "host=x password=hunter22"}, "needs a url such as postgresql://"),
        (
            {"url": Secret("postgresql://me:hunter22@host/x")},
            "If it is a Secret, make it a string and pass the password as password=",
        ),
        ({"url": "postgresql://[::1/x"}, "needs a url such as postgresql://"),
        ({"table": "a.b.c"}, "table must be a name such as sums or public.sums"),
        ({"table": ""}, "table must be a name"),
        ({"password": "hunter22"}, "password must be a Secret"),
        ({"give_up_after": timedelta(0)}, "give_up_after must be a positive timedelta"),
        ({"give_up_after": 5}, "give_up_after must be a positive timedelta"),
    ],
)
def test_an_unusable_setting_is_an_error(settings: dict[str, Any], error: str) -> None:
    with pytest.raises(SinkError, match=error) as caught:
        PostgresSink(**{"url": "postgresql://host/x", "table": "sums", **settings})

    assert "hunter22" not in str(caught.value)


def test_settings_may_be_parameters(sums: Database) -> None:
    sink = PostgresSink(
        Param("DATABASE"),
        Param("TABLE"),
        upsert_key=Param("KEY", type=lambda text: text.split(",")),
        username=Param("USER_NAME"),
        password=Param("PASSWORD", secret=True),
        give_up_after=Param("PATIENCE", type=timedelta),
    )
    known = sums.sink("sums")
    params = {
        "DATABASE": known.url,
        "TABLE": "sums",
        "KEY": "channel",
        "USER_NAME": known.username,
        "PASSWORD": known.password.reveal(),
        "PATIENCE": "5",
    }

    run(job(sink, ["a 1", "a 2"]), engine="embedded", params=params)

    assert sums.sums() == [("a", 2)]


def test_the_sink_has_a_name_on_the_command_line(sums: Database) -> None:
    known = sums.sink("sums")
    text = f"postgres:{known.url}?table=sums&upsert_key=channel&username={known.username}"
    named = with_connectors(job(known, ["a 1", "a 3"]), {}, {"sums": [f"{text}&password={known.password.reveal()}"]})

    run(named, engine="embedded")

    assert sums.sums() == [("a", 3)]
    shown = StringIO()
    describe(named, {}, Console(file=shown, width=400))
    assert "password=***" in shown.getvalue()
    assert known.password.reveal() not in shown.getvalue()


# Exactly once


def test_a_commit_that_is_replayed_changes_nothing(sums: Database) -> None:
    sink = checked(sums.sink("sums"))
    into = batch(sink)
    part = stored(sink, into, Sum("a", 1))

    sink.commit(into, [part])
    sink.commit(into, [part])
    commit(sink, into, Sum("a", 1))  # workers did their part again, too

    assert sums.sums() == [("a", 1)]
    assert sums.ask("SELECT run, port, job, batch FROM amadou.batches") == [("run", "sums → sums", "job", 0)]
    assert sums.ask("SELECT * FROM amadou.staging") == []


def test_batches_of_the_same_number_from_other_runs_and_ports_are_written(database: Database) -> None:
    database.ask("CREATE TABLE sums (id serial, channel text, sum bigint)")
    sink = checked(database.sink("sums"))

    commit(sink, batch(sink), Sum("a", 1))
    commit(sink, batch(sink, run="another"), Sum("b", 2))
    commit(sink, attrs.evolve(batch(sink), port="another"), Sum("c", 3))

    assert database.sums() == [("a", 1), ("b", 2), ("c", 3)]


def test_a_port_may_lead_to_several_tables(database: Database) -> None:
    for table in ("sums", "others"):
        database.ask(f"CREATE TABLE {table} (id serial, channel text, sum bigint)")
    both = [database.sink("sums"), database.sink("others")]

    run(job(both, ["a 1", "b 2"]), engine="embedded")

    assert database.sums() == [("a", 1), ("b", 2)]
    assert database.ask("SELECT channel, sum FROM others ORDER BY id") == [("a", 1), ("b", 2)]


def test_rows_are_not_visible_before_the_commit(sums: Database) -> None:
    sink = checked(sums.sink("sums"))
    into = batch(sink)

    part = stored(sink, into, Sum("a", 1))
    before = sums.sums()
    sink.commit(into, [part])

    assert (before, sums.sums()) == ([], [("a", 1)])


def test_of_two_attempts_at_a_part_the_one_that_is_committed_counts(sums: Database) -> None:
    sink = checked(sums.sink("sums"))
    into = batch(sink)
    one, two = sink.open(into, "00000"), sink.open(into, "00000")
    for writer in (one, two):
        writer.write([into.codec.encode(Sum("a", 1))])
    one.finish()

    sink.commit(into, [two.finish()])

    assert sums.sums() == [("a", 1)]
    assert sums.ask("SELECT * FROM amadou.staging") == []


def test_the_rows_of_an_attempt_after_the_commit_are_removed_with_the_next_commit(sums: Database) -> None:
    sink = checked(sums.sink("sums"))
    commit(sink, batch(sink, 0), Sum("a", 1))
    stored(sink, batch(sink, 0), Sum("a", 1))

    commit(sink, batch(sink, 1), Sum("b", 2))

    assert sums.sums() == [("a", 1), ("b", 2)]
    assert sums.ask("SELECT * FROM amadou.staging") == []


def test_the_staged_rows_of_a_killed_driver_are_removed_when_the_batch_is_reprocessed(sums: Database) -> None:
    sink = checked(sums.sink("sums"))
    stored(sink, batch(sink), Sum("a", 1))

    commit(sink, batch(sink), Sum("a", 1))

    assert sums.sums() == [("a", 1)]
    assert sums.ask("SELECT * FROM amadou.staging") == []


def test_an_old_driver_neither_writes_nor_removes_rows_of_its_successor(sums: Database) -> None:
    sink = checked(sums.sink("sums", upsert_key="channel"))
    old = stored(sink, batch(sink, 0), Sum("a", 1))
    commit(sink, batch(sink, 0), Sum("a", 1))
    commit(sink, batch(sink, 1), Sum("a", 2))
    next_part = stored(sink, batch(sink, 2), Sum("a", 3))

    sink.commit(batch(sink, 0), [old])
    between = sums.sums()
    sink.commit(batch(sink, 2), [next_part])

    assert (between, sums.sums()) == ([("a", 2)], [("a", 3)])


def test_one_of_several_drivers_that_commit_a_batch_at_the_same_time_writes_it(database: Database) -> None:
    database.ask("CREATE TABLE sums (id serial, channel text, sum bigint)")
    sink = checked(database.sink("sums"))
    for number in range(5):
        into = batch(sink, number)
        parts = [stored(sink, into, Sum("a", number)) for _ in range(4)]
        ready = threading.Barrier(4)
        errors: list[Exception] = []

        def drive(
            part: Any, into: SinkBatch = into, ready: threading.Barrier = ready, errors: list[Exception] = errors
        ) -> None:
            ready.wait()
            try:
                sink.commit(into, [part])
            except Exception as error:
                errors.append(error)

        drivers = [threading.Thread(target=drive, args=(part,)) for part in parts]
        for driver in drivers:
            driver.start()
        for driver in drivers:
            driver.join()
        assert errors == []

    assert database.sums() == [("a", number) for number in range(5)]


def test_a_driver_waits_while_another_commits_the_same_batch(sums: Database) -> None:
    sink = checked(sums.sink("sums"))
    into = batch(sink)
    part = stored(sink, into, Sum("a", 1))
    follower = threading.Thread(target=sink.commit, args=(into, [part]))
    with psycopg.connect(sums.raw) as other:  # has stored the number of the batch, and writes its rows
        other.execute("INSERT INTO amadou.batches VALUES ('run', 'sums → sums', 'job', 0)")
        follower.start()
        while not sums.ask(WAITING):
            pass
        other.execute("INSERT INTO sums VALUES ('a', 1)")
    follower.join()

    assert sums.sums() == [("a", 1)]


def test_a_batch_whose_staged_rows_are_missing_is_not_written_and_can_be_reprocessed(sums: Database) -> None:
    sink = checked(sums.sink("sums"))
    into = batch(sink)
    missing = stored(sink, into, Sum("a", 1), part="00000")
    sums.ask("DELETE FROM amadou.staging")
    there = stored(sink, into, Sum("b", 2), part="00001")

    with pytest.raises(SinkError, match=r"amadou.staging has 1 of the 2 rows of batch 0: .* Restart the job"):
        sink.commit(into, [missing, there])
    before = sums.sums()
    commit(sink, into, Sum("a", 1), Sum("b", 2))

    assert (before, sums.sums()) == ([], [("a", 1), ("b", 2)])


def test_staged_rows_of_other_runs_are_removed_after_a_week(sums: Database) -> None:
    sink = checked(sums.sink("sums"))
    stored(sink, batch(sink, run="old"), Sum("a", 1))
    stored(sink, batch(sink, run="young"), Sum("a", 1))
    sums.ask("UPDATE amadou.staging SET staged_at = now() - interval '8 days' WHERE run = 'old'")

    checked(sink)

    assert sums.ask("SELECT run FROM amadou.staging") == [("young",)]


def test_an_aborted_part_leaves_no_rows(sums: Database) -> None:
    sink = checked(sums.sink("sums"))
    into = batch(sink)
    writer = sink.open(into, "00000")
    writer.write([into.codec.encode(Sum("a", 1))])

    writer.abort()

    assert sums.ask("SELECT * FROM amadou.staging") == []


def test_an_empty_part_and_an_empty_batch_need_no_database() -> None:
    sink = PostgresSink("postgresql://127.0.0.1:1/nowhere", "sums")
    into = batch(sink)

    assert stored(sink, into) is None
    sink.commit(into, [])


# What PostgreSQL refuses


@frozen
class Loose:
    channel: Any
    sum: Any


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (Loose("a", "many"), 'invalid input syntax for type bigint: "many"; check the column sum'),
        (Loose("a", None), 'null value in column "sum" .* check the column sum'),
        (Loose("a", 2**63 - 1), 'violates check constraint "small"'),
        (Loose("a\0b", 1), r"\\u0000 cannot be converted to text"),
        (Loose("x" * 50, 1), r"value too long for type character varying\(9\); check the column channel"),
        (Loose("twice", 1), r'violates unique constraint "sums_channel_key"; Key \(channel\)=\(twice\) already exists'),
    ],
)
def test_a_value_that_postgresql_rejects_ends_the_run_at_once_with_its_message(
    database: Database, caplog: pytest.LogCaptureFixture, value: Any, error: str
) -> None:
    database.ask("CREATE TABLE sums (channel varchar(9) UNIQUE, sum bigint NOT NULL)")
    database.ask("ALTER TABLE sums ADD CONSTRAINT small CHECK (sum < 1e9)")
    sink = checked(database.sink("sums"), Loose)
    into = batch(sink, type_=Loose)

    with pytest.raises(SinkError, match=rf"'sums'\): PostgreSQL reports: .*{error}"):
        commit(sink, into, Loose("twice", 1), Loose("fine", 2), value)

    assert database.ask("SELECT * FROM sums") == []
    assert caplog.records == []


def test_a_value_that_is_too_long_for_an_index_ends_the_run_at_once(
    sums: Database, caplog: pytest.LogCaptureFixture
) -> None:
    sink = checked(sums.sink("sums"))
    text = "".join(uuid4().hex for _ in range(500))

    with pytest.raises(SinkError, match="PostgreSQL reports: index row"):
        commit(sink, batch(sink), Sum(text, 1))

    assert caplog.records == []


def test_a_column_that_was_dropped_during_the_run_is_an_error(sums: Database) -> None:
    sink = checked(sums.sink("sums"))
    sums.ask("ALTER TABLE sums DROP COLUMN sum")

    with pytest.raises(SinkError, match="the table no longer has the column sum"):
        commit(sink, batch(sink), Sum("a", 1))


def test_a_port_with_a_codec_is_an_error(sums: Database) -> None:
    class Port(Sums):
        sums = SinkSpec(Sum, codec=PostgresSink("postgresql://x/y", "z").codec(Sum))

    class Opaque:
        def encode(self, value: Sum) -> int:
            return value.sum

        def decode(self, encoded: int) -> Any:
            return encoded

    class Hidden(Sums):
        sums = SinkSpec(Sum, codec=Opaque())

    with pytest.raises(SinkError, match="port 'sums' has codec=, so values have no columns: remove it"):
        run(attrs.evolve(job(sums.sink("sums"), ["a 1"]), handler=Hidden()), engine="embedded")
    run(attrs.evolve(job(sums.sink("sums"), ["a 1"]), handler=Port()), engine="embedded")

    assert sums.sums() == [("a", 1)]


# Dead letters


class Failing(Handler):
    sums = SinkSpec(Sum)

    def key_event(self, record: Any) -> KeyedEvent[Any]:
        return KeyedEvent(("k", 1), START + timedelta(minutes=record[0]), record)

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        raise ValueError("bad")


def test_dead_letters_become_rows_even_with_characters_that_postgresql_cannot_store(sums: Database) -> None:
    table = sums.sink("dead")
    sums.ask(suggested(table, DeadLetter))
    records = [[1, "nul \0 \\u0000 \\"], "no record"]
    dead = Job(
        "failing",
        Failing(),
        {"in": MemorySource(records)},
        {"sums": sums.sink("sums"), "dead_letters": table},
        on_error="dead_letter",
    )

    run(dead, engine="embedded")

    rows = sums.ask("SELECT callback, error, key, timestamp, record FROM dead ORDER BY callback DESC")
    assert [row[:4] for row in rows] == [
        ("on_event", "ValueError: bad", ["k", 1], START + timedelta(minutes=1)),
        ("key_event", rows[1][1], None, None),
    ]
    assert rows[0][4]["value"] == [1, "nul \ufffd \\u0000 \\"]
    assert rows[1][4] == "no record"
    assert all(type(packed) is bytes and packed for (packed,) in sums.ask("SELECT packed FROM dead"))


# PostgreSQL comes and goes


class Then(logging.Handler):
    """Does something when the first warning is logged: the run waits meanwhile."""

    def __init__(self, then: Callable[[], None]) -> None:
        super().__init__(logging.WARNING)
        self.then: Callable[[], None] | None = then

    def emit(self, record: logging.LogRecord) -> None:
        if self.then is not None:
            then, self.then = self.then, None
            then()


@pytest.fixture
def on_warning() -> Iterator[Callable[[Callable[[], None]], None]]:
    added: list[Then] = []

    def add(then: Callable[[], None]) -> None:
        added.append(Then(then))
        logging.getLogger("amadou").addHandler(added[-1])

    yield add
    for handler in added:
        logging.getLogger("amadou").removeHandler(handler)


def test_a_run_waits_for_a_postgresql_that_is_down_and_logs_it(
    own_postgres: OwnService, own_sums: Database, on_warning: Any, caplog: pytest.LogCaptureFixture
) -> None:
    sink = checked(own_sums.sink("sums"))
    into = batch(sink)
    writer = sink.open(into, "00000")
    writer.write([into.codec.encode(Sum("a", 1))])

    own_postgres.stop()
    on_warning(own_postgres.start)
    part = writer.finish()
    own_postgres.stop()
    on_warning(own_postgres.start)
    sink.commit(into, [part])

    assert own_sums.sums() == [("a", 1)]
    warnings = [record.getMessage() for record in caplog.records if record.name == "amadou"]
    assert ["waits and retries for up to 300 s" in text for text in warnings] == [True, False, True, False]
    assert "Connection refused" in warnings[0]
    assert "PostgreSQL answers again" in warnings[1]


def test_a_connection_that_breaks_in_the_commit_is_opened_again(
    sums: Database, on_warning: Any, caplog: pytest.LogCaptureFixture
) -> None:
    sink = checked(sums.sink("sums"))
    into = batch(sink)
    part = stored(sink, into, Sum("a", 1))
    with psycopg.connect(sums.raw) as other:
        other.execute("LOCK TABLE sums")
        driver = threading.Thread(target=sink.commit, args=(into, [part]))
        driver.start()
        while not (waiting := sums.ask(WAITING)):
            pass
        sums.ask(f"SELECT pg_terminate_backend({waiting[0][0]})")
    driver.join()

    assert sums.sums() == [("a", 1)]
    assert "terminating connection due to administrator command" in caplog.records[0].getMessage()


def test_a_crash_of_postgresql_between_staging_and_commit_loses_no_rows(
    own_postgres: OwnService, own_sums: Database
) -> None:
    sink = checked(own_sums.sink("sums"))
    commit(sink, batch(sink, 0), Sum("a", 1))
    part = stored(sink, batch(sink, 1), Sum("b", 2))

    own_postgres.kill()
    own_postgres.start()
    with pytest.raises(SinkError, match=r"amadou.staging has 0 of the 1 rows of batch 1: PostgreSQL crashed"):
        sink.commit(batch(sink, 1), [part])
    checked(sink)
    commit(sink, batch(sink, 0), Sum("a", 1))
    commit(sink, batch(sink, 1), Sum("b", 2))

    assert own_sums.sums() == [("a", 1), ("b", 2)]


def test_a_run_fails_after_the_time_to_give_up(own_postgres: OwnService, own_sums: Database) -> None:
    sink = checked(own_sums.sink("sums", give_up_after=timedelta(seconds=0.2)))
    into = batch(sink)
    own_postgres.stop()

    with pytest.raises(SinkError, match=r"Connection refused.*; retried for 0.2 s \(give_up_after\)"):
        commit(sink, into, Sum("a", 1))


# On Spark


class Outage:
    """Stops PostgreSQL after a batch, and starts it when somebody has knocked in vain."""

    def __init__(self, postgres: OwnService, after: int) -> None:
        self._postgres = postgres
        self._after = after
        self.knocked = threading.Thread(target=self._wait)
        self._door: Any = None

    @hookimpl
    def amadou_batch_completed(self, run: Any, batch: Any) -> None:
        if batch.number == self._after:
            self._postgres.stop()
            host, port = self._postgres.address.split(":")
            self._door = socket.create_server((host, int(port)))
            self.knocked.start()

    def _wait(self) -> None:
        with self._door:
            self._door.accept()[0].close()
        self._postgres.start()


@pytest.mark.qualify
@pytest.mark.spark
def test_on_spark_each_row_is_there_once_after_an_outage_of_postgresql(
    spark: Any, tmp_path: Path, own_postgres: OwnService, own_sums: Database
) -> None:
    own_sums.ask("ALTER TABLE sums DROP CONSTRAINT sums_pkey")
    own_sums.ask("CREATE TABLE last (channel text PRIMARY KEY, sum bigint)")
    views = tmp_path / "views"
    views.mkdir()
    for number in range(4):
        file = views / f"{number}.txt"
        file.write_text("".join(f"c{key} {number}\n" for key in range(50)))
        os.utime(file, (number, number))  # Spark's order
    outage = Outage(own_postgres, after=1)

    class Both(Sums):
        last = SinkSpec(Sum)

        def on_event(self, subject: Subject, event: KeyedEvent[int]) -> None:
            super().on_event(subject, event)
            self.last.collect(subject, Sum(subject.key, event.value))

    job_of_sums = Job(
        "sums",
        Both(),
        {"in": LinesSource(views, max_files_per_batch=1)},
        {"sums": own_sums.sink("sums"), "last": own_sums.sink("last", upsert_key="channel")},
        plugins=[outage],
    )

    start(job_of_sums, spark, checkpoint=str(tmp_path / "checkpoint"), trigger="available-now").await_termination()

    outage.knocked.join()
    assert sorted(own_sums.sums()) == sorted((f"c{key}", number) for key in range(50) for number in range(4))
    assert own_sums.ask("SELECT DISTINCT sum, count(*) FROM last GROUP BY sum") == [(3, 50)]
    assert own_sums.ask("SELECT * FROM amadou.staging") == []


@pytest.mark.spark
def test_on_spark_a_batch_whose_staged_rows_are_missing_is_reprocessed_by_the_next_run(
    spark: Any, tmp_path: Path, sums: Database
) -> None:
    sums.ask("ALTER TABLE sums DROP CONSTRAINT sums_pkey")
    source = MemorySource(["a 1", "b 2"])
    sink = sums.sink("sums")
    without_connection = Database(sums.raw)  # can be sent to workers

    class Emptied(PostgresSink):
        def commit(self, batch: SinkBatch, parts: Any) -> None:
            without_connection.ask("TRUNCATE amadou.staging")  # as a crash of PostgreSQL does
            super().commit(batch, parts)

    checkpoint = str(tmp_path / "checkpoint")
    emptied = Emptied(sink.url, sink.table, username=sink.username, password=sink.password)
    job_of_sums = Job("sums", Sums(), {"in": source}, {"sums": emptied})
    with pytest.raises((SinkError, RunError), match="Restart the job"):
        start(job_of_sums, spark, checkpoint=checkpoint).await_termination()
    before = sums.sums()

    source.add("a 3")
    start(attrs.evolve(job_of_sums, sinks={"sums": sink}), spark, checkpoint=checkpoint).await_termination()

    assert before == []
    assert sorted(sums.sums()) == [("a", 1), ("a", 3), ("b", 2)]
