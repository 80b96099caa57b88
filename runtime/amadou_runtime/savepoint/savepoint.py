"""A savepoint: a copy of a job's state and progress as of a batch, in a directory that can be moved."""

import hashlib
import os
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path, PurePath, PureWindowsPath
from stat import S_ISREG
from typing import Any, Final, NoReturn

import attrs

from amadou import Job, Key
from amadou.components import Component
from amadou.engine import sum_counts, unpack
from amadou.errors import SavepointError
from amadou.event_time import from_micros
from amadou.paths import make_directory
from amadou_runtime.core.dead_letter_limit import LetterCount
from amadou_runtime.core.key_group import KeyGroup
from amadou_runtime.core.keying import group_interval, key_position
from amadou_runtime.core.references import ReferenceTable, is_reference, saved_name
from amadou_runtime.core.watermark import NO_WATERMARK, Watermark
from amadou_runtime.formats.documents import UNREADABLE
from amadou_runtime.formats.release import amadou_version
from amadou_runtime.jobs.state_schema import Known, is_of_reference, shown_structure
from amadou_runtime.savepoint.block import Block, GroupBuilder, blocks_of, by_subject
from amadou_runtime.savepoint.manifest import MANIFEST, FileInfo, Manifest, SpecFigures, read_manifest, savepoint_path
from amadou_runtime.savepoint.state_file import StateFile, StateFileInfo, StateFileWriter

TEST_RUN: Final = "test run"
"""The engine of savepoints that test runs write; see `Manifest.engine`."""
_STATE: Final = "state"
PARTIAL: Final = ".partial-"
"""Part of the name of a directory to which a savepoint is being written."""


def check_inside(directory: Path, name: str) -> None:
    """Check that a name in a manifest is a path inside the savepoint, without links.

    :raises SavepointError: it is not
    """
    try:
        os.fsencode(name)
        (directory / name).exists()
    except (UnicodeEncodeError, OSError) as error:
        raise SavepointError(str(directory), f"{name!r} cannot be the name of a file. Use another savepoint") from error
    path = PurePath(name)
    parts = {*path.parts, *PureWindowsPath(name).parts}
    is_relative = bool(parts) and ".." not in parts and "\0" not in name and not path.is_absolute()
    whole = directory.resolve()
    if not is_relative or (whole / path).resolve() != whole / path:
        why = f"{name!r} is not a file inside the savepoint, so its manifest has been changed. Use another savepoint"
        raise SavepointError(str(directory), why)


