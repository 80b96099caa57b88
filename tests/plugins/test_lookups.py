"""Functions for lookups in PostgreSQL and in HTTP services."""

import json
import pickle
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from uuid import UUID, uuid4

import attrs
import psycopg
import pytest
from psycopg.sql import SQL, Identifier

from amadou import (
    AmadouError,
    Handler,
    Job,
    KeyedEvent,
    Lookup,
    MemorySink,
    MemorySource,
    Param,
    Secret,
    SinkSpec,
    Subject,
)
from amadou.errors import ParamError, SpecError
from amadou.event_time import from_micros
from amadou_plugins.lookups import HttpGet, PostgresRows
from amadou_runtime import TestRun, run
from amadou_runtime.core.fetching import fetched


@attrs.frozen
class Customer:
    name: str
    level: int


class Enriched(Handler):
    """Collects the names of customers."""

    out = SinkSpec(list)

    def __init__(self, fetch: Any, **settings: Any) -> None:
        self.customers: Any = Lookup(fetch, key=lambda event: event.value, name="customers", **settings)

    def key_event(self, record: Any) -> KeyedEvent[Any]:
        return KeyedEvent(str(record), from_micros(0), record)

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        customer = self.customers.get(subject, event.value)
        self.out.collect(subject, [subject.key, None if customer is None else customer.name])


def names(fetch: Any, *records: Any, params: dict[str, str] | None = None, **settings: Any) -> list[Any]:
    """Return the names that the job collects for records that are keys of customers."""
    sink = MemorySink()
    job = Job("enriched", Enriched(fetch, **settings), {"in": MemorySource(records)}, {"out": sink})
    run(job, engine="embedded", params=params or {})
    return sorted(sink.records, key=str)


@pytest.fixture
def customers(postgres: Any) -> Iterator[str]:
    """A table with customers; its name."""
    name = f"customers_{uuid4().hex[:8]}"
    with psycopg.connect(postgres, autocommit=True) as connection:
        table = Identifier(name)
        connection.execute(
            SQL(
                "CREATE TABLE {} (id text PRIMARY KEY, name text, level int, number bigint UNIQUE, code uuid UNIQUE)"
            ).format(table)
        )
        for number, first_name in enumerate(("Ann", "Bob", "Eve")):
            row = [f"c{number}", first_name, number, 10 + number, UUID(int=number)]
            connection.execute(SQL("INSERT INTO {} VALUES (%s, %s, %s, %s, %s)").format(table), row)
        yield name
        connection.execute(SQL("DROP TABLE {}").format(table))


def rows(postgres: str, table: Any, **settings: Any) -> PostgresRows:
    """Return a lookup function for the test's table."""
    login, _, place = postgres.removeprefix("postgresql://").rpartition("@")
    user, _, password = login.partition(":")
    settings = {"key": "id", "columns": ["name", "level"], "row": Customer, **settings}
    return PostgresRows(f"postgresql://{place}", table, username=user, password=Secret(password), **settings)


def test_postgres_rows_looks_up_rows_by_their_key(postgres: str, customers: str) -> None:
    assert names(rows(postgres, customers), "c0", "c2", "unknown") == [["c0", "Ann"], ["c2", "Eve"], ["unknown", None]]
    read = rows(postgres, f"public.{customers}")
    assert read(["c1", "unknown"]) == {"c1": Customer("Bob", 1)}
    assert rows(postgres, customers, key="number")([11]) == {11: Customer("Bob", 1)}
    assert rows(postgres, customers, key="code")([UUID(int=2)]) == {UUID(int=2): Customer("Eve", 2)}
    assert rows(postgres, customers, key=("id", "number"))([("c0", 10), ("c0", 11)]) == {("c0", 10): Customer("Ann", 0)}
    whole = rows(postgres, customers, columns=None, row=dict)(["c0"])
    assert whole == {"c0": {"id": "c0", "name": "Ann", "level": 0, "number": 10, "code": UUID(int=0)}}


