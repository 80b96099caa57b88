"""What a job's state is made of, as plain data that is kept with it, and whether another job can read that state.

A job is described by the structure of each of its state specs (`StateSpec.structure`). What is kept is all structures
that a spec has had, since what was not touched for long is still stored as older code left it.
"""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, Final, Literal, TypeAlias

import attrs

from amadou import Job
from amadou.errors import StateDecodeError

Structure: TypeAlias = dict[str, Any]
Known: TypeAlias = dict[str, list[Structure]]
"""The structures that each spec has had, by its name."""

_LEAVES: Final = frozenset(
    {"str", "int", "float", "bool", "bytes", "None", "datetime", "date", "timedelta", "Decimal", "UUID"}
)
_BARE: Final = frozenset({"list", "dict", "tuple", "set", "frozenset"})
_WIDER: Final = {"int": "float"}
_IS_NEW: Final = " is new and has no default"
_THE_AGGREGATE: Final = "the aggregate"
_RESEMBLES: Final = 0.75
"""How near a misspelt name is to the one that is meant, for `difflib`."""


def described(job: Job) -> dict[str, Structure]:
    """The structure of each state spec of a job."""
    return {name: spec.structure() for name, spec in job.specs.items()}


def with_structures(known: Mapping[str, list[Structure]], now: Mapping[str, Structure]) -> Known:
    """What is known, and what is now."""
    added = {name: structure for name, structure in now.items() if structure not in known.get(name, ())}
    return {**known, **{name: [*known.get(name, ()), structure] for name, structure in added.items()}}


def state_problem(job: Job, known: Mapping[str, list[Structure]], now: Mapping[str, Structure]) -> str | None:
    """Why a job cannot take state over, and what to do; `None` where it can.

    :param known: what `with_structures` gave for the jobs that left the state
    :param now: the job's own structures
    """
    found = misfits(known, now)
    if not found:
        return _misspelt(job, known, now)
    message = f"the state of {job.name!r} no longer fits its specs: {'; '.join(misfit.text for misfit in found)}"
    return ". ".join([message, *(f"{misfit.advice[0].upper()}{misfit.advice[1:]}" for misfit in found)])


