"""`amadou state`, `amadou rehearse` and `amadou reproduce --key` on savepoints."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.commands import amadou, output
from tests.conformance.handlers import EventHandler, event, job
from typer.testing import Result

from amadou import KeyedEvent, Subject, ValueSpec
from amadou_runtime import TestRun
from amadou_runtime.jobs.load_job import load_job

pytest_plugins = ["pytester"]

JOB = """
from datetime import datetime, timedelta
from decimal import Decimal
from enum import Enum
import json

from attrs import frozen

from amadou import Handler, Job, KeyedEvent, ListSpec, MapSpec, MemorySink, MemorySource, SinkSpec, Subject, ValueSpec
from amadou_plugins.aggregates import Sum
from amadou_plugins.windows import TumblingWindow, Window


class Color(Enum):
    RED = "red"


@frozen
class Item:
    name: str
    price: Decimal
    color: Color
    tags: frozenset[str]
    other: "Item | None" = None


class Shop(Handler):
    item = ValueSpec(Item)
    per_hour = MapSpec(datetime, int, ttl=timedelta(days=1))
    last = ListSpec(tuple[int, str])
    sums = TumblingWindow(size=timedelta(hours=1), value=Sum())
    out = SinkSpec(str)

    def key_event(self, record: bytes) -> KeyedEvent:
        key, time, value = json.loads(record)
        return KeyedEvent(tuple(key) if isinstance(key, list) else key, datetime.fromisoformat(time), value)

    def on_event(self, subject: Subject, event: KeyedEvent) -> None:
        item = Item("a", Decimal("1.50"), Color.RED, frozenset({"x"}), Item("b", Decimal(2), Color.RED, frozenset()))
        self.item.state_for(subject).value = item
        per_hour = self.per_hour.state_for(subject)
        per_hour[event.timestamp] = event.value
        self.last.state_for(subject).append((event.value, "n"))
        self.sums.add(subject, event)
        subject.set_timer(event.timestamp + timedelta(hours=2), "check")
        self.out.collect(subject, f"{subject.key} {event.value}")

    def on_timer_expired(self, subject: Subject, timestamp: datetime) -> None:
        self.out.collect(subject, f"timer {subject.key}")

    @sums.on_close
    def closed(self, subject: Subject, window: Window, result: int) -> None:
        self.out.collect(subject, f"sum {result}")


