"""The commands that look into stored state: `amadou state`."""

import ast
import heapq
import json
import sys
from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from amadou import Job, Key
from amadou.engine import shown_bytes
from amadou.errors import LoadError
from amadou_runtime.command.load_job import load_job
from amadou_runtime.command.options import ConfOption, MasterOption, ParamOption, errors_as_messages, pairs
from amadou_runtime.command.row_files import rows_in, writing
from amadou_runtime.command.stored_keys import KeySize, KeyState, StoredState, key_sizes, key_state
from amadou_runtime.savepoint.block import Block, by_subject
from amadou_runtime.savepoint.manifest import MANIFEST
from amadou_runtime.savepoint.readable import time_text, to_tagged
from amadou_runtime.savepoint.rows import Importer, RowError, rows_of
from amadou_runtime.savepoint.savepoint import Savepoint, components_of

state_app = typer.Typer(help="Look into the state of a checkpoint or savepoint.", no_args_is_help=True)

PlaceArgument = Annotated[
    str, typer.Argument(metavar="PLACE", help="A checkpoint or a savepoint. A run may use it.", show_default=False)
]
KeyArgument = Annotated[
    str,
    typer.Argument(
        metavar="KEY",
        help="The key. If it is not a string, write it as in Python: 17, b'x' or (1, 'a').",
        show_default=False,
    ),
]
JobOption = Annotated[
    str | None,
    typer.Option(metavar="TARGET", help="The job, to show values with its classes, and the state of its windows."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def open_state(place: str, master: str | None, settings: dict[str, str]) -> Any:
    """Open a savepoint, or a checkpoint with Spark.

    :raises AmadouError: there is neither a savepoint nor a checkpoint, or it cannot be read
    """
    if (Path(place) / MANIFEST).exists():
        return Savepoint(place)
    from amadou_runtime.spark import session
    from amadou_runtime.spark.checkpoint import absolute, read_metadata
    from amadou_runtime.spark.files import local_files
    from amadou_runtime.spark.savepoints.checkpoint_state import CheckpointState

    files = local_files(absolute(place))
    if files is not None:
        read_metadata(files)  # checked first, since starting Spark takes seconds
    return CheckpointState(session("amadou state", master=master, conf=settings), absolute(place))


def _job(target: str | None, params: dict[str, str], state: StoredState) -> Job | None:
    if target is None:
        return None
    job = load_job(target).with_params(params, connectors=False)
    check_owner(target, job, state)
    return job


def check_owner(target: str, job: Job, state: StoredState) -> None:
    """Check that state belongs to a job.

    :param target: the target from which the job was loaded
    :raises LoadError: the state belongs to a different job
    """
    if job.name != state.job:
        raise LoadError(target, f"the state belongs to the job {state.job!r}, not to {job.name!r}")


def keys_named(text: str) -> Iterator[Key]:
    """Yield the keys that a text can mean: the text itself, and the Python literal."""
    yield text
    try:
        literal = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return
    if isinstance(literal, str | int | bytes | tuple):
        yield literal


def _found(state: StoredState, text: str, job: Job | None) -> KeyState:
    for key in keys_named(text):
        found = key_state(key, state.find(key), state.structures, job)
        if not found.is_empty or found.hidden:
            return found
    return KeyState(text, {}, [], {}, [])


@state_app.command("keys", epilog="Example: amadou state keys state/ --biggest 10")
def keys(
    place: PlaceArgument,
    prefix: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Only keys that are strings and begin with this text.")
    ] = None,
    count: Annotated[bool, typer.Option("--count", help="Print only the number of keys.")] = False,
    biggest: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="The N keys with the most state, biggest first.")
    ] = None,
    oldest: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="The N keys for which something is due first: a timer, the expiry of state, or a held event.",
        ),
    ] = None,
    limit: Annotated[int | None, typer.Option(metavar="N", min=1, help="At most N keys. Default: all.")] = None,
    as_json: JsonOption = False,
    master: MasterOption = None,
    conf: ConfOption = None,
) -> None:
    """List the keys with state or timers, with their sizes."""
    if biggest is not None and oldest is not None:
        raise typer.BadParameter("--biggest and --oldest are mutually exclusive: use only one of them")
    with errors_as_messages():
        state = open_state(place, master, pairs(conf, "--conf"))
        sizes = key_sizes(state.blocks())
        found: Iterator[KeySize] = (each for each in sizes if _begins(each.key, prefix))
        if count:
            print(sum(1 for _ in found))
            return
        if biggest is not None:
            found = iter(heapq.nlargest(biggest, found, key=lambda each: each.bytes))
        elif oldest is not None:
            with_time = (each for each in found if each.next is not None)
            found = iter(heapq.nsmallest(oldest, with_time, key=lambda each: each.next or 0))
        found = islice(found, limit)
        if as_json:
            for each in found:
                print(json.dumps(_size_to_json(each)))
        else:
            _print_sizes(found)


