"""What a job's state is made of, as plain data that is kept with it, and whether another job can read that state.

A job is described by the structure of each of its state specs (`StateSpec.structure`). What is kept is all structures
that a spec has had, since what was not touched for long is still stored as older code left it.
"""

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import attrs

from amadou import Job

Structure: TypeAlias = dict[str, Any]
Known: TypeAlias = dict[str, list[Structure]]
"""The structures that each spec has had, by its name."""

_LEAVES: Final = frozenset(
    {"str", "int", "float", "bool", "bytes", "None", "datetime", "date", "timedelta", "Decimal", "UUID"}
)
_BARE: Final = frozenset({"list", "dict", "tuple", "set", "frozenset"})
_WIDER: Final = {"int": "float"}


def described(job: Job) -> dict[str, Structure]:
    """The structure of each state spec of a job."""
    return {name: spec.structure() for name, spec in job.specs.items()}


def with_structures(known: Mapping[str, list[Structure]], now: Mapping[str, Structure]) -> Known:
    """What is known, and what is now."""
    added = {name: structure for name, structure in now.items() if structure not in known.get(name, ())}
    return {**known, **{name: [*known.get(name, ()), structure] for name, structure in added.items()}}


def state_problem(job: str, known: Mapping[str, list[Structure]], now: Mapping[str, Structure]) -> str | None:
    """Why a job cannot take state over, and what to do; `None` where it can.

    :param job: its name
    :param known: what `with_structures` gave for the jobs that left the state
    """
    found = misfits(known, now)
    if not found:
        return None
    return (
        f"the state of {job!r} no longer fits its specs: {'; '.join(found)}. "
        "Give a new field a default; or the spec its old type back, version= and migrate=, or another name"
    )


def misfits(known: Mapping[str, list[Structure]], now: Mapping[str, Structure]) -> list[str]:
    """Why a job cannot read state, in a sentence for each spec; empty where it can."""
    found = []
    for name, structure in now.items():
        told = [_misfit(name, before, structure) for before in reversed(known.get(name, ()))]
        found += list(filter(None, told))[:1]
    return found


def _misfit(name: str, before: Structure, now: Structure) -> str:
    """Why a spec cannot read what is stored with one of its structures; empty where it can."""
    if before["kind"] != now["kind"] or before["version"] > now["version"]:
        return _told(name, before, now, [])
    problems = [
        f"{setting} was {before['settings'].get(setting)} and is now {now['settings'].get(setting)}"
        for setting in {**before.get("settings", {}), **now.get("settings", {})}
        if before["settings"].get(setting) != now["settings"].get(setting)
    ]
    may_migrate = before["version"] < now["version"]
    if not may_migrate:
        problems += _aggregate_problems(before.get("aggregate"), now.get("aggregate"))
    kept, keeps = before.get("keeps"), now.get("keeps")
    if kept != keeps and not (may_migrate and "results" not in (kept, keeps)):
        problems.append(f"windows that overlap or grow kept {kept} of their parts, and keep {keeps} now")
    for part, structure in now.get("parts", {}).items():
        if part == "key":
            problems += [] if _is_same_key(before["parts"][part], structure) else ["its keys would not be found"]
        elif not may_migrate:
            problems += _Reading(before["parts"][part]["classes"], structure["classes"]).problems(
                before["parts"][part]["is"], structure["is"], ""
            )
    return _told(name, before, now, problems) if problems else ""


def _told(name: str, before: Structure, now: Structure, problems: list[str]) -> str:
    was, is_now = _shown(before), _shown(now)
    change = f"{name} was {was} and is now {is_now}" if was != is_now else f"{name} ({was})"
    why = ", ".join(dict.fromkeys(filter(None, problems)))
    return f"{change}: {why}" if why else change


def _shown(structure: Structure) -> str:
    kind, version = structure["kind"], f" version {structure['version']}" if structure["version"] else ""
    if "shown" in structure:
        return f"{kind} {structure['shown']}{version}"
    told = [f"{name}={setting}" for name, setting in structure.get("settings", {}).items()]
    told += [str(structure["aggregate"])] if "aggregate" in structure else []
    return f"{kind} {kind}({', '.join(told)}){version}"


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
    return [f"the aggregate{name} was {was} and is now {is_now}"]


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
                found.append(f"{new}.{name} is new and has no default")
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
