"""State as rows, for files in JSON lines or Parquet: one row for each key and spec, and one for a key's timers."""

import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import IO, Any

import attrs

from amadou import Job, Key
from amadou.components import Component
from amadou.engine import StateTable, check_key, pack, unpack
from amadou.errors import AmadouError, SavepointError
from amadou.event_time import to_micros
from amadou.text import shortened
from amadou_runtime.core.key_group import KeyGroup
from amadou_runtime.core.keying import key_group
from amadou_runtime.jobs.state_schema import Known, described, is_of_reference, with_structures
from amadou_runtime.savepoint.block import Block, structures_of
from amadou_runtime.savepoint.manifest import Manifest
from amadou_runtime.savepoint.readable import StateFormat, stored_state
from amadou_runtime.savepoint.savepoint import (
    NO_CLOCK,
    SavedProgress,
    Savepoint,
    complete,
    progress_of,
    write_groups,
)
from amadou_runtime.savepoint.tagged import NotReadableError, from_tagged, micros_of, time_text, to_tagged
from amadou_runtime.store.packed_group import PackedGroup

_GROUPS = 256
"""Number of key groups of a savepoint without a base."""
_PARTS = 100
"""Maximum number of files to which rows are divided: a process can only have some hundred open files."""

_SHOWN = 200


def rows_of(blocks: Iterable[Block], structures: Known) -> Iterator[dict[str, Any]]:
    """Yield the state in blocks as rows.

    :param blocks: blocks without key-group state
    :param structures: the structures of declared specs
    """
    formats: dict[str, StateFormat] = {}
    for block in blocks:
        timers: dict[Key, list[list[str]]] = {}
        for key, micros, tag in zip(*block.timers, strict=True):
            timers.setdefault(key, []).append([time_text(micros), tag])
        for name, table in block.tables.items():
            if name not in formats:
                formats[name] = StateFormat(structures_of(name, structures, block))
            for key, packed in table.packed.items():
                row = {"key": to_tagged(key), "spec": name, **formats[name].to_json(packed)}
                for field, times in (("expires", table.expires), ("next_timer", table.next_timers)):
                    if key in times:
                        row[field] = time_text(times[key])
                yield row
        yield from ({"key": to_tagged(key), "timers": of_key} for key, of_key in timers.items())


class RowError(Exception):
    """A row cannot be imported. The message says why."""


@attrs.frozen
class _Change:
    """The new state of a key under a spec, or its new timers."""

    key: Key
    spec: str | None
    packed: bytes | None = None
    expires: int | None = None
    next_timer: int | None = None
    timers: list[tuple[int, str]] = attrs.field(factory=list)