class Savepoint:
    """A savepoint of a job with one handler, or of a stage, to read.

    :param directory: the savepoint's directory
    :raises SavepointError: the directory is not a savepoint that this release can read, or files are missing
    """

    def __init__(self, directory: str | Path) -> None:
        self.directory = savepoint_path(directory)
        self.manifest = _manifest(self.directory)
        for name, expected, _ in self._files():
            check_inside(self.directory, name)
            try:
                found = (self.directory / name).stat()
            except OSError:
                self._fail(f"the file {name} is missing")
            if not S_ISREG(found.st_mode):
                self._fail(f"{name} is not a regular file")
            if found.st_size != expected:
                self._fail(f"the file {name} has {found.st_size:,} bytes instead of {expected:,}")

    @property
    def job(self) -> str:
        """The job's name."""
        return self.manifest.job

    @property
    def batch(self) -> int | None:
        """Number of the last batch; `None` if there is none."""
        return self.manifest.batch

    @property
    def structures(self) -> Known:
        """All structures that each declared spec has had."""
        return self.manifest.structures

    @property
    def clock(self) -> Mapping[str, Any]:
        """The state of the job's clock; see `Manifest.clock`."""
        return self.manifest.clock

    @property
    def dependency_state(self) -> bytes | None:
        """The state of the job's dependencies; see `Decision.state`."""
        state = self.clock["dependency_state"]
        return None if state is None else bytes.fromhex(state)

    @property
    def letters(self) -> LetterCount:
        """The number of dead letters."""
        return LetterCount(**self.clock["letters"])

    def _files(self) -> Iterator[tuple[str, int, str]]:
        """Yield the name, the size and the hash of each file."""
        for state_file in self.manifest.state_files:
            yield f"{_STATE}/{state_file.name}", state_file.bytes, state_file.sha256
        for file in self.manifest.files:
            yield file.name, file.bytes, file.sha256

    def _fail(self, damage: str) -> NoReturn:
        raise SavepointError(
            str(self.directory), f"{damage}. The savepoint is incomplete: copy it again, or use another"
        )

    def verify(self, on_read: Callable[[int], None] = lambda _: None) -> None:
        """Read the entire savepoint, and compare checksums.

        :param on_read: called with the number of bytes read since the last call
        :raises SavepointError: a file is damaged
        """
        for name, _, expected in self._files():
            StateFile(self.directory / name, str(self.directory)).check_hash(expected, on_read)
        keys = sum(block.keys for block in self.blocks())
        if keys != self.manifest.keys:
            self._fail(f"the state files have {keys:,} keys instead of {self.manifest.keys:,}")

    def copy(self, directory: Path, manifest: Manifest | None = None) -> Manifest:
        """Copy the files that the manifest lists.

        :param directory: a new directory
        :param manifest: the manifest of the copy; by default, the same
        """
        make_directory(directory / _STATE)
        for name, *_ in self._files():
            make_directory((directory / name).parent)
            shutil.copyfile(self.directory / name, directory / name, follow_symlinks=False)
        manifest = manifest or self.manifest
        (directory / MANIFEST).write_text(manifest.to_json(), "utf-8")
        return manifest

    def text(self, name: str) -> str:
        """Return the text of a file of the savepoint."""
        try:
            return (self.directory / name).read_text("utf-8")
        except (OSError, ValueError) as error:
            self._fail(f"the file {name} cannot be read ({error})")

    def references(self) -> Iterator[tuple[str, ReferenceTable]]:
        """Yield the name and the entries of each reference.

        :raises SavepointError: a file is damaged
        """
        for file in self.manifest.files:
            if is_reference(file.name):
                try:
                    table = ReferenceTable.of_text(self.text(file.name))
                except UNREADABLE as error:
                    self._fail(f"the file {file.name} is damaged ({error})")
                yield file.name.removeprefix(saved_name("")), table

    def source_files(self, source: str) -> dict[str, str]:
        """Return the texts of the files that Spark's built-in sources keep for a source, by name."""
        prefix = f"{self.manifest.sources[source]['log']}/"
        names = (file.name for file in self.manifest.files)
        return {name.removeprefix(prefix): self.text(name) for name in names if name.startswith(prefix)}

    def blocks(self, first: int = 0, last: int | None = None) -> Iterator[Block]:
        """Yield the blocks that overlap an interval of positions, ordered by their first position.

        :raises SavepointError: a file is damaged or missing
        """
        for info in self.manifest.state_files:
            if info.last >= first and (last is None or info.first <= last):
                yield from self._file(info).blocks(first, last)

    def _file(self, info: StateFileInfo) -> StateFile:
        return StateFile(self.directory / f"{_STATE}/{info.name}", str(self.directory))

    def find(self, key: Key) -> list[Block]:
        """Return the blocks that contain a key, reduced to this key; also blocks with key-group state that may contain
        the key.
        """
        position = key_position(key)
        found: list[Block] = []
        for block in self.blocks(position, position):
            if block.group_states:
                found.append(block)
            elif (part := block.of_key(key)) is not None:
                found.append(part)
        return found

    def group_of_keys(self, job: Job, keys: Iterable[Key]) -> Iterator[tuple[int, KeyGroup]]:
        """Yield a key group with some keys only; nothing if they have no state."""
        found = [part for key in dict.fromkeys(keys) for part in blocks_for(job, key, self.find(key))]
        builder = GroupBuilder(1, components_of(job), lives_of(job), str(self.directory), by_key=True)
        return builder.groups_of(sorted(found, key=lambda block: block.first), range(1))

    def groups(
        self,
        groups: int,
        numbers: range,
        components: Mapping[str, Component],
        lives: Mapping[str, int] | None,
        *,
        by_key: bool = False,
    ) -> Iterator[tuple[int, KeyGroup]]:
        """Yield key groups, in ascending order. Groups without state are left out.

        :param groups: the number of key groups, which can differ from the number in the manifest
        :param numbers: numbers of the groups to return
        :param components: the job's declared components by name
        :param lives: see `KeyGroup.lives`; `None` if the job is not known
        :param by_key: `True` to convert all key-group state to per-key state
        """
        if not numbers:
            return
        first, last = group_interval(numbers[0], groups)[0], group_interval(numbers[-1], groups)[1]
        builder = GroupBuilder(groups, components, lives, str(self.directory), by_key=by_key)
        yield from builder.groups_of(self.blocks(first, last), numbers)

    def groups_for(
        self, job: Job | None, groups: int, numbers: range, *, by_key: bool = False
    ) -> Iterator[tuple[int, KeyGroup]]:
        """Yield key groups for a job; see `groups`.

        :param job: the job; `None` if it is not known
        """
        if job is None:
            return self.groups(groups, numbers, {}, None, by_key=by_key)
        return self.groups(groups, numbers, components_of(job), lives_of(job), by_key=by_key)


