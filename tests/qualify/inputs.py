"""Draws inputs: a change of an artefact, a key or a request, and a call that reads it."""

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import PurePosixPath
from typing import TypeAlias
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
from tests.qualify.artefacts import (
    KEYS,
    OWNERS,
    PATHS,
    Artefacts,
    Input,
    checkpoint_calls,
    key_calls,
    letter_calls,
    row_calls,
    savepoint_calls,
    starts,
)
from tests.qualify.crafted import (
    Draw,
    changed,
    changed_json,
    crafted_changelog,
    crafted_reference,
    crafted_state,
    damaged,
    hadoop_checksums,
    odd_value,
    sealed,
    sealed_with,
)


def manifests(draw: Draw, artefacts: Artefacts) -> Input:
    name = draw.choice(artefacts.named("savepoint.json"))
    text = changed_json(draw, artefacts.files[name])
    content = text if draw.happens(0.05) else sealed(text)
    return _of_savepoint(draw, str(PurePosixPath(name).parent), {name: _bytes(content)})


def blocks(draw: Draw, artefacts: Artefacts) -> Input:
    name = draw.choice(artefacts.named("*.blocks"))
    return _with_right_hash(draw, artefacts, name, crafted_state(draw, artefacts.files[name]))


def references(draw: Draw, artefacts: Artefacts) -> Input:
    name = draw.choice(artefacts.named("kinds/references/*", "stages/totals/references/*"))
    given = _with_right_hash(draw, artefacts, name, crafted_reference(draw, artefacts.files[name]))
    return Input(draw.choice(starts(PurePosixPath(name).parts[0])), given.files)


def savepoint_files(draw: Draw, artefacts: Artefacts) -> Input:
    root = draw.choice(list(KEYS))
    name = draw.choice([name for name in artefacts.files if name.startswith(f"{root}/")])
    content = damaged(draw, artefacts.files[name])
    if draw.happens(0.5) and not name.endswith(".json"):
        return _with_right_hash(draw, artefacts, name, content)
    draw.note(name)
    return _of_savepoint(draw, _place(artefacts, name), {name: None if draw.happens(0.05) else content})


def _place(artefacts: Artefacts, name: str) -> str:
    """Return the directory of the manifest that lists a file of a savepoint."""
    return next(str(each) for each in PurePosixPath(name).parents if f"{each}/savepoint.json" in artefacts.files)


def _of_savepoint(draw: Draw, place: str, files: Mapping[str, bytes | None]) -> Input:
    """Return an input with other files of a savepoint, or of one of its stages."""
    name, _, stage = place.partition("/stages/")
    return Input(draw.choice(savepoint_calls(name, stage or ("totals" if name == "stages" else ""))), files)


def _with_right_hash(draw: Draw, artefacts: Artefacts, name: str, content: bytes) -> Input:
    """Return an input with another file of a savepoint, whose manifest has the right size and hash of the file."""
    place = _place(artefacts, name)
    manifest = f"{place}/savepoint.json"
    fitting = sealed_with(artefacts.files[manifest], name.removeprefix(f"{place}/"), content)
    draw.note(name)
    return _of_savepoint(draw, place, {name: content, manifest: fitting.encode()})


def logs(draw: Draw, artefacts: Artefacts) -> Input:
    """Changes Spark's changelogs: the segments and heads of logs, and ranges on the store `groups`."""
    root = draw.choice(("groups", "log", "by-key", "by-key"))
    changelogs = artefacts.named(f"{root}/state/0/*/*.changelog")
    last = max(int(PurePosixPath(name).stem) for name in changelogs)
    name = draw.choice([name for name in changelogs if PurePosixPath(name).stem == str(last)])
    content = crafted_changelog(draw, artefacts.files[name], is_log=root != "groups")
    return _of_checkpoint(draw, artefacts, name, content)


_READ = ("amadou.json", "run.json", "clock/*", "offsets/*", "commits/*", "history/*", "state/0/*/*", "state/0/*/SSTs/*")
"""Files of checkpoints that are read without Spark."""