def _begins(key: Key, prefix: str | None) -> bool:
    return prefix is None or (isinstance(key, str) and key.startswith(prefix))


def _size_to_json(each: KeySize) -> dict[str, Any]:
    next_ = None if each.next is None else time_text(each.next)
    return {"key": to_tagged(each.key), "bytes": each.bytes, "timers": each.timers, "next": next_}


def _print_sizes(found: Iterator[KeySize]) -> None:
    """Print lines as they are found: there may be millions."""
    print(f"{'size':>10} {'timers':>8}  {'next due':<32} key")
    for each in found:
        next_ = "" if each.next is None else time_text(each.next)
        print(f"{shown_bytes(each.bytes):>10} {each.timers:>8,}  {next_:<32} {each.key!r}")


@state_app.command("show", epilog="Example: amadou state show state/ news --job views.py")
def show(
    place: PlaceArgument,
    key: KeyArgument,
    as_json: JsonOption = False,
    job: JobOption = None,
    param: ParamOption = None,
    master: MasterOption = None,
    conf: ConfOption = None,
) -> None:
    """Show a key's state, timers and held events."""
    with errors_as_messages():
        state = open_state(place, master, pairs(conf, "--conf"))
        found = _found(state, key, _job(job, pairs(param, "-p"), state))
        if found.is_empty and not found.hidden:
            print(f"{place} has no state for the key {key!r}", file=sys.stderr)
            raise typer.Exit(1)
        if as_json:
            print(json.dumps(found.to_json(), indent=2))
        else:
            _print_key(found, state)


def _print_key(found: KeyState, state: StoredState) -> None:
    current = state.clock["watermark"]["current"]
    watermark = "none" if current is None else time_text(current)
    batch = "no batch" if state.batch is None else f"batch {state.batch}"
    print(f"{found.key!r} in job {state.job}, {batch}, watermark {watermark}")
    width = max(map(len, found.state), default=0)
    for name, each in found.state.items():
        notes = [each.type] if each.type else []
        notes += [f"timer {each.next_timer.isoformat()}"] if each.next_timer else []
        notes += [f"expires {each.expires.isoformat()}"] if each.expires else []
        print(f"  {name:<{width}}  {each.text}" + (f"  ({', '.join(notes)})" if notes else ""))
    for time, tag in found.timers:
        print(f"  timer {time.isoformat()}{f' {tag!r}' if tag else ''}")
    for source, events in found.held.items():
        for time, value in events:
            print(f"  held from {source}: {time.isoformat()} {value}")
    for name in found.hidden:
        print(f"  {name}: stored for whole key groups. To see it, name the job: --job TARGET")


@state_app.command("history", epilog="Example: amadou state history state/ news")
def history(
    checkpoint: PlaceArgument,
    key: KeyArgument,
    as_json: JsonOption = False,
    job: JobOption = None,
    param: ParamOption = None,
    master: MasterOption = None,
    conf: ConfOption = None,
) -> None:
    """Show how a key's state changed in the batches that Spark retains, a hundred at most."""
    with errors_as_messages():
        state = open_state(checkpoint, master, pairs(conf, "--conf"))
        if isinstance(state, Savepoint):
            raise typer.BadParameter("a savepoint has no history: use the checkpoint", param_hint="PLACE")
        loaded = _job(job, pairs(param, "-p"), state)
        for name in keys_named(key):
            versions = [
                (batch, key_state(name, blocks, state.structures, loaded)) for batch, blocks in state.history(name)
            ]
            if any(not version.is_empty or version.hidden for _, version in versions):
                _print_history(name, versions, as_json=as_json)
                return
        print(f"{checkpoint} has no state for the key {key!r} in the retained batches", file=sys.stderr)
        raise typer.Exit(1)


def _print_history(key: Key, versions: list[tuple[int, KeyState]], *, as_json: bool) -> None:
    before: KeyState | None = None
    if not as_json:
        print(f"{key!r}")
    for batch, version in versions:
        changes = _changes(before, version)
        if changes and as_json:
            print(json.dumps({"batch": batch, **version.to_json()}))
        elif changes:
            print(f"batch {batch}{' (the oldest that is retained)' if before is None else ''}")
            print("".join(f"  {change}\n" for change in changes), end="")
        before = version


