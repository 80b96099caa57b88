"""The jobs of stored checkpoints, with their input. Fixtures were made with what is here: add cases, but never change
one.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import attrs
from tests.stored.jobs import (
    columns,
    enrich,
    failed_logins,
    fraud,
    fraud_rules,
    high_score,
    kinds,
    orders,
    sensors,
    shop,
    stages,
    top_pages,
    views,
)

from amadou import Job
from amadou_plugins.connectors import KafkaRecord

EXAMPLES = Path(__file__).parents[2] / "examples"
JOBS = Path(__file__).parent / "jobs"
BEGIN = datetime(2025, 1, 1, tzinfo=timezone.utc)
FORMS: Final = {"groups": None, "log": "packed", "log-by-key": "by key"}
"""The stores with the form that key groups have on the store `log`."""
Input: TypeAlias = Mapping[str, list[bytes]]
"""Records by source, or by `source/partition`."""
Services: TypeAlias = Mapping[str, str]
"""The values of parameters of a job that needs services, such as the address of a database."""
Make: TypeAlias = Callable[[str, str, str, Services], Job]


@attrs.frozen(kw_only=True, eq=False)
class Case:
    """A job and its input.

    :param name: name of the fixture
    :param make: function that returns the job: with the directory of the input, that of the outputs, the store, one of
        `FORMS`, and the services
    :param batches: the input of a new checkpoint, batch by batch; a fixture has it, too
    :param further: the input of the batch with which a run continues; a fixture has it, too
    :param stores: the stores on which there are checkpoints
    :param as_record: function that returns the record that the job's source has for a line
    :param lookups: the answers of lookups; see `TestRun`
    :param topic: name of the source that reads a Kafka topic; empty if there is none
    :param packages: names of packages that the job needs and that some versions of Python lack
    :param schema: statements that create the tables that the job needs; empty if it needs no database
    """

    name: str
    make: Make
    batches: list[Input]
    further: Input
    stores: tuple[str, ...] = ("groups", "log")
    as_record: Callable[[bytes], Any] = bytes
    lookups: Mapping[str, Mapping[Any, Any]] = MappingProxyType({})
    topic: str = ""
    packages: tuple[str, ...] = ()
    schema: str = ""

    @property
    def services(self) -> tuple[str, ...]:
        """Names of the services without which a run on Spark cannot continue."""
        return (*(["kafka"] if self.topic else []), *(["postgres"] if self.schema else []))

    def __str__(self) -> str:
        return self.name


def as_lines(*values: Any) -> list[bytes]:
    return [repr(value).encode() for value in values]


def as_json(*values: Any) -> list[bytes]:
    return [json.dumps(value).encode() for value in values]


def lines_of(*parts: str) -> list[bytes]:
    return EXAMPLES.joinpath(*parts).read_bytes().splitlines()


KEYS: tuple[Any, ...] = ("a", "é", 1, -7, 1 << 40, b"\x00\xff", ("a", 1))


def kinds_input() -> Iterator[Input]:
    """Yield batches. The second to the fourth touch so few keys that big key groups are stored by key. With the fifth,
    events are held. The sixth releases them.
    """
    full = [(key, number % 3, 1000 + number) for number, key in enumerate(KEYS)]
    full += [(key, 3 + number % 2, 1010 + number) for number, key in enumerate(KEYS)]
    yield {
        "events": as_lines(*full, *((f"k{number}", 0, 20 + number) for number in range(40)), ("a", 1, kinds.FAILING)),
        "needed": as_lines(("a", 4, 1)),
        "right": as_lines(*((key, 2, 1100 + number) for number, key in enumerate(KEYS))),
        "limits": as_lines(("low", 0, 5), ("high", 0, 50), ("removed", 0, 1), ("removed", 1, None)),
    }
    for minute in (5, 6, 7):
        yield {
            "events": as_lines(("k1", minute, 30), *([("k3", 0, 31)] if minute == 7 else [])),
            "needed": as_lines(("a", minute, 1)),
            "right": as_lines(("k2", minute, 1)),
            "limits": [],
        }
    held = [(key, 40, 1200 + number) for number, key in enumerate(KEYS[:3])]
    full = [(key, 9, 1020 + number) for number, key in enumerate(KEYS)]
    yield {
        "events": as_lines(*full, ("k5", 9, 40), *held),
        "needed": as_lines(("a", 9, 1)),
        "right": as_lines(("a", 9, 1300)),
        "limits": as_lines(("low", 5, 6)),
    }
    yield {
        "events": as_lines(("a", 41, 1400), ("new", 42, 1401), ("a", 42, kinds.FAILING), ("k9", 0, 32)),
        "needed": as_lines(("a", 45, 1)),
        "right": as_lines(("a", 40, 1500), ("é", 42, 1501)),
        "limits": as_lines(("high", 50, None)),
    }


def column_line(key: int, second: float, value: int) -> bytes:
    record = {"key": f"k{key}", "timestamp": (BEGIN + timedelta(seconds=second)).isoformat(), "value": value}
    return json.dumps({**record, "text": f"text {value}"}).encode()


def column_input() -> Iterator[Input]:
    """Yield batches. The second to the fourth touch one key."""
    yield {"in": [column_line(at % 24, at / 2, at) for at in range(60)]}
    for second in (31, 32, 33):
        yield {"in": [column_line(1, second, second)]}
    yield {"in": [column_line(at % 24, 40 + at, at) for at in range(25)]}
    yield {"in": [column_line(at % 24, 59 + 2 * at, at) for at in range(20)]}


def stage_line(key: str, second: float, value: int) -> bytes:
    return json.dumps([key, (BEGIN + timedelta(seconds=second)).isoformat(), value]).encode()


def stage_input() -> Iterator[Input]:
    for batch in range(3):
        begin = 25 * batch
        yield {
            "in": [stage_line(f"{'abc'[at % 3]}{at % 4}", begin + at, at) for at in range(25)],
            "extra": [stage_line(f"group {at}", begin + at + 0.5, 100) for at in range(2)],
            "factors": [stage_line("all", begin, batch + 1)],
        }


def cut(lines: list[bytes], pieces: int, source: str) -> list[Input]:
    """Cut lines into batches."""
    size = len(lines)
    return [{source: lines[size * at // pieces : size * (at + 1) // pieces]} for at in range(pieces)]


def by_site(batch: Input) -> Input:
    """Return the readings of two sites."""
    sites: dict[str, list[bytes]] = {}
    for line in batch["readings"]:
        site = "boilers" if json.loads(line)["sensor"].startswith("boiler") else "others"
        sites.setdefault(f"readings/{site}", []).append(line)
    return sites


def with_params(job: Job, store: str, params: Mapping[str, str]) -> Job:
    known = {param.name for param in job.params}
    given = {name: value for name, value in params.items() if name in known or f"{name}_FILE" in known}
    filled = job.with_params(given, connectors=False)
    return filled if filled.stages else attrs.evolve(filled, state=store.partition("-")[0])


def example(job: Job, inputs: Mapping[str, str], outputs: Mapping[str, str]) -> Make:
    """Return the function `Case.make` for a job with parameters.

    :param inputs: the parameters for directories of input, with the directories
    :param outputs: the parameters for directories of outputs, with the directories
    """

    def make(place: str, out: str, store: str, services: Services) -> Job:
        paths = {name: f"{place}/in/{directory}" for name, directory in inputs.items()}
        paths |= {name: f"{out}/{directory}" for name, directory in outputs.items()}
        return with_params(job, store, {**paths, **services})

    return make


def kinds_case() -> Case:
    *batches, further = kinds_input()

    def make(place: str, out: str, store: str, _: Services) -> Job:
        return kinds.kinds_job(place, out, store.partition("-")[0], 2 if store == "log-by-key" else 64)

    return Case(name="kinds", make=make, batches=batches, further=further, stores=tuple(FORMS))


def column_case(window: str) -> Case:
    *batches, further = column_input()

    def make(place: str, out: str, store: str, _: Services) -> Job:
        return columns.columns_job(window, place, out, store.partition("-")[0], 1 if store == "log-by-key" else 16)

    stores = tuple(FORMS)[: 3 if window == "tumbling" else 2]
    return Case(name=f"columns-{window}", make=make, batches=batches, further=further, stores=stores)


def stages_case() -> Case:
    *batches, further = stage_input()
    return Case(
        name="stages",
        make=lambda place, out, store, _: stages.stages_job(place, out, 8),
        batches=batches,
        further=further,
        stores=("log",),
    )


def sketches_case() -> Case:
    *batches, further = cut([stage_line("ab"[at % 2], 60 * at, at) for at in range(300)], 3, "in")

    def make(place: str, out: str, store: str, _: Services) -> Job:
        from tests.stored.jobs.sketches import sketches_job  # needs the packages

        return sketches_job(place, out, store)

    packages = ("datasketches", "ddsketch")
    return Case(name="sketches", make=make, batches=batches, further=further, packages=packages)


def failed_logins_case() -> Case:
    *batches, further = cut(lines_of("failed_logins", "auth.log"), 3, "log")
    make = example(failed_logins.job, {"LOG": "log/"}, {"ALARMS": "alarms"})
    return Case(name="failed_logins", make=make, batches=batches, further=further)


def high_score_case() -> Case:
    *batches, further = cut(lines_of("high_score", "scores.jsonl"), 3, "scores")
    make = example(high_score.job, {"SCORES": "scores/"}, {"RECORDS": "records"})
    return Case(name="high_score", make=make, batches=batches, further=further)


def sensors_case() -> Case:
    *batches, further = map(by_site, cut(lines_of("sensors", "readings.jsonl"), 3, "readings"))
    further["readings/others"].insert(0, lines_of("sensors", "readings.jsonl")[0])  # a late reading
    further["readings/others"].append(
        further["readings/others"][-1].replace(b'"celsius": ', b'"celsius": "E17", "x": ')
    )
    make = example(sensors.job, {"READINGS": "readings/*"}, {"STATISTICS": "statistics", "ALERTS": "alerts"})
    return Case(name="sensors", make=make, batches=batches, further=further)


def visits_case() -> Case:
    *batches, further = cut(lines_of("shop", "clicks.jsonl"), 3, "clicks")
    make = example(shop.visits, {"CLICKS": "clicks/"}, {"VISITS": "visits"})
    return Case(name="shop-visits", make=make, batches=batches, further=further)


def sales_case() -> Case:
    *batches, further = cut(lines_of("shop", "clicks.jsonl"), 3, "clicks")
    make = example(shop.sales, {"CLICKS": "clicks/"}, {"SALES": "sales"})
    return Case(name="shop-sales", make=make, batches=batches, further=further)


def top_pages_case() -> Case:
    *batches, further = cut(lines_of("top_pages", "access.log"), 3, "log")
    make = example(top_pages.job, {"LOG": "log/"}, {"TOP": "top"})
    return Case(name="top_pages", make=make, batches=batches, further=further, stores=("log",))


def views_case() -> Case:
    parts = [{"views": lines_of("tumbling_window", "views", f"part-{part}.jsonl")} for part in (1, 2, 3)]
    make = example(views.job, {"VIEWS": "views/"}, {"SUMS": "sums"})
    return Case(name="tumbling_window", make=make, batches=parts[:2], further=parts[2])


def weather_case() -> Case:
    names = ("activities", "weather")
    parts = [{name: lines_of("weather", name, f"part-{part}.jsonl") for name in names} for part in range(1, 6)]
    inputs = {"ACTIVITIES": "activities/", "WEATHER": "weather/"}
    make = example(enrich.job, inputs, {"ENRICHED": "enriched", "NOTICES": "notices"})
    return Case(name="weather", make=make, batches=parts[:4], further=parts[4])


def fraud_rules_case() -> Case:
    payments, rules = (lines_of("fraud_rules", f"{name}.jsonl") for name in ("payments", "rules"))
    noon = "2025-03-01T12:25:00Z"
    changes = as_json(
        {"rule": "hour", "time": "2025-03-01T13:00:00Z", "minutes": 60, "cents": 100_000},
        {"rule": "ten minutes", "time": "2025-03-01T13:00:00Z", "minutes": 0, "cents": None},
    )
    make = example(fraud_rules.job, {"PAYMENTS": "payments/", "RULES": "rules/"}, {"ALERTS": "alerts"})
    return Case(
        name="fraud_rules",
        make=make,
        batches=[{"payments": payments[:2], "rules": rules}, {"payments": payments[2:], "rules": []}],
        further={
            "payments": as_json(*({"card": f"c{at}", "time": noon, "cents": 90_000} for at in (1, 2))),
            "rules": changes,
        },
    )


def orders_case() -> Case:
    *batches, further = cut(lines_of("orders", "orders.jsonl"), 2, "orders")
    outputs = {name.upper(): name for name in ("enriched", "unknown", "dead_letters")}
    return Case(
        name="orders",
        make=example(orders.job, {"ORDERS": "orders/"}, outputs),
        batches=batches,
        further=further,
        lookups={"customers": {"c1": orders.Customer("Ada", "UK"), "c2": orders.Customer("Blaise", "FR")}},
        schema=JOBS.joinpath("orders.sql").read_text(),
    )


def fraud_case() -> Case:
    noon = datetime(2025, 3, 1, 12, tzinfo=timezone.utc)

    def payment(number: int, card: int, minute: float, cents: int = 1000, country: str = "FR") -> tuple[str, bytes]:
        time = (noon + timedelta(minutes=minute)).isoformat()
        record = {"id": f"p{number}", "card": f"c{card}", "time": time, "cents": cents, "country": country}
        return f"payments/{card % 3}", json.dumps(record).encode()

    def by_partition(records: Iterator[tuple[str, bytes]]) -> Input:
        parts: dict[str, list[bytes]] = {}
        for partition, record in records:
            parts.setdefault(partition, []).append(record)
        return parts

    first = (payment(at, at % 12, at / 4) for at in range(60))
    then = (
        payment(60 + at, at % 12, 15 + at / 4, 20_000 if at == 9 else 900, "BR" if at == 10 else "FR")
        for at in range(24)
    )
    further = by_partition(then)
    further["payments/0"].append(payment(90, 0, 0)[1])  # a late payment
    further["payments/1"].append(b"card c1 paid")
    return Case(
        name="fraud",
        make=example(fraud.job, {}, {}),
        batches=[by_partition(first)],
        further=further,
        as_record=KafkaRecord,
        topic="payments",
        schema=JOBS.joinpath("fraud.sql").read_text(),
    )


CASES: Final = {
    case.name: case
    for case in (
        kinds_case(),
        *map(column_case, columns.WINDOWS),
        stages_case(),
        sketches_case(),
        failed_logins_case(),
        fraud_case(),
        fraud_rules_case(),
        high_score_case(),
        orders_case(),
        sensors_case(),
        visits_case(),
        sales_case(),
        top_pages_case(),
        views_case(),
        weather_case(),
    )
}