def _misspelt(job: Job, known: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    """Tell of a retired name that was never known, and resembles one that is gone. Others are left alone: a name may
    be that of what was made at run time, or of a spec of another checkpoint.
    """
    gone = sorted(known.keys() - now.keys() - job.retired.keys())
    for name in sorted(job.retired.keys() - known.keys()):
        for meant in get_close_matches(name, gone, n=1, cutoff=_RESEMBLES):
            return (
                f"retired names {name!r}, of which nothing is known, and not {meant!r}, which {job.name!r} no longer "
                f"declares: correct the name, or retire {meant!r}, too"
            )
    return None


def misfits(known: Mapping[str, list[Structure]], now: Mapping[str, Structure]) -> list["Misfit"]:
    """The specs that cannot read what is stored."""
    found = []
    for name, structure in now.items():
        version = max((before["version"] for before in known.get(name, ())), default=0) + 1
        all_ = [_misfit(name, before, structure, version) for before in reversed(known.get(name, ()))]
        found += list(filter(None, all_))[:1]
    return found


@attrs.frozen
class Misfit:
    """A spec that cannot read what was stored with one of its structures.

    :param why: what has changed; empty where there is no more to say than that it is another type
    :param cure: what would let it be read, besides the spec as it was: the version that it had, a migration, also a
        default for what is new or also another name for an aggregate in a mapping; `""` where nothing would
    :param version: the next version of the spec
    """

    name: str
    before: Structure
    now: Structure
    why: str
    cure: Literal["", "version", "migrate", "default", "name"]
    version: int

    @property
    def text(self) -> str:
        """What has changed, in a sentence."""
        was, is_now = _shown(self.before), _shown(self.now)
        change = f"{self.name} was {was} and is now {is_now}" if was != is_now else f"{self.name} ({was})"
        return f"{change}: {self.why}" if self.why else change

    @property
    def advice(self) -> str:
        """What to do about a spec that the handler declares."""
        cured, retired = self._cured(self.name), f'Job(retired={{{self.name!r}: "drop"}})'
        if cured:
            return f"{cured}; or change {self.name} back"
        if "noun" not in self.before:
            return f"change {self.name} back; or give the new state another name, and remove the old: {retired}"
        new = self.now.get("noun", "state")
        return (
            f"change {self.name} back; or give the new {new} another name, and leave {self.name} as it was, without "
            f"adding to it, until nothing of it is open, or give up what is: {retired}"
        )

    def decode_error(self, key: Any) -> StateDecodeError:
        """The error for a component that was made at run time.

        :param key: a subject that has something open
        """
        cured, it = self._cured("it"), f"the {self.before.get('noun', 'component')} {self.name!r}"
        advice = f"make {it} as it was until nothing of it is open, and the new one under another name"
        if "noun" not in self.before:
            advice = f"make {self.name!r} as it was, and the new one under another name"
        advice = f"{cured}, or {advice}" if cured else f'{advice}; Job(retired={{{self.name!r}: "drop"}}) gives it up'
        stored, expected = _Text(_shown(self.before)), _Text(_shown(self.now))
        return StateDecodeError(stored, expected, self.why, self.name, key, advice)

    def _cured(self, it: str) -> str:
        if self.cure == "version":
            return f"give {it} version={self.before['version']} and its migrate= again, since newer code has stored it"
        migrated = f"give {it} version={self.version} and migrate="
        if self.cure == "default":
            return f"give the new field a default; or {migrated}"
        if self.cure == "name":
            return f"{migrated}; or give the changed aggregate another name in the mapping"
        return migrated if self.cure else ""


@attrs.frozen(repr=False)
class _Text:
    """A text that is shown as it is."""

    text: str

    def __repr__(self) -> str:
        return self.text


def not_a_component(now: Structure, name: str, key: Any) -> StateDecodeError:
    """The error for a component that was made under the name of a state spec that is no longer declared.

    :param key: a subject that has state under the name
    """
    advice = f"give the {now.get('noun', 'component')} another name"
    stored = _Text("the state of a spec that is not a component")
    return StateDecodeError(stored, _Text(_shown(now)), "", name, key, advice)


def _misfit(name: str, before: Structure, now: Structure, version: int) -> Misfit | None:
    """Why a spec cannot read what is stored with one of its structures; `None` where it can.

    :param version: the spec's next version
    """
    if before["kind"] != now["kind"]:
        return Misfit(name, before, now, "", "", version)
    if before["version"] > now["version"]:
        return Misfit(name, before, now, "", "version", version)
    lasting = _lasting_problems(before, now)
    kept, keeps = before.get("keeps"), now.get("keeps")
    parts = f"windows that overlap or grow kept {kept} of their parts, and keep {keeps} now"
    changed = [] if kept == keeps else [parts]
    if "results" in (kept, keeps):
        lasting += changed
    if lasting:
        return Misfit(name, before, now, ", ".join(lasting), "", version)
    if before["version"] < now["version"]:
        return None
    fields = _value_problems(before, now)
    aggregates = _aggregate_problems(before.get("aggregate"), now.get("aggregate"))
    if not fields and not changed and not aggregates:
        return None
    why = ", ".join(dict.fromkeys(filter(None, [*aggregates, *changed, *fields])))
    cure: Literal["migrate", "default", "name"] = "migrate"
    if fields and all(field.endswith(_IS_NEW) for field in fields):
        cure = "default"
    if aggregates and not changed and all(f"{_THE_AGGREGATE}[" in problem for problem in aggregates):
        cure = "name"
    return Misfit(name, before, now, why, cure, version)


def _lasting_problems(before: Structure, now: Structure) -> list[str]:
    """What no migration helps against."""
    old, new = before.get("settings", {}), now.get("settings", {})
    found = [
        f"{setting} was {old.get(setting)} and is now {new.get(setting)}"
        for setting in {**old, **new}
        if old.get(setting) != new.get(setting)
    ]
    if "key" in now.get("parts", {}) and not _is_same_key(before["parts"]["key"], now["parts"]["key"]):
        found.append("its keys would not be found")
    return found


def _value_problems(before: Structure, now: Structure) -> list[str]:
    """Why values cannot be read as another type."""
    found = []
    for part, structure in now.get("parts", {}).items():
        if part != "key":
            old = before["parts"][part]
            found += _Reading(old["classes"], structure["classes"]).problems(old["is"], structure["is"], "")
    return found


def _shown(structure: Structure) -> str:
    kind, version = structure["kind"], f" version {structure['version']}" if structure["version"] else ""
    if "shown" in structure:
        return f"{kind} {structure['shown']}{version}"
    details = [f"{name}={setting}" for name, setting in structure.get("settings", {}).items()]
    details += [_shown_aggregate(structure["aggregate"])] if "aggregate" in structure else []
    return f"{kind}({', '.join(details)}){version}"


def _shown_aggregate(structure: Any) -> str:
    if not isinstance(structure, dict):
        return str(structure)
    return f"{{{', '.join(f'{name!r}: {_shown_aggregate(part)}' for name, part in structure.items())}}}"


def _aggregate_problems(before: Any, now: Any, name: str = "") -> list[str]:
    """Why accumulators cannot be read by another aggregate. Names of a mapping may come and go."""
    if isinstance(before, dict) and isinstance(now, dict):
        return [
            problem
            for inner in now
            if inner in before
            for problem in _aggregate_problems(before[inner], now[inner], f"{name}[{inner!r}]")
        ]
    if before == now:
        return []
    was, is_now = ("several by name" if isinstance(of, dict) else of for of in (before, now))
    return [f"{_THE_AGGREGATE}{name} was {was} and is now {is_now}"]


def _is_same_key(before: Structure, now: Structure) -> bool:
    """Whether keys of a map are found that older code stored: they are looked up as they are stored."""
    old, new = before["is"], now["is"]
    if before == now or (isinstance(old, str) and _WIDER.get(old) == new):
        return True
    members = [{kind for _, kind in of["union"] if isinstance(kind, str)} for of in (old, new) if _is(of, "union")]
    sizes = [len(of["union"]) for of in (old, new) if _is(of, "union")]
    return len(members) == 2 and members[0] <= members[1] <= _LEAVES and sizes == list(map(len, members))


def _is(description: Any, kind: str) -> bool:
    return isinstance(description, dict) and kind in description


@attrs.frozen
class _Reading:
    """Looks whether what was stored as one type can be read as another.

    :param old: the classes of the one
    :param new: those of the other
    """

    old: Mapping[str, Any]
    new: Mapping[str, Any]
    _seen: set[tuple[str, str]] = attrs.field(factory=set, init=False)

    def problems(self, old: Any, new: Any, where: str) -> list[str]:
        """What stands in the way; an empty text where there is no more to say than that the whole type changed.

        :param where: which field it is, if it is one
        """
        if _is(old, "union") or _is(new, "union"):
            return self._union_problems(old, new, where)
        changed = [f"{where} was {self._text(old)} and is now {self._text(new)}" if where else ""]
        if isinstance(old, str) or isinstance(new, str):
            fits = old == new or _WIDER.get(str(old)) == new or (new == "Any" and str(old) in _BARE)
            return [] if fits or (_is(old, "literal") and {kind for kind, _ in old["literal"]} == {new}) else changed
        if old.keys() != new.keys():
            return changed
        if "class" in old:
            return self._class_problems(old["class"], new["class"])
        if "literal" in old or "enum" in old:
            return self._value_problems(old, new, where)
        if "dict" in old:
            if self._is_packed(old["dict"][0]) != self._is_packed(new["dict"][0]):
                return changed
            pairs = list(zip(old["dict"], new["dict"], strict=True))
        elif "fixed" in old:
            if len(old["fixed"]) != len(new["fixed"]):
                return changed
            pairs = list(zip(old["fixed"], new["fixed"], strict=True))
        else:
            (kind,) = old
            pairs = [(old[kind], new[kind])]
        found = [problem for before, now in pairs for problem in self.problems(before, now, "")]
        return list(dict.fromkeys(problem or changed[0] for problem in found))

    def _class_problems(self, old: str, new: str) -> list[str]:
        if (old, new) in self._seen:
            return []
        self._seen.add((old, new))
        fields, found = self.old[old], []
        for name, (kind, is_needed) in self.new[new].items():
            if name in fields:
                found += self.problems(fields[name][0], kind, f"{new}.{name}")
            elif is_needed:
                found.append(f"{new}.{name}{_IS_NEW}")
        return found

    def _value_problems(self, old: Any, new: Any, where: str) -> list[str]:
        """The values of an enum or a `Literal`, of which none may go."""
        kind = "values" if "enum" in old else "literal"
        gone = [text for of, text in old[kind] if [of, text] not in new[kind]]
        if not gone or new.get("open"):
            return []
        return [f"{where or new.get('enum') or 'the Literal'} no longer takes {', '.join(gone)}"]

    def _union_problems(self, old: Any, new: Any, where: str) -> list[str]:
        before, now = _Members.of(old), _Members.of(new)
        changed = [f"{where} was {self._text(old)} and is now {self._text(new)}" if where else ""]
        for leaf in before.leaves:
            if leaf not in now.leaves and _WIDER.get(leaf) not in now.leaves:
                return changed
        for value in before.literals:
            if value not in now.literals and value[0] not in now.leaves:
                return changed
        found = []
        for tag, kind in before.others:
            target = self._target(before, tag, kind, now)
            found += changed if target is None else self.problems(kind, target, where)
        return found

    def _target(self, before: "_Members", tag: str, kind: Any, now: "_Members") -> Any:
        """The member of a union that reads another's value; `None` where none does, or the wrong one would."""
        if before.is_tagged:  # it is found by its tag
            return dict(now.others).get(tag) if now.is_tagged else None
        if not now.is_tagged:
            return now.others[0][1] if now.others else None
        if _is(kind, "enum") and any(of in now.leaves for of, _ in kind["values"]):
            return None
        has_same = tag in dict(now.others)
        for other, member in now.others:  # the first one that can takes it
            if other == tag:
                return member
            if not self._cannot_read(kind, member):
                return None if has_same or self.problems(kind, member, "") else member
        return None

    def _cannot_read(self, kind: Any, member: Any) -> bool:
        """Whether no value of one kind is taken for another's, whatever is in it."""
        if _is(kind, "class") and _is(member, "class"):
            return any(
                is_needed and name not in self.old[kind["class"]]
                for name, (_, is_needed) in self.new[member["class"]].items()
            )
        return _form(kind) != _form(member)

    def _is_packed(self, key: Any) -> bool:
        return key not in _LEAVES if isinstance(key, str) else not _is(key, "enum")

    def _text(self, description: Any) -> str:
        """A type for people."""
        if isinstance(description, str):
            return description
        if "union" in description:
            return " | ".join(self._text(member) for _, member in description["union"])
        if "literal" in description:
            return f"Literal[{', '.join(text for _, text in description['literal'])}]"
        for name in ("class", "enum"):
            if name in description:
                return str(description[name])
        ((kind, parts),) = description.items()
        if kind in ("dict", "fixed"):
            return f"{'dict' if kind == 'dict' else 'tuple'}[{', '.join(map(self._text, parts))}]"
        return f"{kind}[{self._text(parts)}{', ...' if kind == 'tuple' else ''}]"


def _form(description: Any) -> str:
    """What a value of a type looks like where it is stored."""
    if isinstance(description, str):
        return "packed"
    if "class" in description or "dict" in description:
        return "mapping"
    return "value" if "enum" in description else "sequence"


@attrs.frozen
class _Members:
    """The members of a union; of another type itself. See `_structured._Members`."""

    leaves: list[str]
    literals: list[Any]
    others: list[tuple[str, Any]]

    @classmethod
    def of(cls, description: Any) -> "_Members":
        name = next((description[of] for of in ("class", "enum") if _is(description, of)), "")
        members = description["union"] if _is(description, "union") else [[name, description]]
        leaves = [kind for _, kind in members if isinstance(kind, str) and kind in _LEAVES]
        literals = [value for _, kind in members if _is(kind, "literal") for value in kind["literal"]]
        others = [(tag, kind) for tag, kind in members if kind not in leaves and not _is(kind, "literal")]
        return cls(leaves, literals, others)

    @property
    def is_tagged(self) -> bool:
        return len(self.others) > 1 or bool(self.literals) or any(leaf != "None" for leaf in self.leaves)