@pytest.mark.parametrize(
    ("column", "good", "bad"),
    [
        ("id", "c1", ["c\0", "\ud800", 7, True, b"c1", ("c1",)]),
        ("number", 11, ["x", 10**400, 1.5e300, b"11", (11, 12)]),
        (("id", "number"), ("c1", 11), [("c\0", 11), ("c1", "x"), ("c1",), ("c1", 11, 12), "c1", 7]),
    ],
)
def test_a_lookup_key_that_does_not_fit_the_column_fails_alone(
    column: Any, good: Any, bad: list[Any], postgres: str, customers: str
) -> None:
    read = rows(postgres, customers, key=column)
    for one in bad:
        answers = read([good, one])
        assert answers[good] == Customer("Bob", 1)
        assert one not in answers or isinstance(answers[one], Exception)


def test_the_keys_of_postgres_rows_have_the_type_that_was_asked_for(postgres: str, customers: str) -> None:
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(SQL("ALTER TABLE {} ALTER number TYPE numeric").format(Identifier(customers)))
    assert names(rows(postgres, customers, key="number"), 11, 99) == [["11", "Bob"], ["99", None]]


def test_a_row_that_cannot_be_read_fails_alone(postgres: str, customers: str) -> None:
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(SQL("ALTER TABLE {} ADD day date").format(Identifier(customers)))
        connection.execute(SQL("UPDATE {} SET day = 'infinity' WHERE id = 'c0'").format(Identifier(customers)))

    def named(name: str, day: Any) -> str:
        if name == "Bob":
            raise ValueError("no Bob")
        return name

    answers = rows(postgres, customers, columns=["name", "day"], row=named)(["c0", "c1", "c2"])
    assert answers.pop("c2") == "Eve"
    assert {type(answer).__name__ for answer in answers.values()} == {"DataError", "ValueError"}


def test_postgres_rows_looks_up_thousands_of_rows(postgres: str, customers: str) -> None:
    with psycopg.connect(postgres, autocommit=True) as connection:
        query = SQL("INSERT INTO {} SELECT 'x' || n, 'X', n FROM generate_series(1, 10000) AS n")
        connection.execute(query.format(Identifier(customers)))
    lookup: Lookup[str, Customer] = Lookup(rows(postgres, customers), key=lambda event: event.value)
    keys = [f"x{number}" for number in range(1, 10_001)]
    answers = fetched(lookup, lookup.function(None), keys)
    assert answers["x10000"] == Customer("X", 10_000)
    assert len(answers) == 10_000


def test_settings_of_postgres_rows_can_be_parameters(postgres: str, customers: str) -> None:
    read = attrs.evolve(rows(postgres, customers), table=Param("CUSTOMERS"))
    assert names(read, "c1", params={"CUSTOMERS": customers}) == [["c1", "Bob"]]
    job = Job("enriched", Enriched(read), {"in": MemorySource()}, {"out": MemorySink()})
    with pytest.raises(ParamError, match="CUSTOMERS"):
        run(job, engine="embedded")
    with TestRun(job, lookups={"customers": {"c9": Customer("Zoe", 1)}}) as test:
        assert test.add_record("c9").run().records("out") == [["c9", "Zoe"]]


@pytest.mark.parametrize("wrong", [{"table": "nothing"}, {"key": ("nothing",)}, {"password": Secret("wrong password")}])
def test_the_error_of_the_database_hides_the_password(wrong: dict[str, Any], postgres: str, customers: str) -> None:
    read = attrs.evolve(rows(postgres, customers), **wrong)
    with pytest.raises(AmadouError, match="the lookup customers cannot fetch the key 'c1'") as failed:
        names(read, "c1", retries=0)
    assert "wrong password" not in str(failed.value)


def test_postgres_rows_reconnects_after_a_lost_connection(postgres: str, customers: str) -> None:
    read = rows(postgres, customers)
    assert read(["c0"])
    with psycopg.connect(postgres, autocommit=True) as connection:
        where = "application_name = 'amadou' AND state = 'idle'"
        connection.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {where}")
    assert names(read, "c1") == [["c1", "Bob"]]