def _changes(before: KeyState | None, after: KeyState) -> list[str]:
    """Return what has changed, as lines with ``+``, ``-`` and ``~``."""
    old = {} if before is None else before.state
    lines = [f"+ {name} {each.text}" for name, each in after.state.items() if name not in old]
    lines += [f"- {name} {each.text}" for name, each in old.items() if name not in after.state]
    lines += [
        f"~ {name} {old[name].text} → {each.text}"
        for name, each in after.state.items()
        if name in old and each.text != old[name].text
    ]
    timers = set() if before is None else set(before.timers)
    for sign, changed in (("+", set(after.timers) - timers), ("-", timers - set(after.timers))):
        lines += [f"{sign} timer {time.isoformat()}{f' {tag!r}' if tag else ''}" for time, tag in sorted(changed)]
    held = {} if before is None else before.held
    for source in {**held, **after.held}:
        counts = [len(of.get(source, [])) for of in (held, after.held)]
        if counts[0] != counts[1]:
            lines.append(f"~ held from {source}: {counts[0]} → {counts[1]} events")
    return lines


@state_app.command("export", epilog="Example: amadou state export savepoints/today state.jsonl")
def export(
    place: PlaceArgument,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The new file: .jsonl, or .parquet.")],
    key: Annotated[list[str] | None, typer.Option(metavar="KEY", help="Only this key. Can be repeated.")] = None,
    prefix: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Only keys that are strings and begin with this text.")
    ] = None,
    spec: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Only this state. Can be repeated.")] = None,
    job: JobOption = None,
    param: ParamOption = None,
    master: MasterOption = None,
    conf: ConfOption = None,
) -> None:
    """Write state to a file: a row for each key and spec, and a row for each key's timers."""
    with errors_as_messages():
        state = open_state(place, master, pairs(conf, "--conf"))
        loaded = _job(job, pairs(param, "-p"), state)
        if key is None:
            blocks: Iterator[Block] = state.blocks()
        else:
            blocks = (block for text in key for name in keys_named(text) for block in state.find(name))
        rows = rows_of((_by_subject(block, loaded, place) for block in blocks), state.structures)
        rows = (row for row in rows if _begins(row["key"], prefix) and (not spec or row.get("spec") in spec))
        with writing(file) as write:
            number = write(rows)
    print(f"{file}: {number:,} rows")


def _by_subject(block: Block, job: Job | None, place: str) -> Block:
    if not block.group_states:
        return block
    if job is None:
        names = ", ".join(block.group_states)
        raise LoadError(place, f"the state of {names} is stored for whole key groups: name the job with --job TARGET")
    return by_subject(block, components_of(job), place)


@state_app.command("import", epilog="Example: amadou state import mended.jsonl mended --into savepoints/today")
def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file with rows, as export writes it.")],
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="New directory for the savepoint.")],
    into: Annotated[
        Path | None,
        typer.Option(metavar="SAVEPOINT", help="The savepoint that the rows change. It stays as it is."),
    ] = None,
    job: Annotated[
        str | None, typer.Option(metavar="TARGET", help="The job. Needed without --into: the savepoint is then new.")
    ] = None,
    watermark: Annotated[
        str | None, typer.Option(metavar="TIME", help="The watermark, in ISO format. Default: that of the savepoint.")
    ] = None,
    param: ParamOption = None,
) -> None:
    """Write a savepoint with the state in a file: to seed a job from history, or to mend entries of a savepoint. A row
    replaces the state of its key and spec; a row with the value null removes it.
    """
    if into is None and job is None:
        raise typer.BadParameter("name the savepoint to change with --into, or the job with --job")
    try:
        time = None if watermark is None else datetime.fromisoformat(watermark)
    except ValueError as error:
        raise typer.BadParameter(f"{watermark!r} is not a time in ISO format", param_hint="--watermark") from error
    if time is not None and time.tzinfo is None:
        raise typer.BadParameter(f"{watermark!r} has no time zone", param_hint="--watermark")
    with errors_as_messages():
        base = None if into is None else Savepoint(into)
        params = pairs(param, "-p")
        loaded = None if job is None else load_job(job).with_params(params, connectors=False)
        if base is not None and loaded is not None and loaded.name != base.job:
            raise LoadError(str(job), f"the savepoint belongs to the job {base.job!r}, not to {loaded.name!r}")
        try:
            manifest = Importer(base, loaded).write(rows_in(file), directory, time)
        except RowError as error:
            raise LoadError(str(file), str(error)) from error
    print(f"{directory}: {manifest.keys:,} keys, {manifest.timers:,} timers")
