"""The manifest of a savepoint, `savepoint.json`: for people first, then for programs."""

import hashlib
import json
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final, TypeAlias

import attrs

from amadou.engine import MOST_KEY_GROUPS
from amadou.errors import SavepointError
from amadou.paths import is_remote, local_path
from amadou_runtime.core.dead_letter_limit import LetterCount
from amadou_runtime.formats.documents import UNREADABLE, check_column, structured
from amadou_runtime.jobs.given_path import check_given
from amadou_runtime.jobs.state_schema import Known, check_structures
from amadou_runtime.savepoint.state_file import StateFileInfo

MANIFEST: Final = "savepoint.json"
_FORMAT: Final = 1
_FORMAT_WITH_STAGES: Final = 2
_CHECKSUM: Final = "checksum"


@attrs.frozen
class SpecFigures:
    """A spec in a savepoint.

    :param type: the spec with its type, as in the job's code
    :param version: the version of the stored state; see `StateSpec`
    :param keys: number of keys with state; for state of whole key groups, this is included
    :param bytes: size of the state before compression, without keys
    """

    type: str
    version: int
    keys: int
    bytes: int


@attrs.frozen
class FileInfo:
    """A file that a source of the job, or a replay of dead letters, keeps in the checkpoint."""

    name: str
    bytes: int
    sha256: str


@attrs.frozen(kw_only=True)
class Manifest:
    """Description of a savepoint.

    :param id: identifies the savepoint
    :param created: time of creation, in ISO format
    :param amadou: version of amadou
    :param engine: the engine on which the job ran: `spark`, `embedded` or `test run`
    :param spark: version of Spark; `None` for the embedded engine
    :param job: the job's name
    :param run: id of the checkpoint; see `SinkBatch.run`
    :param batch: number of the last batch that the savepoint includes; `None` if it includes none
    :param watermark: the watermark, in ISO format; `None` before the first watermark
    :param store: the store of the checkpoint, `groups` or `log`; `None` for the embedded engine
    :param key_groups: number of key groups
    :param keys: number of keys with state, timers or held events
    :param timers: number of pending timers of the handler and its components
    :param held: number of held events by source
    :param bytes: size of all files
    :param specs: the specs with state, by name
    :param left_out: number of keys with in-memory state, which a savepoint does not include, by name
    :param sources: progress of the sources by name: `newest` event times by partition, and the position as `offset` of
        Spark, with the directory `log` of the files that Spark keeps for it, or as `position` of the embedded engine
    :param replay: Spark's offset in the dead letters to replay; `None` if none have been replayed
    :param clock: the state of the job's clock, such as the watermark
    :param structures: all structures that each spec has had; see `jobs.state_schema`
    :param ever_read: names of all sources that the job has read, including sources that it no longer has
    :param state_files: the files with blocks, ordered by position
    :param files: other files
    """

    id: str
    created: str
    amadou: str
    engine: str
    spark: str | None
    job: str
    run: str
    batch: int | None
    watermark: str | None
    store: str | None
    key_groups: int
    keys: int
    timers: int
    held: Mapping[str, int]
    bytes: int
    specs: Mapping[str, SpecFigures]
    left_out: Mapping[str, int]
    sources: Mapping[str, Mapping[str, Any]]
    replay: Any
    clock: Mapping[str, Any]
    structures: Known
    ever_read: list[str]
    state_files: list[StateFileInfo]
    files: list[FileInfo]

    def to_json(self) -> str:
        """Return the manifest as JSON."""
        return _to_json(_FORMAT, self)


@attrs.frozen
class _Watermark:
    """What `Watermark.load` needs."""

    current: int | None
    looked: int | None
    newest: Mapping[str, Mapping[str, int]]
    brought: Mapping[str, Mapping[str, int]]
    held: Mapping[str, int]
    before_end: int | None = None
    without_partitions: list[str] = attrs.field(factory=list)


@attrs.frozen
class _Clock:
    """The form of `Manifest.clock`."""

    watermark: _Watermark
    dependency_state: str | None
    letters: LetterCount


@attrs.frozen(kw_only=True)
class StagesManifest:
    """Description of a savepoint of a job with stages; see `Manifest`. Figures are those of all stages.

    :param stages: the ids of the stages' savepoints by stage, each after the stages that feed it
    """

    id: str
    created: str
    amadou: str
    engine: str
    job: str
    run: str
    batch: int | None
    store: str | None
    key_groups: int
    keys: int
    timers: int
    bytes: int
    stages: Mapping[str, str]

    def to_json(self) -> str:
        """Return the manifest as JSON."""
        return _to_json(_FORMAT_WITH_STAGES, self)