def checkpoint_files(draw: Draw, artefacts: Artefacts) -> Input:
    root = draw.choice(list(OWNERS))
    name = draw.choice(artefacts.named(f"{root}/{draw.choice(_READ)}") or [f"{root}/amadou.json"])
    content = artefacts.files[name]
    lines = [content] if name.endswith(".json") else content.split(b"\n")
    at = draw.randrange(len(lines))
    if "/state/" not in name and lines[at][:1] in (b"{", b"[") and draw.happens(0.8):
        lines[at] = _bytes(changed_json(draw, lines[at]))
        return _of_checkpoint(draw, artefacts, name, b"\n".join(lines))
    return _of_checkpoint(draw, artefacts, name, damaged(draw, content))


def _of_checkpoint(draw: Draw, artefacts: Artefacts, name: str, content: bytes) -> Input:
    """Return an input with another file of a checkpoint, with Hadoop's checksums of it if there are any."""
    path = PurePosixPath(name)
    checksums = str(path.with_name(f".{path.name}.crc"))
    files = {checksums: hadoop_checksums(content)} if checksums in artefacts.files else {}
    draw.note(name)
    return Input(draw.choice(checkpoint_calls(path.parts[0], artefacts)), {name: content, **files})


def rows(draw: Draw, artefacts: Artefacts) -> Input:
    number = draw.randrange(1, 4)
    if draw.happens(0.3):
        content = _changed_parquet(draw, artefacts, number)
        return Input(draw.choice(row_calls("rows.parquet")), {"rows.parquet": content})
    lines = [draw.choice(artefacts.files["rows.jsonl"].splitlines()) for _ in range(number)]
    return Input(draw.choice(row_calls("rows.jsonl")), {"rows.jsonl": _changed_lines(draw, lines)})


def letters(draw: Draw, artefacts: Artefacts) -> Input:
    lines = artefacts.files["letters.jsonl"].splitlines()
    return Input(draw.choice(letter_calls()), {"letters.jsonl": _changed_lines(draw, lines)})


def _changed_lines(draw: Draw, lines: list[bytes]) -> bytes:
    if draw.happens(0.2):
        return damaged(draw, b"\n".join(lines))
    at = draw.randrange(len(lines))
    return b"\n".join([*lines[:at], _bytes(changed_json(draw, lines[at])), *lines[at + 1 :]])


def _changed_parquet(draw: Draw, artefacts: Artefacts, number: int) -> bytes:
    whole = artefacts.files["rows.parquet"]
    if draw.happens(0.01):
        draw.note("a key of 1 MB in each of 300 rows")
        return parquet_bomb()
    if draw.happens(0.5):
        table = pq.read_table(pa.BufferReader(whole)).to_pylist()
        found = changed(draw, [draw.choice(table) for _ in range(number)], lambda: odd_value(draw), "rows")
        buffer = pa.BufferOutputStream()
        try:
            pq.write_table(pa.Table.from_pylist(found), buffer)
            return bytes(buffer.getvalue())
        except Exception:  # pyarrow raises many kinds of errors if there is no such table
            pass
    return damaged(draw, whole)


@cache
def parquet_bomb() -> bytes:
    """Return a small file with 300 MB of text."""
    buffer = pa.BufferOutputStream()
    text = pa.DictionaryArray.from_arrays(pa.array([0] * 300, pa.int32()), pa.array(["x" * 1_000_000]))
    pq.write_table(pa.table({"key": text, "spec": ["counted"] * 300, "value": ["1"] * 300}), buffer)
    return bytes(buffer.getvalue())


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogatepass")