class Importer:
    """Writes rows to a new savepoint.

    :param base: the savepoint that the rows change; `None` to begin without state
    :param job: the job; needed without a base, or to change state that is stored for whole key groups
    """

    def __init__(self, base: Savepoint | None, job: Job | None) -> None:
        assert base is not None or job is not None
        self._base = base
        self._job = job
        known: Known = {} if base is None else base.structures
        self._known = known if job is None else with_structures(known, described(job))
        self._structures = {name: of for name, of in self._known.items() if not is_of_reference(of[-1])}
        if base is not None and base.manifest.specs.keys() - self._structures.keys():
            self._structures = _structures_at_run_time(base) | self._structures
        self._formats = {name: StateFormat(structures) for name, structures in self._structures.items()}
        self._groups = _GROUPS if base is None else base.manifest.key_groups

    def write(self, rows: Iterable[Mapping[str, Any]], watermark: datetime | None, directory: Path) -> Manifest:
        """Write the savepoint.

        :param rows: rows as from `rows_of`. A row replaces the state of its key and spec, or the key's timers. A row
            with the value `None` removes the state
        :param watermark: the watermark of the savepoint; `None` for that of the base
        :param directory: see `complete`
        :raises RowError: a row cannot be read, or two rows are for the same state
        :raises SavepointError: the base is damaged
        """
        with tempfile.TemporaryDirectory(prefix="amadou-import-") as parts:
            written = write_groups(directory, 0, self._merged(self._divided(rows, Path(parts))), self._groups)
            return complete(directory, self._progress(watermark), *written)

    def _divided(self, rows: Iterable[Mapping[str, Any]], directory: Path) -> dict[int, Path]:
        """Check rows, and write them to a file for each `_part` of the key groups, with numbers of group and row."""
        paths: dict[int, Path] = {}
        with ExitStack() as stack:
            files: dict[int, IO[str]] = {}
            for number, row in enumerate(rows, 1):
                try:
                    group = key_group(self._change(row).key, self._groups)
                    text = json.dumps(row)
                except (NotReadableError, AmadouError, TypeError, ValueError, ArithmeticError, LookupError) as error:
                    raise RowError(f"row {number} cannot be imported: {error}") from error
                except RecursionError as error:
                    raise RowError(f"row {number} cannot be imported: it is nested too deeply") from error
                part = self._part(group)
                if part not in files:
                    paths[part] = directory / str(part)
                    files[part] = stack.enter_context(paths[part].open("w", encoding="utf-8"))
                files[part].write(f"{group} {number} {text}\n")
        return paths

    def _part(self, group: int) -> int:
        """Return the number of the part to which a key group belongs."""
        return group * min(_PARTS, self._groups) // self._groups

    def _change(self, row: Mapping[str, Any]) -> _Change:
        """Return what a row changes.

        :raises NotReadableError: the row is not valid
        """
        if not isinstance(row, Mapping) or "key" not in row:
            raise NotReadableError("it has no key")
        key = from_tagged(row["key"])
        check_key(key)
        if "timers" in row:
            return _Change(key, None, timers=[(micros_of(time), _tag_of(tag)) for time, tag in row["timers"]])
        name = row.get("spec")
        if not isinstance(name, str) or name not in self._formats:
            known = ", ".join(self._formats) or "none"
            raise NotReadableError(f"the job has no state named {name!r} (known: {known})")
        if "value" not in row:
            raise NotReadableError("it has neither a value nor timers")
        if row["value"] is None:
            return _Change(key, name)
        expires, next_timer = (
            None if row.get(field) is None else micros_of(row[field]) for field in ("expires", "next_timer")
        )
        packed = self._formats[name].from_json(row)
        if next_timer is not None and not self._is_component(name):
            raise NotReadableError(f"it has a next_timer, but {name!r} has no timers: only windows and joins have")
        self._check_stored(key, name, packed, expires=expires is not None)
        return _Change(key, name, packed, expires, next_timer)

    def _check_stored(self, key: Key, name: str, packed: bytes, *, expires: bool) -> None:
        """Check that packed state has the form that its spec stores, as far as this is known.

        :param expires: `True` if the row has the time at which the state expires
        :raises NotReadableError: it does not
        :raises StateDecodeError: likewise
        """
        spec = None if self._job is None else self._job.specs.get(name)
        if expires or isinstance(spec, Component):
            stored = stored_state(packed)
            if expires and not stored.has_ttl:
                raise NotReadableError("it has the field expires, but not written: only state with a ttl expires")
            if isinstance(spec, Component) and stored.version == spec.version:
                spec.check_form(key, stored.encoded[1] if stored.has_ttl else stored.encoded)

    def _is_component(self, name: str) -> bool:
        return "noun" in self._structures[name][-1]

    def _merged(self, found: Mapping[int, Path]) -> Iterator[tuple[int, KeyGroup]]:
        """Yield the key groups with the changes of the rows."""
        stored = iter(()) if self._base is None else self._stored(self._base)
        waiting = next(stored, None)
        part, places = -1, dict[int, list[int]]()
        for number in range(self._groups):
            if self._part(number) != part:
                part = self._part(number)
                places = _places(found[part]) if part in found else {}
            group = None
            if waiting is not None and waiting[0] == number:
                group, waiting = waiting[1], next(stored, None)
            if number in places:
                group = group or KeyGroup(PackedGroup(None))
                for change in self._changes(_rows_at(found[part], places[number])):
                    self._apply(change, group)
            if group is not None:
                yield number, group

    def _changes(self, rows: Iterable[tuple[int, Any]]) -> Iterator[_Change]:
        """Yield the changes of numbered rows.

        :raises RowError: two rows change the same, so that one of them would be lost
        """
        numbers: dict[tuple[Key, str | None], int] = {}
        for number, row in rows:
            change = self._change(row)
            earlier = numbers.setdefault((change.key, change.spec), number)
            if earlier != number:
                what = "the timers" if change.spec is None else change.spec
                key = shortened(repr(change.key), _SHOWN)
                raise RowError(f"rows {earlier} and {number} both have {what} of the key {key}: leave out one of them")
            yield change

    def _apply(self, change: _Change, group: KeyGroup) -> None:
        key, name = change.key, change.spec
        if name is None:
            for micros, tag in group.timers.of(key):
                group.timers.discard(key, micros, tag)
            for micros, tag in change.timers:
                group.timers.add(key, micros, tag)
            return
        if name in group.group_states:
            assert self._base is not None
            why = f"the state of {name} is stored for whole key groups. Name the job to change it"
            raise SavepointError(str(self._base.directory), why)
        table = group.tables.setdefault(name, StateTable({}))
        for times in (table.packed, table.expires, table.next_timers):
            times.pop(key, None)
        if change.packed is not None:
            table.packed[key] = change.packed
            if change.expires is not None:
                table.expires[key] = change.expires
            if change.next_timer is not None:
                table.next_timers[key] = change.next_timer
            if self._is_component(name):  # its structure is stored with its state
                group.structures.setdefault(name, [pack(self._structures[name][-1])])

    def _stored(self, base: Savepoint) -> Iterator[tuple[int, KeyGroup]]:
        return base.groups_for(self._job, self._groups, range(self._groups), by_key=self._job is not None)

    def _progress(self, watermark: datetime | None) -> SavedProgress:
        if self._base is None:
            assert self._job is not None
            progress = SavedProgress(
                engine="embedded",
                job=self._job.name,
                run="import",
                batch=None,
                sources={},
                clock=NO_CLOCK,
                structures=self._known,
                ever_read=[],
                key_groups=self._groups,
            )
        else:
            progress = attrs.evolve(progress_of(self._base), structures=self._known)
        if watermark is None:
            return progress
        reached = {**progress.clock["watermark"], "current": to_micros(watermark)}
        return attrs.evolve(progress, clock={**progress.clock, "watermark": reached})