def _manifest(directory: Path) -> Manifest:
    manifest = read_manifest(directory)
    if isinstance(manifest, Manifest):
        return manifest
    stages = ", ".join(manifest.stages)
    raise SavepointError(str(directory), f"it is a savepoint of a job with stages ({stages}), not of one of them")


def blocks_for(job: Job, key: Key, blocks: Iterable[Block]) -> list[Block]:
    """Return blocks reduced to a key, with key-group state converted to per-key state.

    :param job: a job that declares the components with key-group state
    """
    components = components_of(job)
    by_key = (by_subject(block, components, job.name).of_key(key) if block.group_states else block for block in blocks)
    return [block for block in by_key if block is not None]


def components_of(job: Job) -> dict[str, Component]:
    """Return a job's declared components by name."""
    return {name: spec for name, spec in job.specs.items() if isinstance(spec, Component)}


def lives_of(job: Job) -> dict[str, int]:
    """Return the time to live of a job's specs by name; see `KeyGroup.lives`."""
    return {name: spec.life for name, spec in job.specs.items() if spec.ttl is not None}


@attrs.define
class Totals:
    """Figures of state that is written to a savepoint.

    :param keys: number of keys with state, timers or held events
    :param timers: number of pending timers of the handler and its components
    :param held: number of held events by source
    :param spec_keys: number of keys with state, by spec name
    :param spec_bytes: size of the state before compression, without keys, by spec name
    :param left_out: number of keys with in-memory state, by name
    :param structures: packed structures of state, by name; see `Block`
    """

    keys: int = 0
    timers: int = 0
    held: dict[str, int] = attrs.field(factory=dict)
    spec_keys: dict[str, int] = attrs.field(factory=dict)
    spec_bytes: dict[str, int] = attrs.field(factory=dict)
    left_out: dict[str, int] = attrs.field(factory=dict)
    structures: dict[str, list[bytes]] = attrs.field(factory=dict)

    def add_block(self, block: Block) -> None:
        """Count a block."""
        self.keys += block.keys
        self.timers += block.pending
        for source, held in block.held.items():
            self.held[source] = self.held.get(source, 0) + len(held.keys)
        for name, table in block.tables.items():
            self.spec_keys[name] = self.spec_keys.get(name, 0) + len(table.packed)
            self.spec_bytes[name] = self.spec_bytes.get(name, 0) + sum(map(len, table.packed.values()))
        for name, state in block.group_states.items():
            self.spec_keys[name] = self.spec_keys.get(name, 0) + len(state.keys)
        self._add_structures(block.structures)

    def add_left_out(self, group: KeyGroup) -> None:
        """Count the in-memory state of a key group."""
        for name in group.in_memory:
            keys = len(group.tables[name].packed) if name in group.tables else len(group.group_states[name].keys)
            self.left_out[name] = self.left_out.get(name, 0) + keys
        for name, keys in group.lost.items():
            self.left_out[name] = self.left_out.get(name, 0) + keys

    def add(self, other: "Totals") -> None:
        """Add other figures."""
        self.keys += other.keys
        self.timers += other.timers
        for name in ("held", "spec_keys", "spec_bytes", "left_out"):
            setattr(self, name, dict(sum_counts((getattr(self, name), getattr(other, name)))))
        self._add_structures(other.structures)

    def _add_structures(self, structures: Mapping[str, list[bytes]]) -> None:
        for name, of in structures.items():
            known = self.structures.setdefault(name, [])
            known += [each for each in of if each not in known]