def check_clock(clock: Mapping[str, Any]) -> None:
    """Check the form of `Manifest.clock`.

    :raises ValueError: it has another form
    """
    found = structured(_Clock, clock)
    bytes.fromhex(found.dependency_state or "")
    watermark = found.watermark
    by_partition = (*watermark.newest.values(), *watermark.brought.values())
    check_column([micros for of in by_partition for micros in of.values()], int)
    if any(of.keys() != watermark.brought.get(source, {}).keys() for source, of in watermark.newest.items()):
        raise ValueError("the newest events of its clock are not those that arrived")
    check_column([watermark.current, watermark.before_end], int, type(None))


JobManifest: TypeAlias = Manifest | StagesManifest
EMPTY: Final = "is empty: the job has not completed a batch yet, so a run from it begins without state"
"""What is said of a savepoint for which `is_empty` is true."""


def is_empty(manifest: JobManifest) -> bool:
    """Return `True` for a savepoint that was taken before the first batch was completed."""
    return manifest.batch is None and not manifest.keys


def read_manifest(directory: Path) -> JobManifest:
    """Read the manifest of a savepoint.

    :raises SavepointError: the directory is not a savepoint that this release can read
    """
    savepoint = str(directory)
    path = directory / MANIFEST
    if path.exists() and not path.is_file():
        raise SavepointError(savepoint, f"{MANIFEST} is not a regular file. Copy the savepoint again, or use another")
    try:
        content = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise SavepointError(savepoint, _not_found(directory)) from None
    except (OSError, MemoryError) as error:
        why = "it is too large" if isinstance(error, MemoryError) else error
        raise SavepointError(savepoint, f"{MANIFEST} cannot be read: check the file ({why})") from error
    return parsed_manifest(content, savepoint)


def parsed_manifest(content: bytes, savepoint: str) -> JobManifest:
    """Return a manifest.

    :param content: the content of the file
    :param savepoint: the savepoint, for errors
    :raises SavepointError: the file is damaged, or of a release that this one does not know
    """
    damaged = f"{MANIFEST} is damaged or incomplete. Copy the savepoint again, or use another"
    try:
        fields = json.loads(content)
        version = fields["format"]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise SavepointError(savepoint, f"{damaged} ({error!r})") from error
    if version not in (_FORMAT, _FORMAT_WITH_STAGES):
        newer = isinstance(version, int) and version > _FORMAT_WITH_STAGES
        known = f"the formats {_FORMAT} and {_FORMAT_WITH_STAGES}"
        which = f"{'newer ' if newer else ''}format {version}; this release reads {known}"
        advice = "install the release of amadou that wrote it, or a later one"
        raise SavepointError(savepoint, f"it has the {which}: {advice} (written by {fields.get('amadou')})")
    checksum = fields.pop(_CHECKSUM, None)
    if checksum != _checksum(fields):
        raise SavepointError(savepoint, f"{damaged} (its checksum is wrong)")
    del fields["format"]
    try:
        manifest: JobManifest
        manifest = structured(Manifest, fields) if version == _FORMAT else structured(StagesManifest, fields)
        if not 1 <= manifest.key_groups <= MOST_KEY_GROUPS:
            raise ValueError(f"there cannot be {manifest.key_groups:,} key groups")
        if isinstance(manifest, StagesManifest):
            return manifest
        check_clock(manifest.clock)
        for structures in manifest.structures.values():
            check_structures(structures)
        for source in manifest.sources.values():
            list(map(datetime.fromisoformat, source["newest"].values()))
            if source.get("offset") is not None:
                check_column([source["log"]], str)
        return manifest
    except UNREADABLE as error:
        raise SavepointError(savepoint, f"{damaged} ({error})") from error


def _to_json(version: int, manifest: JobManifest) -> str:
    fields = {"format": version, **attrs.asdict(manifest)}
    return json.dumps({**fields, _CHECKSUM: _checksum(fields)}, indent=2) + "\n"


def savepoint_path(directory: str | Path) -> Path:
    """Return a savepoint's directory as a local path.

    :param directory: a path, or a URI that starts with ``file:``
    :raises SavepointError: the path is empty, or only Spark can access the directory
    """
    check_given(str(directory), SavepointError)
    if is_remote(str(directory)):
        why = "only Spark can access it. Copy the savepoint to a local directory with the tools of the file system"
        raise SavepointError(str(directory), why)
    return Path(local_path(str(directory)))


def _checksum(fields: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


def _not_found(directory: Path) -> str:
    if not directory.exists():
        return "there is no such directory: correct the path"
    if (directory / "amadou.json").exists():
        return "this directory is a checkpoint: write a savepoint of it with amadou savepoint"
    return f"there is no {MANIFEST} in this directory: it is not a savepoint, or its copy is incomplete"