def _places(path: Path) -> dict[int, list[int]]:
    """Return where the rows of each key group begin in the file of a part."""
    found: dict[int, list[int]] = {}
    place = 0
    with path.open("rb") as lines:
        for line in lines:
            found.setdefault(int(line[: line.index(b" ")]), []).append(place)
            place += len(line)
    return found


def _rows_at(path: Path, places: Iterable[int]) -> Iterator[tuple[int, Any]]:
    """Yield the rows at some places in the file of a part, with their numbers."""
    with path.open("rb") as lines:
        for place in places:
            lines.seek(place)
            _, number, row = lines.readline().split(b" ", 2)
            yield int(number), json.loads(row)


def _tag_of(tag: Any) -> str:
    """Return the tag of a timer from a row.

    :raises NotReadableError: this is not a text that can be stored
    """
    try:
        if not isinstance(tag, str):
            raise NotReadableError(f"the tag of a timer is a text, not {shortened(repr(tag), _SHOWN)}")
        tag.encode()
    except UnicodeEncodeError:
        raise NotReadableError(f"the tag {shortened(repr(tag), _SHOWN)} is not valid Unicode") from None
    return tag


def _structures_at_run_time(savepoint: Savepoint) -> Known:
    """Return the structures of components that were created at run time, which only key groups know."""
    return {name: list(map(unpack, of)) for block in savepoint.blocks() for name, of in block.structures.items()}