def write_groups(
    directory: Path, number: int, groups: Iterable[tuple[int, KeyGroup]], key_groups: int
) -> tuple[list[StateFileInfo], Totals]:
    """Write key groups to a file of a savepoint, which is left out if there is no state. Return the description of the
    file, and figures of the state.

    :param directory: the directory of the savepoint that is being written
    :param number: number of the file; files with higher numbers have higher positions
    :param groups: completely loaded key groups with their numbers, in ascending order
    :param key_groups: number of key groups
    """
    totals = Totals()
    # Spark may write a file more than once, for example if a task is repeated.
    name = f"{number:05}-{uuid.uuid4().hex[:8]}.blocks"
    make_directory(directory / _STATE)
    with StateFileWriter(directory / _STATE / name) as file:
        for group_number, group in groups:
            for block in blocks_of(group, *group_interval(group_number, key_groups)):
                file.write(block)
                totals.add_block(block)
            totals.add_left_out(group)
        info = file.finish()
    return [] if info is None else [info], totals


def read_state(directory: Path, name: str, size: int) -> Iterator[bytes]:
    """Yield a file of `write_groups` in pieces of a size in bytes."""
    with open(directory / _STATE / name, "rb") as file:
        while piece := file.read(size):
            yield piece


def append_state(directory: Path, name: str, piece: bytes) -> None:
    """Add a piece of `read_state` to a file of a savepoint."""
    make_directory(directory / _STATE)
    with open(directory / _STATE / name, "ab") as file:
        file.write(piece)


@attrs.frozen(kw_only=True)
class SavedProgress:
    """A job's progress as of a batch; for the fields, see `Manifest`.

    :param files: texts of other files by name
    """

    engine: str
    job: str
    run: str
    batch: int | None
    sources: Mapping[str, Mapping[str, Any]]
    clock: Mapping[str, Any]
    structures: Known
    ever_read: list[str]
    spark: str | None = None
    store: str | None = None
    key_groups: int = 1
    replay: Any = None
    files: Mapping[str, str] = attrs.field(factory=dict)


def progress_of(savepoint: Savepoint) -> SavedProgress:
    """Return the progress in a savepoint, for a savepoint with other state."""
    names = [field.name for field in attrs.fields(SavedProgress) if field.name != "files"]
    files = {file.name: savepoint.text(file.name) for file in savepoint.manifest.files}
    return SavedProgress(**{name: getattr(savepoint.manifest, name) for name in names}, files=files)


def newest_times(newest: Mapping[str, int]) -> dict[str, str]:
    """Return the newest event times of a source's partitions in the form of the manifest."""
    return {partition: from_micros(micros).isoformat() for partition, micros in newest.items()}


NO_CLOCK: Final[Mapping[str, Any]] = {
    "watermark": NO_WATERMARK,
    "dependency_state": None,
    "letters": attrs.asdict(LetterCount()),
}
"""The state of a job's clock before the first batch, in the form of the manifest."""


def clock_fields(watermark: Watermark, dependency_state: bytes | None, letters: LetterCount) -> dict[str, Any]:
    """Return the state of a job's clock in the form of the manifest."""
    return {
        "watermark": watermark.to_json(),
        "dependency_state": None if dependency_state is None else dependency_state.hex(),
        "letters": attrs.asdict(letters),
    }


def write_group(group: KeyGroup, progress: SavedProgress, directory: Path) -> Manifest:
    """Write a savepoint of a job whose state is a single key group in memory.

    :param group: the completely loaded group
    :param directory: the directory from `new_savepoint`, or one of a stage in it
    """
    return complete(directory, progress, *write_groups(directory, 0, [(0, group)], 1))