job = Job("shop", Shop(), {"events": MemorySource()}, {"out": MemorySink()})
"""


def line(key: Any, minute: int, value: int) -> bytes:
    return json.dumps([key, f"2025-01-01T00:{minute:02}:00+00:00", value]).encode()


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a job, `bazaar.py`, and its savepoint, `savepoint`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "bazaar.py").write_text(JOB)
    with TestRun(load_job("bazaar.py")) as run:
        run.add_records([line("apple", 1, 5), line("apple", 2, 6), line(["t", 1], 3, 7), line(17, 4, 8)])
        run.add_records([line(f"pear-{number}", 5, number) for number in range(5)]).add_watermark().run()
        run.savepoint(tmp_path / "savepoint")
    monkeypatch.delitem(sys.modules, "bazaar")
    return tmp_path


def test_state_keys_lists_counts_and_sorts_keys(shop: Path) -> None:
    assert output("state", "keys", "savepoint", "--count") == "8\n"
    assert output("state", "keys", "savepoint", "--count", "--prefix", "pear-") == "5\n"
    listed = output("state", "keys", "savepoint").splitlines()
    assert listed[0].split() == ["size", "timers", "next", "due", "key"]
    assert len(listed) == 9
    assert any(text.endswith("('t', 1)") for text in listed)
    assert len(output("state", "keys", "savepoint", "--limit", "3").splitlines()) == 4
    (biggest,) = map(json.loads, output("state", "keys", "savepoint", "--biggest", "1", "--json").splitlines())
    assert (biggest["key"], biggest["timers"], biggest["next"]) == ("apple", 3, "2025-01-01T01:00:00+00:00")
    oldest = [json.loads(each) for each in output("state", "keys", "savepoint", "--oldest", "2", "--json").splitlines()]
    assert all(each["next"] == "2025-01-01T01:00:00+00:00" for each in oldest)
    assert {"$tuple": ["t", 1]} in [
        json.loads(each)["key"] for each in output("state", "keys", "savepoint", "--json").splitlines()
    ]
    assert "mutually exclusive" in amadou("state", "keys", "savepoint", "--biggest", "1", "--oldest", "1").output


def test_state_show_prints_the_state_of_a_key_in_python(shop: Path) -> None:
    for more in ([], ["--job", "bazaar.py"]):
        shown = " ".join(output("state", "show", "savepoint", "apple", *more).split())
        assert "'apple' in job shop, batch 1, watermark 2025-01-01T00:05:00+00:00" in shown
        assert "datetime.datetime(2025, 1, 1, 0, 1, tzinfo=datetime.timezone.utc): 5" in shown
        assert "[(5, 'n'), (6, 'n')]" in shown
        assert "timer 2025-01-01T02:01:00+00:00 'check'" in shown
        assert "(MapSpec datetime → int, expires 2025-01-02T00:01:00+00:00)" in shown
        assert "Item(name='a', price=Decimal('1.50'), color=" in shown
        assert "tags=frozenset({'x'})" in shown
    assert "Item(name='b', price=Decimal('2'), color=<Color.RED: 'red'>" in shown
    assert "('t', 1) in job shop" in output("state", "show", "savepoint", "('t', 1)")
    assert "17 in job shop" in output("state", "show", "savepoint", "17")


def test_state_show_prints_the_state_of_a_key_as_json(shop: Path) -> None:
    shown = json.loads(output("state", "show", "savepoint", "apple", "--json"))
    assert shown["state"]["item"]["value"] == {
        "name": "a",
        "price": "1.50",
        "color": "red",
        "tags": ["x"],
        "other": {"name": "b", "price": "2", "color": "red", "tags": [], "other": None},
    }
    assert shown["state"]["per_hour"]["value"] == [["2025-01-01T00:01:00+00:00", 5], ["2025-01-01T00:02:00+00:00", 6]]
    assert shown["state"]["last"]["value"] == [[5, "n"], [6, "n"]]
    assert shown["state"]["sums"]["next_timer"] == "2025-01-01T01:00:00+00:00"
    assert shown["timers"] == [["2025-01-01T02:01:00+00:00", "check"], ["2025-01-01T02:02:00+00:00", "check"]]


class StoresLast(EventHandler):
    last = ValueSpec(int, ttl=timedelta(days=1))

    def on_event(self, subject: Subject, event: KeyedEvent[int]) -> None:
        self.last.state_for(subject).value = event.value


def test_state_show_prints_when_a_value_with_a_time_to_live_was_written(tmp_path: Path) -> None:
    with TestRun(job(StoresLast())) as run:
        run.add_record(event(3, 5)).run()
        run.savepoint(tmp_path / "savepoint")
    shown = json.loads(output("state", "show", str(tmp_path / "savepoint"), "k", "--json"))["state"]["last"]
    assert (shown["value"], shown["written"]) == (5, "2025-01-01T00:00:03+00:00")


def test_errors_of_state_commands_name_the_mistake(shop: Path) -> None:
    done = amadou("state", "show", "savepoint", "unknown")
    assert (done.exit_code, done.stderr, done.stdout) == (1, "savepoint has no state for the key 'unknown'\n", "")
    done = amadou("state", "show", "savepoint", "apple", "--job", "other.py")
    assert "other.py does not exist" in done.stderr
    done = amadou("state", "history", "savepoint", "apple")
    assert "a savepoint has no history: use the checkpoint" in " ".join(done.output.split())
    (shop / "other.py").write_text(JOB.replace('"shop"', '"other"'))
    done = amadou("state", "show", "savepoint", "apple", "--job", "other.py")
    assert "the state belongs to the job 'shop', not to 'other'" in done.stderr


def rehearsed(shop: Path, change: Callable[[str], str], *more: str) -> tuple[int, str]:
    """Rehearse changed code. Return the exit status and the output."""
    (shop / "new").mkdir(exist_ok=True)
    (shop / "new" / "newshop.py").write_text(change(JOB))
    sys.modules.pop("newshop", None)
    # else Python would take the bytecode of code of the same size that was written in the same second
    shutil.rmtree(shop / "new" / "__pycache__", ignore_errors=True)
    done = amadou("rehearse", "savepoint", "new/newshop.py", *more)
    return done.exit_code, " ".join(done.output.split())


def test_rehearsing_the_same_code_succeeds(shop: Path) -> None:
    code, shown = rehearsed(shop, lambda text: text)
    assert code == 0, shown
    assert "new/newshop.py on savepoint (job shop, batch 1, 8 keys)" in shown
    assert "item ValueSpec Item 8" in shown
    assert "17 timers pending" in shown
    assert "The new code can continue from this savepoint." in shown


def test_rehearsing_finds_entries_that_cannot_be_read(shop: Path) -> None:
    code, shown = rehearsed(shop, lambda text: text.replace("    price: Decimal\n", "    price: int\n"))
    assert code == 1
    assert "item: 8 of 8 entries cannot be read. The first ones: key " in shown
    assert "stored: Item(name='a', price=Decimal('1.50'), color=Color('red')" in shown
    assert "The job would not start: the stored state does not fit the specs of 'shop'" in shown


def test_rehearsing_runs_migrations(shop: Path) -> None:
    working = "ListSpec(int, version=1, migrate=lambda old, version: old[0])"
    code, shown = rehearsed(shop, lambda text: text.replace("ListSpec(tuple[int, str])", working))
    assert code == 0, shown
    assert "last ListSpec int version 1 8 8" in shown
    failing = "ListSpec(int, version=1, migrate=lambda old, version: 1 // (old[0] - 7))"
    code, shown = rehearsed(shop, lambda text: text.replace("ListSpec(tuple[int, str])", failing))
    assert code == 1
    assert "last: 1 of 8 entries cannot be read. The first ones: key ('t', 1) stored: [(7, 'n')]" in shown
    assert "migrate= failed for version 0: ZeroDivisionError" in shown


def test_rehearsing_names_timers_and_state_that_the_new_code_does_not_use(shop: Path) -> None:
    def without_timers(text: str) -> str:
        return text.replace("def on_timer_expired", "def other").replace("subject.set_timer(event", "(event")

    code, shown = rehearsed(shop, without_timers)
    assert code == 1
    assert "9 timers are pending, but Shop has no on_timer_expired" in shown
    code, shown = rehearsed(shop, lambda text: text.replace("MemorySink()})", "MemorySink()}, retired={'x': 'drop'})"))
    assert code == 0, shown
    code, shown = rehearsed(
        shop,
        lambda text: text.replace("    last = ListSpec", "    newest = ListSpec").replace("self.last", "self.newest"),
    )
    assert code == 0, shown
    assert "last 8 not declared: stays stored" in shown
    retired = "MemorySink()}, retired={'last': 'drop'})"
    code, shown = rehearsed(
        shop,
        lambda text: (
            text.replace("    last = ListSpec", "    newest = ListSpec")
            .replace("self.last", "self.newest")
            .replace("MemorySink()})", retired)
        ),
    )
    assert "last 8 retired: will be dropped" in shown
    code, shown = rehearsed(shop, lambda text: text.replace('"shop", Shop()', '"other", Shop()'))
    assert code == 1
    assert "The job would not start: it belongs to the job 'shop', not to 'other'" in shown


@pytest.fixture
def records(shop: Path) -> Path:
    path = shop / "records.jsonl"
    path.write_bytes(b"\n".join([line("apple", 30, 1), line("new", 31, 2), line("pear-3", 50, 3)]))
    return path


def test_rehearsing_with_records_compares_the_outputs_of_the_old_and_the_new_code(shop: Path, records: Path) -> None:
    old = ("--records", "records.jsonl", "--old", "bazaar.py")
    code, shown = rehearsed(shop, lambda text: text, *old)
    assert code == 0, shown
    assert "3 outputs of the old code, 3 of the new code, 3 are the same The outputs are the same." in shown
    code, shown = rehearsed(shop, lambda text: text.replace('f"{subject.key} {event', 'f"{subject.key}={event'), *old)
    assert code == 0, shown
    assert "3 outputs of the old code, 3 of the new code, 0 are the same" in shown
    assert "out - 'apple 1' + 'apple=1'" in shown
    failing = 'if event.value == 2: raise ValueError("not two")\n        self.sums.add('
    code, shown = rehearsed(shop, lambda text: text.replace("self.sums.add(", failing), *old)
    assert code == 1
    assert "processing" in shown
    assert "not two" in shown


def test_bytes_that_the_code_writes_do_not_disturb_a_rehearsal(shop: Path, records: Path) -> None:
    old = ("--records", "records.jsonl", "--old", "bazaar.py")
    noise = r'import os; os.write(1, b"noise\n"); os.write(2, b"\xff\xfe\n"); self.sums.add('
    code, shown = rehearsed(shop, lambda text: text.replace("self.sums.add(", noise), *old)
    assert code == 0, shown
    assert "3 outputs of the old code, 3 of the new code, 3 are the same" in shown
    failing = 'raise ValueError("not now"); self.sums.add('
    code, shown = rehearsed(
        shop, lambda text: text.replace("self.sums.add(", noise.replace("self.sums.add(", failing)), *old
    )
    assert code == 1
    assert "not now" in shown


def test_rehearsing_code_that_cannot_continue_says_so_once_and_compares_no_outputs(shop: Path, records: Path) -> None:
    changed = ("TumblingWindow(size=timedelta(hours=1)", "TumblingWindow(size=timedelta(hours=2)")
    code, shown = rehearsed(
        shop, lambda text: text.replace(*changed), "--records", "records.jsonl", "--old", "bazaar.py"
    )
    assert code == 1
    assert shown.count("The job would not start: the stored state does not fit the specs of 'shop'") == 1
    assert "8 cannot be read:" in shown
    assert "The outputs for records.jsonl were not compared, since the new code cannot continue." in shown
    assert "processing" not in shown


def test_the_old_code_of_a_rehearsal_can_be_a_git_revision(shop: Path, records: Path) -> None:
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@example.org"]
    (shop / "new").mkdir()
    (shop / "new" / "newshop.py").write_text(JOB)
    for command in (["init", "-q"], ["add", "new"], ["commit", "-qm", "old"]):
        subprocess.run([*git, *command], check=True)
    change = '            self.out.collect(subject, "more")\n'
    changed = "    def on_timer_expired"
    code, shown = rehearsed(
        shop,
        lambda text: text.replace(changed, f"{change[4:]}\n{changed}", 1),
        *("--records", "records.jsonl", "--old-git", "HEAD"),
    )
    assert code == 0, shown
    assert "3 outputs of the old code, 6 of the new code, 3 are the same" in shown
    code, shown = rehearsed(shop, lambda text: text, "--records", "records.jsonl", "--old-git", "nothing")
    assert code == 1
    assert "git -C" in shown


def test_options_of_rehearse_are_checked(shop: Path, records: Path) -> None:
    for options, problem in (
        (["--old", "x.py"], "--old and --old-git need --records"),
        (["--records", "records.jsonl"], "--records needs the old code"),
        (["--records", "missing", "--old", "x.py"], "missing is not a file"),
        (["--records", "records.jsonl", "--old", "bazaar.py", "--source", "x"], "the job has no source 'x'"),
    ):
        done = amadou("rehearse", "savepoint", "bazaar.py", *options)
        assert done.exit_code == 2
        assert problem in " ".join(done.output.replace("│", "").split())


def test_reproduce_writes_a_test_that_begins_with_the_state_of_a_key(pytester: pytest.Pytester, shop: Path) -> None:
    assert output("reproduce", "--key", "apple", "savepoint", "bazaar.py") == (
        "test_apple.py: 1 test; run the file with: pytest test_apple.py\n"
    )
    text = (shop / "test_apple.py").read_text()
    assert "run.set_timer('apple', datetime(2025, 1, 1, 2, 1, tzinfo=timezone.utc), 'check')" in text
    assert "Item(name='a', price=Decimal('1.50'), color=Color.RED" in text
    record = 'b\'["apple", "2025-01-01T02:30:00+00:00", 1]\''
    processed = f"run.add_record({record}).add_watermark()\n    result = run.run()\n"
    text = text.replace("result = run.run()\n", processed)
    text += "    assert result.records('out') == ['apple 1', 'sum 11', 'timer apple', 'timer apple']\n"
    text += "    assert result.state('last', 'apple') == [(5, 'n'), (6, 'n'), (1, 'n')]\n"
    (shop / "test_apple.py").write_text(text)
    sys.modules.pop("bazaar")
    pytester.runpytest_inprocess("test_apple.py").assert_outcomes(passed=1)
    assert "exists: use --force" in amadou("reproduce", "--key", "apple", "savepoint", "bazaar.py").output
    done = amadou("reproduce", "--key", "unknown", "savepoint", "bazaar.py")
    assert "savepoint: it has no state for the key 'unknown'" in done.stderr
    assert "--key needs two arguments" in amadou("reproduce", "--key", "apple", "savepoint").output


def test_a_test_with_the_state_of_a_key_contains_no_secret_parameters(shop: Path) -> None:
    job = (shop / "bazaar.py").read_text()
    (shop / "bazaar.py").write_text(
        job.replace("    def key_event", '    token = Param("TOKEN", secret=True)\n\n    def key_event', 1).replace(
            "from amadou import", "from amadou import Param\nfrom amadou import", 1
        )
    )
    sys.modules.pop("bazaar", None)
    output("reproduce", "--key", "apple", "savepoint", "bazaar.py", "-p", "TOKEN=opensesame")
    assert "opensesame" not in (shop / "test_apple.py").read_text()


def test_the_command_in_a_reproduced_test_is_quoted_for_the_shell(shop: Path) -> None:
    shutil.copytree("savepoint", "$(a; b)")
    output("reproduce", "--key", "'apple'", "$(a; b)", "bazaar.py", "--output", "test_key.py")
    heading = (shop / "test_key.py").read_text().splitlines()[2]
    assert "`amadou reproduce --key ''\"'\"'apple'\"'\"'' '$(a; b)' bazaar.py`" in heading


def imported(shop: Path, change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]], *more: str) -> Result:
    """Export all state, change the rows, and import the changed rows."""
    output("state", "export", "savepoint", "rows.jsonl")
    rows = [json.loads(each) for each in (shop / "rows.jsonl").read_text().splitlines()]
    (shop / "changed.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in change(rows)))
    return amadou("state", "import", "changed.jsonl", "imported", *more)


def outputs_after(savepoint: str) -> list[Any]:
    """Return the outputs and states of a run from a savepoint."""
    sys.modules.pop("bazaar", None)
    with TestRun(load_job("bazaar.py"), savepoint=savepoint) as run:
        for key in ("apple", 17, ["t", 1], "pear-0"):
            run.add_record(line(key, 30, 1))
        result = run.add_watermark().run(flush=True)
        keys = sorted(result.keys(), key=str)
        states = [repr([key, *(result.state(name, key) for name in ("item", "last"))]) for key in keys]
        return [sorted(result.records("out")), states]


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_exported_state_can_be_imported(shop: Path, suffix: str) -> None:
    assert output("state", "export", "savepoint", f"rows.{suffix}") == f"rows.{suffix}: 40 rows\n"
    done = output("state", "import", f"rows.{suffix}", "new", "--job", "bazaar.py", "--watermark", "2025-01-01T00:05Z")
    assert done == "new: 8 keys, 17 timers\n"
    done = output("state", "import", f"rows.{suffix}", "same", "--into", "savepoint")
    assert done == "same: 8 keys, 17 timers\n"
    expected = outputs_after("savepoint")
    assert outputs_after("new") == expected
    assert outputs_after("same") == expected
    assert output("savepoint", "--verify", "new").startswith("new: verified. Job shop, no batch, watermark 2025-01-01")


def test_state_export_exports_chosen_keys_and_specs(shop: Path) -> None:
    def exported(*more: str) -> list[Any]:
        output("state", "export", "savepoint", "rows.jsonl", *more)
        return [json.loads(each) for each in (shop / "rows.jsonl").read_text().splitlines()]

    rows = exported("--key", "apple")
    assert [row.get("spec", "timers") for row in rows] == ["item", "per_hour", "last", "sums", "timers"]
    assert exported("--key", "17", "--spec", "last") == [{"key": 17, "spec": "last", "value": [[8, "n"]]}]
    assert {row["key"] for row in exported("--prefix", "pear-")} == {f"pear-{number}" for number in range(5)}
    (row,) = exported("--key", "17", "--spec", "per_hour")
    assert row == {
        "key": 17,
        "spec": "per_hour",
        "value": [["2025-01-01T00:04:00+00:00", 8]],
        "written": [["2025-01-01T00:04:00+00:00", "2025-01-01T00:04:00+00:00"]],
        "expires": "2025-01-02T00:04:00+00:00",
    }


def test_state_import_changes_adds_and_removes_entries(shop: Path) -> None:
    def change(_: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [
            {"key": "apple", "spec": "last", "value": [[100, "changed"]]},
            {"key": "pear-0", "spec": "last", "value": None},
            {"key": "apple", "timers": [["2025-01-01T05:00:00+00:00", ""]]},
            {"key": "new", "spec": "last", "value": [[1, "new"]]},
        ]

    done = imported(shop, change, "--into", "savepoint")
    assert done.exit_code == 0, done.output
    assert done.stdout == "imported: 9 keys, 16 timers\n"
    shown = output("state", "show", "imported", "apple")
    assert "[(100, 'changed')]" in shown
    assert "timer 2025-01-01T05:00:00+00:00\n" in shown
    assert shown.count("timer 2025") == 2  # the handler's, and the window's
    assert "last" not in output("state", "show", "imported", "pear-0")
    assert "[(1, 'new')]" in output("state", "show", "imported", "new")
    assert "[(5, 'n'), (6, 'n')]" in output("state", "show", "savepoint", "apple")


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"spec": "last", "value": []}, "row 1 cannot be imported: it has no key"),
        ({"key": "a", "spec": "lost", "value": []}, "the job has no state named 'lost' (known: item, per_hour, last"),
        ({"key": "a", "spec": "last", "value": 7}, "the state is a list, but the value is 7"),
        ({"key": "a", "spec": "per_hour", "value": 7}, "the state is a map, but the value is 7"),
        ({"key": "a", "spec": "per_hour", "value": [["noon", 7]]}, "'noon' is not a time in ISO format"),
        ({"key": "a", "spec": "item", "value": {"price": "cheap"}}, "'cheap' is not a Decimal"),
        ({"key": "a", "spec": "item"}, "it has neither a value nor timers"),
        ({"key": "a", "timers": [["noon", ""]]}, "'noon' is not a time in ISO format"),
        ({"key": {"$what": 1}, "timers": []}, "cannot be read (KeyError"),
        ({"key": 1.5, "timers": []}, "the key 1.5 has type float"),
    ],
)
def test_the_error_for_a_row_that_cannot_be_imported_names_the_problem(shop: Path, row: Any, problem: str) -> None:
    done = imported(shop, lambda _: [row], "--into", "savepoint")
    assert done.exit_code == 1
    assert problem in done.stderr
    assert not (shop / "imported").exists()


@pytest.mark.parametrize(
    ("fields", "what"), [({"spec": "last", "value": None}, "last"), ({"timers": []}, "the timers")]
)
def test_two_rows_for_the_same_state_are_an_error(shop: Path, fields: dict[str, Any], what: str) -> None:
    done = imported(shop, lambda _: [{"key": key, **fields} for key in ("a", "b", "a")], "--into", "savepoint")
    assert done.exit_code == 1
    assert f"rows 1 and 3 both have {what} of the key 'a': leave out one of them" in " ".join(done.stderr.split())
    assert not (shop / "imported").exists()


def test_files_and_options_of_import_are_checked(shop: Path) -> None:
    (shop / "bad.jsonl").write_text("{\n")
    (shop / "bad.parquet").write_text("{\n")
    for arguments, problem in (
        (["bad.jsonl", "new", "--into", "savepoint"], "line 1 is not JSON"),
        (["bad.parquet", "new", "--into", "savepoint"], "this is not a Parquet file"),
        (["missing.jsonl", "new", "--into", "savepoint"], "the file cannot be read: No such file or directory"),
        (["bad.jsonl", "new"], "name the savepoint to change with --into, or the job with --job"),
        (["bad.jsonl", "new", "--into", "savepoint", "--watermark", "noon"], "'noon' is not a time in ISO format"),
        (["bad.jsonl", "new", "--into", "savepoint", "--watermark", "2025-01-01"], "has no time zone"),
    ):
        done = amadou("state", "import", *arguments)
        assert problem in " ".join(done.output.replace("│", "").split())
        assert done.exit_code
    output("state", "export", "savepoint", "rows.jsonl")
    assert "the path is not empty" in amadou("state", "import", "rows.jsonl", "savepoint", "--into", "savepoint").stderr