class Service(BaseHTTPRequestHandler):
    """Returns customers, and fails for some keys."""

    protocol_version = "HTTP/1.1"
    requests: list[tuple[str, str | None]] = []
    released = threading.Event()
    all_there = threading.Barrier(16)
    """Lets requests end when there are 16 of them."""

    def do_GET(self) -> None:
        self.requests.append((self.path, self.headers.get("Authorization")))
        key = self.path.rpartition("/")[2]
        status, body = 200, json.dumps({"name": key.upper(), "level": 1})
        match key:
            case "unknown":
                status, body = 404, "not found"
            case "broken":
                status, body = 500, "broken"
            case "garbage":
                body = "<html>"
            case "moved":
                status = 302
            case "together":
                self.all_there.wait(20)
            case "silent":
                self.released.wait(20)
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        for piece in [body[:9], *body[9:]] if key == "slow" else [body]:
            with suppress(BrokenPipeError, ConnectionResetError):
                self.wfile.write(piece.encode())
            self.released.wait(0.05 if key == "slow" else 0)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def service() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    Service.requests.clear()
    Service.released.clear()
    yield f"http://127.0.0.1:{server.server_address[1]}/customers/{{key}}"
    Service.released.set()
    server.shutdown()
    thread.join()
    server.server_close()


def made(answer: Any) -> Customer:
    return Customer(**answer)


def test_http_get_looks_up_answers_of_a_service(service: str) -> None:
    get = HttpGet(service, token=Secret("swordfish"), answer=made)
    assert names(get, "ann", "unknown", "a/b c") == [["a/b c", "A%2FB%20C"], ["ann", "ANN"], ["unknown", None]]
    assert {token for _, token in Service.requests} == {"Bearer swordfish"}
    assert pickle.loads(pickle.dumps(get)) == get


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("broken", "the service answered with status 500"),
        ("moved", "the service answered with status 302"),
        ("garbage", "the answer is not JSON"),
        ("silent", "no answer within 0.2 s"),
        ("..", r"the key '\.\.' cannot be a part of a path"),
    ],
)
def test_the_error_for_an_invalid_answer_of_a_service_states_the_reason(key: str, why: str, service: str) -> None:
    with pytest.raises(AmadouError, match=f"cannot fetch the key '{key}'.*{why}"):
        names(HttpGet(service, answer=made), key, retries=1, timeout=0.2 if key == "silent" else 20)
    assert [path for path, _ in Service.requests] == ([] if key == ".." else [f"/customers/{key}"] * 2)


def test_http_get_does_not_wait_for_a_body_that_takes_longer_than_the_timeout(service: str) -> None:
    with pytest.raises(AmadouError, match=r"no complete answer within 0\.2 s"):
        HttpGet(service, timeout=0.2)(["slow"])
    assert HttpGet(service)(["slow"]) == {"slow": {"name": "SLOW", "level": 1}}


def test_a_lookup_in_a_service_that_cannot_be_reached_is_an_error() -> None:
    with pytest.raises(AmadouError, match=r"cannot fetch the key 'x': .*Connection refused"):
        names(HttpGet("http://127.0.0.1:1/{key}"), "x", retries=0)


def test_a_secret_url_of_http_get_is_not_in_debug_logs(service: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    get = HttpGet(Param("URL", secret=True), answer=lambda _: Customer("Ann", 0))
    assert names(get, "c1", params={"URL": f"{service}?api_key=swordfish"}) == [["c1", "Ann"]]
    assert "swordfish" not in caplog.text


def test_http_get_makes_concurrent_requests(service: str) -> None:
    lookup: Lookup[str, Any] = Lookup(HttpGet(service), key=lambda event: event.value, concurrency=16)
    answers = fetched(lookup, lookup.function(None), [f"{number}/together" for number in range(16)])
    assert len(answers) == 16
    assert lookup.batch_size == 1


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: HttpGet("example.com/{key}"), "must begin with http"),
        (lambda: HttpGet("http://example.com/"), "must contain {key}"),
        (lambda: HttpGet(Secret("http://example.com/")), "must contain {key} in place of the key, not \\*\\*\\*"),  # type: ignore[arg-type]
        (lambda: HttpGet("http://u:plain@example.com/{key}"), "the url contains a password"),
        (lambda: HttpGet("http://example.com/{key}?api_key=plain"), "the url contains a password"),
        (lambda: HttpGet("http://example.com/{key}", token="plain"), "token must be a Secret"),  # type: ignore[arg-type]
        (lambda: PostgresRows("mysql://db", "t", key="id"), "must begin with postgresql"),
        (lambda: PostgresRows("postgresql://u:p@db", "t", key="id"), "pass the password in password="),
        (lambda: PostgresRows("postgresql://db", "t", key=()), "key must name at least one column"),
    ],
)
def test_invalid_settings_of_lookup_functions_are_refused(make: Any, why: str) -> None:
    with pytest.raises(SpecError, match=why):
        make()