def check_new(directory: str | Path) -> Path:
    """Check that a savepoint can be written to a directory. Return the directory as a local path.

    :raises SavepointError: the directory exists and is not empty, or only Spark can access it
    """
    path = savepoint_path(directory)
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        what = "is not empty" if path.is_dir() else "is a file"
        raise SavepointError(str(directory), f"the path {what}: use a new directory")
    return path


@contextmanager
def new_savepoint(directory: str | Path) -> Iterator[Path]:
    """Yield a directory to write a savepoint to. When the block ends, it becomes the savepoint; see `complete`.

    A process that is killed leaves a directory whose name ends with `.partial-…`; it can be removed.

    :raises SavepointError: the directory exists and is not empty, or cannot be written
    """
    path = check_new(directory).absolute()
    partial = path.with_name(f"{path.name}{PARTIAL}{uuid.uuid4().hex[:8]}")
    try:
        make_directory(partial)
        yield partial
        check_new(path)
        with suppress(FileNotFoundError):
            path.rmdir()
        partial.rename(path)
    except OSError as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise SavepointError(
            str(directory), f"it cannot be written: check the path and the disk ({error.strerror or error})"
        ) from error
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def complete(
    directory: Path, progress: SavedProgress, state_files: Iterable[StateFileInfo], totals: Totals
) -> Manifest:
    """Write the manifest of a savepoint, and remove files of repeated tasks.

    :param directory: the directory from `new_savepoint`, or one of a stage in it
    :raises SavepointError: workers wrote state files to another directory
    """
    make_directory(directory / _STATE)
    state_files = sorted(state_files, key=lambda info: info.name)
    for info in state_files:
        file = directory / _STATE / info.name
        if not file.is_file() or file.stat().st_size != info.bytes:
            why = f"a file that a worker wrote, {_STATE}/{info.name}, is not there"
            raise SavepointError(str(directory), f"{why}: use a directory that all machines share, or a URI")
    known = {info.name for info in state_files}
    for path in (directory / _STATE).iterdir():
        if path.name not in known:
            path.unlink()
    files = [_written(directory, name, text) for name, text in sorted(progress.files.items())]
    watermark = progress.clock["watermark"]["current"]
    manifest = Manifest(
        id=uuid.uuid4().hex[:12],
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        amadou=amadou_version() or "unknown",
        engine=progress.engine,
        spark=progress.spark,
        job=progress.job,
        run=progress.run,
        batch=progress.batch,
        watermark=None if watermark is None else from_micros(watermark).isoformat(),
        store=progress.store,
        key_groups=progress.key_groups,
        keys=totals.keys,
        timers=totals.timers,
        held=totals.held,
        bytes=sum(info.bytes for info in state_files) + sum(file.bytes for file in files),
        specs=_specs(progress.structures, totals),
        left_out=totals.left_out,
        sources=progress.sources,
        replay=progress.replay,
        clock=progress.clock,
        structures=progress.structures,
        ever_read=progress.ever_read,
        state_files=state_files,
        files=files,
    )
    (directory / MANIFEST).write_text(manifest.to_json(), "utf-8")
    return manifest


def _specs(known: Known, totals: Totals) -> dict[str, SpecFigures]:
    structures = {name: of[-1] for name, of in known.items() if not is_of_reference(of[-1])}
    structures |= {name: unpack(of[-1]) for name, of in totals.structures.items() if name not in structures}
    found = {}
    for name in sorted({*structures, *totals.spec_keys}):
        structure = structures.get(name)
        shown, of_version = ("", 0) if structure is None else (shown_structure(structure), structure["version"])
        found[name] = SpecFigures(shown, of_version, totals.spec_keys.get(name, 0), totals.spec_bytes.get(name, 0))
    return found


def _written(directory: Path, name: str, text: str) -> FileInfo:
    path = directory / name
    make_directory(path.parent)
    data = text.encode()
    path.write_bytes(data)
    return FileInfo(name, len(data), hashlib.sha256(data).hexdigest())