_KEYS = (
    *("a", "'a'", "1", "-7", "b'\\x00\\xff'", "('a', 1)", "True", "None", "...", "1.5", "nan", "1e999", "1e400j", "()"),
    *("{[]:1}", "{**1}", "{1, 2}", "{1: 2}", "[1]", "('a', [])", "((),)", "'\\ud800'", "\ud800", "\udcff", "e\u0301"),
    *("9" * 4_000, "9" * 5_000, "0x" + "f" * 5_000, "1_0", "-" * 3_000 + "1", "1+1j", "+".join("1" * 3_000), "not 1"),
    *("(1," * 600, "(" * 5_000, "(" * 90 + "1," + ")" * 90, "(1," * 80 + ")" * 80, "-(" * 150, "[" * 150 + "]" * 150),
    *("'\\N{DIGIT ONE}'", "'\\N{x}'", "'\\x'", "f'{1}'", "b'é'", "\0", "'\\0'", "'\0'", "a\nb", " 1", "\t1", "1 ", "#"),
    *("\\", "lambda: 0", "x" * 100_000, "'" + "x" * 100_000 + "'", '"""', '"""+str(1)+"""', "é", "-", "--", "--json"),
    *("a/b", "../a", "/etc/passwd", "a" * 300 + ".py", "1" + "0" * 30, "'a' 'b'", "b'a' 'b'", "\u202e", "\ufeff1"),
)
_PARTS = ("(", ")", ",", "'", "\\", "[]", "{", "}", ":", "0", "\0", "\n", "\ud800", "*", "b", " ")


def _key(draw: Draw) -> str:
    """Return a text in the place of a key."""
    text = draw.choice(_KEYS)
    if draw.happens(0.5):
        at = draw.randrange(len(text) + 1)
        text = text[:at] + draw.choice(_PARTS) + text[at + draw.randrange(2) :]
    return draw.choice((text, text, f"({text},)", f"({text}, {draw.choice(_KEYS)})", f"'{text}'"))


def keys(draw: Draw, artefacts: Artefacts) -> Input:
    return Input(draw.choice(key_calls(_key(draw))))


_PATHS = (
    *PATHS,
    *("/static/", "/static/../_api.py", "/nothing", "//", "/letters//test", "/%2f", f"/letters/{'%41' * 3_000}"),
    *("/static/%2e%2e/_api.py", "/static/%00", "/letters/%00", "/letters/%ff"),
)
_NUMBERS = ("0", "1", "-1", "9" * 18, "9" * 19, "9" * 5_000, "²", "٣", "1e3", "1.0", "", " 1", "0x1", "NaN")


def requests(draw: Draw, artefacts: Artefacts) -> Input:
    path = draw.choice(_PATHS)
    if draw.happens(0.2):
        path += draw.choice(("/", "%00", "%ff", "?", "#", "/..", "%0d%0a", "é", " "))
    pairs = []
    for _ in range(draw.choice((0, 1, 1, 1, 2, 3))):
        name = draw.choice(("key", "key", "stage", "limit", "before", "x", ""))
        text = draw.choice(_NUMBERS) if name in ("limit", "before") else _key(draw)
        odd = draw.choice(("%", "%ff", "%zz", "a&b", "="))
        value = odd if draw.happens(0.1) else quote(text, errors="surrogatepass")
        pairs.append(f"{name}={value}" if draw.happens(0.95) else name)
    return Input(artefacts.request(quote(path, safe="/%?#"), "&".join(pairs)))


Reader: TypeAlias = Callable[[Draw, Artefacts], Input]
_READERS: Mapping[Reader, int] = {
    manifests: 16,
    blocks: 14,
    references: 5,
    savepoint_files: 8,
    logs: 10,
    checkpoint_files: 10,
    rows: 13,
    letters: 10,
    keys: 14,
    requests: 10,
}
"""The readers, with their share of inputs."""
READERS = tuple(reader.__name__ for reader in _READERS)


def drawn(seed: int, number: int, artefacts: Artefacts) -> tuple[str, str, Input]:
    """Return an input, with the name of its reader, and with what is shown of it."""
    draw = Draw(seed, number)
    (reader,) = draw.choices(list(_READERS), [*_READERS.values()])
    given = reader(draw, artefacts)
    return reader.__name__, "\n".join([*draw.notes, given.call.text[:1_000]]), given
