"""The example `orders` with a real database."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from amadou_runtime import run
from amadou_runtime.jobs.load_job import load_job

HERE = Path(__file__).parents[2] / "examples" / "orders"


@pytest.mark.parametrize("engine", ["embedded", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.qualify])])
def test_orders_are_enriched_from_postgresql(
    engine: Any, postgres: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if engine == "spark":
        request.getfixturevalue("spark")
    with psycopg.connect(postgres, autocommit=True) as connection:
        for statement in (HERE / "schema.sql").read_text().split(";")[:-1]:
            connection.execute(statement.encode())
    place = urlsplit(postgres)
    params = {
        "DATABASE": f"postgresql://{place.hostname}:{place.port}{place.path}",
        "DATABASE_USER": place.username or "",
        "DATABASE_PASSWORD": place.password or "",
        "ORDERS": str(HERE / "orders.jsonl"),
    }
    params |= {port.upper(): str(tmp_path / port) for port in ("enriched", "unknown", "dead_letters")}
    run(load_job(str(HERE / "orders.py")), engine=engine, params=params, trigger="available-now")

    lines = [line for path in (tmp_path / "enriched").glob("*.jsonl") for line in path.read_text().splitlines()]
    found = sorted((json.loads(line) for line in lines), key=lambda order: order["number"])
    assert [(order["number"], order["name"], order["country"]) for order in found] == [
        (1, "Ada", "UK"),
        (2, "Blaise", "FR"),
        (4, "Ada", "UK"),
    ]
