"""The steps of docs/upgrading.md, each from a savepoint of the old code."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from amadou_runtime import run
from amadou_runtime.command.cli import app
from amadou_runtime.jobs.load_job import load_job

OLD = """
import json
from datetime import datetime, timedelta

from attrs import frozen

from amadou import Handler, Job, KeyedEvent, MapSpec, SinkSpec, Subject, ValueSpec
from amadou_plugins.aggregates import Count
from amadou_plugins.connectors import JsonLinesSink, LinesSource
from amadou_plugins.windows import TumblingWindow, Window


@frozen
class Profile:
    full_name: str
    visits: int


class Visits(Handler):
    profile = ValueSpec(Profile)
    totals = ValueSpec(dict[str, int])
    per_minute = TumblingWindow(size=timedelta(minutes=1), value=Count())
    out = SinkSpec(list)

    def key_event(self, record: bytes) -> KeyedEvent:
        key, time = json.loads(record)
        return KeyedEvent(key, datetime.fromisoformat(time), None)

    def on_event(self, subject: Subject, event: KeyedEvent) -> None:
        profile = self.profile.state_for(subject)
        visits = profile.value.visits + 1 if profile.exists else 1
        profile.value = Profile(f"Mx {subject.key}", visits)
        self.totals.state_for(subject).value = {"views": visits, "clicks": 0}
        self.per_minute.add(subject, event)
        self.out.collect(subject, [subject.key, visits])

    @per_minute.on_close
    def minute_closed(self, subject: Subject, window: Window, count: int) -> None:
        self.out.collect(subject, ["minute", subject.key, count])


job = Job("visits", Visits(), {"in": LinesSource("in/")}, {"out": JsonLinesSink("out/")})
"""


class Place:
    """A directory with the job's files."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._files = 0

    def visit(self, *visits: tuple[str, str]) -> None:
        """Add visits: keys and times of the day."""
        (self.directory / "in").mkdir(exist_ok=True)
        lines = (json.dumps([key, f"2025-01-01T{time}+00:00"]) for key, time in visits)
        (self.directory / "in" / f"{self._files}.jsonl").write_text("\n".join(lines))
        self._files += 1

    def run(self, code: str, before: str | None, after: str | None) -> list[Any]:
        """Run code from a savepoint to the next one. Return its outputs."""
        (self.directory / "visits.py").write_text(code)
        sys.modules.pop("visits", None)
        run(load_job("visits.py"), engine="embedded", from_savepoint=before, to_savepoint=after)
        texts = [path.read_text() for path in sorted((self.directory / "out").glob("*"))]
        for path in (self.directory / "out").glob("*"):
            path.unlink()
        return [json.loads(line) for text in texts for line in text.splitlines()]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A directory in which the old code has run. Its savepoint is `before`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setitem(sys.modules, "visits", sys)
    made = Place(tmp_path)
    made.visit(("ann", "00:00:10"), ("ann", "00:00:20"), ("bob", "00:00:30"))
    assert made.run(OLD, None, "before") == [["ann", 1], ["ann", 2], ["bob", 1]]
    made.visit(("ann", "00:00:50"))
    return made


def amadou(*arguments: str) -> tuple[int, str]:
    sys.modules.pop("visits", None)
    done = CliRunner().invoke(app, list(arguments))
    return done.exit_code, " ".join(done.output.split())


def changed(*pairs: tuple[str, str]) -> str:
    code = OLD
    for old, new in pairs:
        assert old in code
        code = code.replace(old, new)
    return code


def rehearse(place: Place, code: str) -> tuple[int, str]:
    (place.directory / "visits.py").write_text(code)
    return amadou("rehearse", "before", "visits.py")


def test_a_field_with_a_default_can_be_added(place: Place) -> None:
    status, shown = rehearse(place, changed(("    visits: int\n", "    visits: int\n    email: str\n")))
    assert status == 1
    assert "Profile.email is new and has no default. Give the new field a default; or set version=1" in shown
    code = changed(("    visits: int\n", '    visits: int\n    email: str = "none"\n'))
    assert rehearse(place, code)[0] == 0
    assert place.run(code, "before", None) == [["ann", 3]]


def test_a_class_can_be_renamed_and_a_field_with_a_migration(place: Place) -> None:
    code = changed(("Profile", "Person"))
    assert rehearse(place, code)[0] == 0
    assert place.run(code, "before", None) == [["ann", 3]]
    renamed = ("full_name", "name")
    status, shown = rehearse(place, changed(renamed))
    assert status == 1
    assert "Profile.name is new and has no default" in shown
    migrate = "version=1, migrate=lambda old, version: Profile(old['full_name'], old['visits'])"
    code = changed(renamed, ("ValueSpec(Profile)", f"ValueSpec(Profile, {migrate})"))
    status, shown = rehearse(place, code)
    assert status == 0, shown
    assert "profile ValueSpec Profile version 1 2 2" in shown
    assert place.run(code, "before", None) == [["ann", 3]]


SPLIT = (
    ("    totals = ", "    views = ValueSpec(int, default=0)\n    clicks = ValueSpec(int, default=0)\n    totals = "),
    (
        '        self.totals.state_for(subject).value = {"views": visits, "clicks": 0}\n',
        """        old = self.totals.state_for(subject)
        views = self.views.state_for(subject)
        if old.exists:
            views.value = old.value["views"]
            self.clicks.state_for(subject).value = old.value["clicks"]
            old.clear()
        views.value += 1
        self.out.collect(subject, ["views", subject.key, views.value])
""",
    ),
)


def test_a_spec_can_be_split_key_by_key(place: Place) -> None:
    code = changed(*SPLIT)
    assert rehearse(place, code)[0] == 0
    assert place.run(code, "before", "after") == [["views", "ann", 3], ["ann", 3]]
    assert amadou("state", "show", "after", "ann")[1].count("totals") == 0
    assert amadou("state", "show", "after", "bob")[1].count("totals") == 1
    dropped = code.replace("    totals = ValueSpec(dict[str, int])\n", "").replace("self.totals", "self.other")
    dropped = dropped.replace('JsonLinesSink("out/")}', 'JsonLinesSink("out/")}, retired={"totals": "drop"}')
    (place.directory / "visits.py").write_text(dropped)
    status, shown = amadou("rehearse", "after", "visits.py")
    assert status == 0
    assert "totals 1 retired: will be dropped" in shown


def test_a_spec_can_be_split_for_all_keys_with_export_and_import(place: Place) -> None:
    (place.directory / "visits.py").write_text(changed(*SPLIT))
    amadou("state", "export", "before", "rows.jsonl", "--spec", "totals")
    rows = []
    for line in (place.directory / "rows.jsonl").read_text().splitlines():
        row = json.loads(line)
        rows += [{**row, "spec": name, "value": row["value"][name]} for name in ("views", "clicks")]
        rows.append({**row, "value": None})
    (place.directory / "split.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    status, shown = amadou("state", "import", "split.jsonl", "split", "--into", "before", "--job", "visits.py")
    assert status == 0, shown
    shown = amadou("state", "show", "split", "bob")[1]
    assert "totals" not in shown
    assert "views 1 (ValueSpec int)" in shown
    assert place.run(changed(*SPLIT), "split", None) == [["views", "ann", 3], ["ann", 3]]


def test_the_size_of_a_window_can_change_under_a_new_name(place: Place) -> None:
    hours = "per_hour = TumblingWindow(size=timedelta(hours=1), value=Count())"
    status, shown = rehearse(place, changed(("minutes=1), value", "hours=1), value")))
    assert status == 1
    assert "size was 0:01:00 and is now 1:00:00" in shown
    code = changed(
        ("    per_minute = ", f"    {hours}\n    per_minute = "),
        ("self.per_minute.add", "self.per_hour.add"),
        (
            "    @per_minute.on_close",
            """    @per_hour.on_close
    def hour_closed(self, subject: Subject, window: Window, count: int) -> None:
        self.out.collect(subject, ["hour", subject.key, count])

    @per_minute.on_close""",
        ),
    )
    assert rehearse(place, code)[0] == 0
    place.visit(("ann", "01:00:00"))
    assert sorted(place.run(code, "before", None), key=str) == [
        ["ann", 3],
        ["ann", 4],
        ["hour", "ann", 1],
        ["minute", "ann", 2],
        ["minute", "bob", 1],
    ]
    dropped = changed(
        ("    per_minute = ", "    per_hour = "),
        ("minutes=1), value", "hours=1), value"),
        ("self.per_minute.add", "self.per_hour.add"),
        ("@per_minute.on_close", "@per_hour.on_close"),
        ('JsonLinesSink("out/")}', 'JsonLinesSink("out/")}, retired={"per_minute": "drop"}'),
    )
    assert rehearse(place, dropped)[0] == 0
    assert sorted(place.run(dropped, "before", None), key=str) == [["ann", 3], ["ann", 4], ["minute", "ann", 1]]


def test_the_old_code_can_run_again_from_an_earlier_savepoint(place: Place) -> None:
    wrong = changed(("profile.value.visits + 1", "profile.value.visits + 100"))
    assert place.run(wrong, "before", "after") == [["ann", 102]]
    assert place.run(OLD, "before", None) == [["ann", 3]]


def test_the_state_of_a_single_key_can_be_shown_and_reproduced(place: Place) -> None:
    assert "Profile(full_name='Mx ann', visits=2)" in amadou("state", "show", "before", "ann")[1]
    status, shown = amadou("reproduce", "--key", "ann", "before", "visits.py")
    assert status == 0, shown
    assert "run.set_state('profile', 'ann', Profile(full_name='Mx ann', visits=2))" in Path("test_ann.py").read_text()
