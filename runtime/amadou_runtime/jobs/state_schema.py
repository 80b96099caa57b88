"""Describes the structure of a job's state, and checks that a job can read stored state.

The description is stored with the state, as plain data. For each state spec, the description contains every structure
that the spec has ever had (`StateSpec.structure`), because state that has not been accessed for a long time still has
the structure of the code that stored it.
"""

from collections.abc import Mapping
from collections.abc import Sequence as _Sequence
from difflib import get_close_matches
from typing import Any, Final, Literal, TypeAlias

import attrs

from amadou import Job, ReferenceSpec
from amadou.datatypes import (
    Choice,
    DataType,
    Enumeration,
    Fixed,
    Map,
    Opaque,
    Packed,
    Record,
    Scalar,
    Sequence,
    Union,
    datatype_in,
    shown_type,
)
from amadou.errors import StateDecodeError
from amadou_runtime.formats.documents import structured

Structure: TypeAlias = dict[str, Any]
Known: TypeAlias = dict[str, list[Structure]]
"""All structures that each spec has had, by spec name."""

_WIDER: Final = {"int": "float"}
_IS_NEW: Final = " is new and has no default"
_THE_AGGREGATE: Final = "the aggregate"
_RESEMBLES: Final = 0.75
"""Minimum similarity between a misspelt name and the intended name, for `difflib`."""


def described(job: Job) -> dict[str, Structure]:
    """Return the structure of each state spec and of each reference of a job."""
    return {name: spec.structure() for name, spec in {**job.specs, **job.references}.items()}


@attrs.frozen
class _Form:
    """The fields of structures that amadou reads. Components can have others."""

    kind: str
    version: int
    noun: str = ""
    shown: str = ""
    source: str = ""
    keeps: str = ""
    settings: Mapping[str, str] = attrs.field(factory=dict)
    aggregate: Any = ""
    parts: Mapping[str, Mapping[str, Any]] = attrs.field(factory=dict)


_FIELDS: Final = frozenset(attrs.fields_dict(_Form))


def check_structures(structures: _Sequence[Structure]) -> None:
    """Check the form of all structures that a spec has had, which may come from somebody else.

    :raises Exception: it is wrong: one of `formats.documents.UNREADABLE`
    """
    if not structures:
        raise ValueError("a spec has no structure")
    for structure in structures:
        found = structured(_Form, {name: structure[name] for name in structure if name in _FIELDS})
        if found.version < 0:
            raise ValueError("the version of a structure is negative")
        if is_of_reference(structure) and not found.source:
            raise ValueError("the structure of a reference has no source")
        _check_aggregate(found.aggregate)
        for part in found.parts.values():
            datatype_in(part)


def _check_aggregate(aggregate: Any) -> None:
    if isinstance(aggregate, dict):
        for part in aggregate.values():
            _check_aggregate(part)
    elif type(aggregate) is not str:
        raise ValueError(f"a name in a structure is not text, but {type(aggregate).__name__}")


def is_of_reference(structure: Structure) -> bool:
    """Return `True` for the structure of a reference, whose entries are not in the state of keys."""
    return bool(structure["kind"] == ReferenceSpec.__name__)


def with_structures(known: Mapping[str, list[Structure]], now: Mapping[str, Structure]) -> Known:
    """Return the known structures plus the current ones. The current names are the last."""
    before = {name: structures for name, structures in known.items() if name not in now}
    current = {
        name: [*known.get(name, ()), *([] if structure in known.get(name, ()) else [structure])]
        for name, structure in now.items()
    }
    return before | current


def state_problem(job: Job, known: Mapping[str, list[Structure]], now: Mapping[str, Structure]) -> str | None:
    """Return an error message, with advice, if a job cannot read stored state; otherwise `None`.

    :param known: the result of `with_structures` for the jobs that stored the state
    :param now: the job's current structures
    """
    found = misfits(known, now)
    if not found:
        return _renamed_reference(job, known, now) or _misspelt(job, known, now)
    message = f"the stored state does not fit the specs of {job.name!r}: {'; '.join(misfit.text for misfit in found)}"
    return ". ".join([message, *(f"{misfit.advice[0].upper()}{misfit.advice[1:]}" for misfit in found)])


def _renamed_reference(job: Job, known: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    """Return an error message if a reference would begin without entries, although its source was last read for a
    reference that the job no longer declares. A table is read again at the start.
    """
    last = {of[-1]["source"]: name for name, of in known.items() if is_of_reference(of[-1])}
    for source, spec in job.reference_sources.items():
        was = last.get(source, spec.name)
        if was not in now and was not in job.retired and source not in job.table_sources:
            return (
                f"the reference {spec.name!r} of {job.name!r} would begin without the entries that its source "
                f"{source!r} has brought, which are stored as {was!r}. To keep them, set name={was!r} on the "
                f'ReferenceSpec. To drop them, set Job(retired={{{was!r}: "drop"}})'
            )
    return None


def _misspelt(job: Job, known: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    """Return an error message if a name in `retired` is probably misspelt: no run declared the name, but it resembles
    a name that the job no longer declares. Other undeclared names are valid: they can belong to components created at
    run time, or to specs in another checkpoint.
    """
    removed = sorted(known.keys() - now.keys() - job.retired.keys())
    for name in sorted(job.retired.keys() - known.keys()):
        for meant in get_close_matches(name, removed, n=1, cutoff=_RESEMBLES):
            return (
                f"retired contains {name!r}, but no earlier run declared this name. The job {job.name!r} no longer "
                f"declares the similar name {meant!r}: correct the name, or also add {meant!r} to retired"
            )
    return None


def misfits(known: Mapping[str, list[Structure]], now: Mapping[str, Structure]) -> list["Misfit"]:
    """Return one misfit for each spec that cannot read its stored state."""
    found = []
    for name, structure in now.items():
        version = max((before["version"] for before in known.get(name, ())), default=0) + 1
        all_ = [_misfit(name, before, structure, version) for before in reversed(known.get(name, ()))]
        all_.append(_returned(name, known.get(name, ()), structure, version))
        found += list(filter(None, all_))[:1]
    return found


@attrs.frozen
class Misfit:
    """A spec that cannot read state stored with one of its earlier structures.

    :param why: the change within the spec's type; empty if the type as a whole has changed
    :param cure: the change that lets the spec read the state, as an alternative to changing the spec back. `"version"`:
        the version and migration of the newer code that stored the state; `"migrate"`: a migration; `"default"`: a
        migration, or a default for the new field; `"name"`: a migration, or a different name for an aggregate in a
        mapping; `"field"`: a migration, or a different name for a field; `""`: none
    :param version: the spec's next version
    """

    name: str
    before: Structure
    now: Structure
    why: str
    cure: Literal["", "version", "migrate", "default", "name", "field"]
    version: int

    @property
    def text(self) -> str:
        """Description of the change."""
        was, is_now = shown_structure(self.before), shown_structure(self.now)
        change = f"{self.name} was {was} and is now {is_now}" if was != is_now else f"{self.name} ({was})"
        return f"{change}: {self.why}" if self.why else change

    @property
    def advice(self) -> str:
        """The advice for a spec that the handler declares."""
        cured, retired = self._cured(self.name), f'Job(retired={{{self.name!r}: "drop"}})'
        if cured:
            return f"{cured}; or change {self.name} back"
        if "noun" not in self.before:
            return f"change {self.name} back; or give the new state a different name and drop the old state: {retired}"
        new = self.now.get("noun", "state")
        return (
            f"change {self.name} back; or give the new {new} a different name. Then either keep {self.name} with its "
            f"old settings, without adding events to it, until it has no open state, or drop its open state: {retired}"
        )

    def decode_error(self, key: Any) -> StateDecodeError:
        """Return the error for a component that was created at run time.

        :param key: the key of a subject with open state
        """
        cured, it = self._cured("it"), f"the {self.before.get('noun', 'component')} {self.name!r}"
        retired = f'Job(retired={{{self.name!r}: "drop"}})'
        new = f"create the new {self.now.get('noun', 'state')} under a different name"
        advice = f"keep creating {it} with its old settings until it has no open state, and {new}"
        if "noun" not in self.before:
            advice = f"keep creating {self.name!r} with its old settings, and {new}"
        advice = f"{cured}, or {advice}" if cured else f"{advice}; or drop the state of {it}: {retired}"
        stored, expected = _Text(shown_structure(self.before)), _Text(shown_structure(self.now))
        return StateDecodeError(stored, expected, self.why, self.name, key, advice)

    def _cured(self, it: str) -> str:
        if self.cure == "version":
            return f"set version={self.before['version']} and migrate= on {it} again (newer code stored the state)"
        migrated = f"set version={self.version} and migrate= on {it}"
        if self.cure == "default":
            return f"give the new field a default; or {migrated}"
        if self.cure == "field":
            return f"{migrated}; or give the field a different name"
        if self.cure == "name":
            return f"{migrated}; or give the changed aggregate a different name in the mapping"
        return migrated if self.cure else ""


@attrs.frozen(repr=False)
class _Text:
    """A string whose `repr` is the string itself."""

    text: str

    def __repr__(self) -> str:
        return self.text


def not_a_component(now: Structure, name: str, key: Any) -> StateDecodeError:
    """Return the error for a component created under the name of a state spec that is no longer declared.

    :param key: the key of a subject that has state under the name
    """
    advice = f"give the {now.get('noun', 'component')} a different name"
    stored = _Text("the state of a spec that is not a component")
    return StateDecodeError(stored, _Text(shown_structure(now)), "", name, key, advice)


def _misfit(name: str, before: Structure, now: Structure, version: int) -> Misfit | None:
    """Return a misfit if a spec cannot read state stored with an earlier structure; otherwise `None`.

    :param version: the spec's next version
    """
    if before["kind"] != now["kind"] or before.get("parts", {}).keys() != now.get("parts", {}).keys():
        return Misfit(name, before, now, "", "", version)
    if before["version"] > now["version"]:
        return Misfit(name, before, now, "", "version", version)
    lasting = _lasting_problems(before, now)
    kept, keeps = before.get("keeps"), now.get("keeps")
    parts = f"windows that overlap or grow stored their parts as {kept} and now store them as {keeps}"
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
    if aggregates and not changed and all(f"{_THE_AGGREGATE}[" in problem for problem in aggregates):
        return Misfit(name, before, now, why, "name", version)
    are_new = bool(fields) and all(field.endswith(_IS_NEW) for field in fields)
    return Misfit(name, before, now, why, "default" if are_new else "migrate", version)


def _returned(name: str, known: _Sequence[Structure], now: Structure, version: int) -> Misfit | None:
    """Return a misfit if a class has a field again that the last code did not have: some stored objects would have the
    field's old value, and others its default.
    """
    if not known or now["version"] > max(before["version"] for before in known):
        return None
    found = []
    for part, structure in now.get("parts", {}).items():
        *earlier, last = (_stored_fields(each, part, now) for each in known)
        for of, fields in structure["classes"].items():
            dropped = {field for each in earlier for field in each.get(of, ())}
            dropped -= last.get(of, dropped)
            found += [f"{of}.{field} was removed, and is there again" for field in fields if field in dropped]
    return Misfit(name, known[-1], now, ", ".join(dict.fromkeys(found)), "field", version) if found else None


def _stored_fields(before: Structure, part: str, now: Structure) -> dict[str, set[str]]:
    """Return the fields of the stored objects that each class of a part reads: those of the class, and those of classes
    with other names in its place.
    """
    if part not in before.get("parts", {}):
        return {}
    old, new = before["parts"][part], now["parts"][part]
    read_as = {(of, of) for of in old["classes"].keys() & new["classes"].keys()}
    if before["version"] == now["version"]:  # what a migration returns has no other fields than those of its class
        read_as |= _Reading().records_read(datatype_in(old), datatype_in(new))
    fields: dict[str, set[str]] = {}
    for was, of in read_as:
        fields.setdefault(of, set()).update(old["classes"][was])
    return fields


def _lasting_problems(before: Structure, now: Structure) -> list[str]:
    """Return the changes that a migration cannot handle."""
    old, new = before.get("settings", {}), now.get("settings", {})
    found = [
        f"{setting} was {old.get(setting)} and is now {new.get(setting)}"
        for setting in {**old, **new}
        if old.get(setting) != new.get(setting)
    ]
    if "key" in now.get("parts", {}) and not _is_same_key(before["parts"]["key"], now["parts"]["key"]):
        found.append("the stored keys would not be found")
    return found


def _value_problems(before: Structure, now: Structure) -> list[str]:
    """Return the reasons why stored values cannot be read as the current types."""
    found = []
    for part, structure in now.get("parts", {}).items():
        if part != "key":
            found += _Reading().problems(datatype_in(before["parts"][part]), datatype_in(structure), "")
    return found


def shown_structure(structure: Structure) -> str:
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
    """Return the reasons why an aggregate cannot read stored accumulators. A mapping of aggregates can gain and lose
    entries.
    """
    if isinstance(before, dict) and isinstance(now, dict):
        return [
            problem
            for inner in now
            if inner in before
            for problem in _aggregate_problems(before[inner], now[inner], f"{name}[{inner!r}]")
        ]
    if before == now:
        return []
    was, is_now = ("a mapping of aggregates" if isinstance(of, dict) else of for of in (before, now))
    return [f"{_THE_AGGREGATE}{name} was {was} and is now {is_now}"]


def _is_same_key(before: Structure, now: Structure) -> bool:
    """Return `True` if a map still finds the keys that older code stored: a map looks up a key by its stored form."""
    match datatype_in(before), datatype_in(now):
        case (Scalar(old), Scalar(new)) if _WIDER.get(old) == new:
            return True
        case Union(old_members), Union(new_members):
            old_kinds, new_kinds = ({kind for _, kind in of} for of in (old_members, new_members))
            return old_kinds <= new_kinds and all(isinstance(kind, Scalar) for kind in new_kinds)
    return before == now


@attrs.frozen
class _Reading:
    """Checks whether values stored as one type can be read as a different type."""

    _seen: set[tuple[str, str]] = attrs.field(factory=set, init=False)

    def problems(self, old: DataType, new: DataType, where: str) -> list[str]:
        """Return descriptions of the differences that prevent reading. An empty string means that the type as a whole
        has changed.

        :param where: the field that has this type; empty if the type is not a field's type
        """
        changed = [f"{where} was {shown_type(old)} and is now {shown_type(new)}" if where else ""]
        match old, new:
            case (Union(), _) | (_, Union()):
                return self._union_problems(old, new, where)
            case Record(), Record():
                return self._record_problems(old, new)
            case (Choice(), Choice()) | (Enumeration(), Enumeration()):
                return _value_problems_of(old, new, where)
            case Choice(values), Scalar(name) if {kind for kind, _ in values} == {name}:
                return []
            case Scalar(was), Scalar(name) if _WIDER.get(was) == name:
                return []
            case Packed(), Packed("Any"):
                return []
        pairs = _pairs_of_parts(old, new)
        if not pairs:
            return [] if old == new else changed
        found = [problem for before, now in pairs for problem in self.problems(before, now, "")]
        return list(dict.fromkeys(problem or changed[0] for problem in found))

    def records_read(self, old: DataType, new: DataType) -> set[tuple[str, str]]:
        """Return pairs of a stored class and the class as which its objects are read."""
        self.problems(old, new, "")
        return self._seen

    def _record_problems(self, old: Record, new: Record) -> list[str]:
        if (old.name, new.name) in self._seen:
            return []
        self._seen.add((old.name, new.name))
        found = []
        for name, (kind, is_required) in new.fields.items():
            if name in old.fields:
                found += self.problems(old.fields[name].type, kind, f"{new.name}.{name}")
            elif is_required:
                found.append(f"{new.name}.{name}{_IS_NEW}")
        return found

    def _union_problems(self, old: DataType, new: DataType, where: str) -> list[str]:
        before, now = _Members.of(old), _Members.of(new)
        changed = [f"{where} was {shown_type(old)} and is now {shown_type(new)}" if where else ""]
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

    def _target(self, before: "_Members", tag: str, kind: DataType, now: "_Members") -> DataType | None:
        """Return the member of the new union that reads an old member's values. Return `None` if no member, or the
        wrong member, would read the values.
        """
        if before.is_tagged:  # the stored tag selects the member
            return dict(now.others).get(tag) if now.is_tagged else None
        if not now.is_tagged:
            return now.others[0][1] if now.others else None
        if isinstance(kind, Enumeration) and any(of in now.leaves for of, _ in kind.values):
            return None
        has_same = tag in dict(now.others)
        for other, member in now.others:  # the first member that can read a value reads the value
            if other == tag:
                return member
            if not _cannot_read(kind, member):
                return None if has_same or self.problems(kind, member, "") else member
        return None


def _pairs_of_parts(old: DataType, new: DataType) -> list[tuple[DataType, DataType]]:
    """Return pairs of the parts of containers of the same kind; none for other types."""
    match old, new:
        case (Map(), Map()) if _is_packed(old.key) == _is_packed(new.key):
            return [(old.key, new.key), (old.value, new.value)]
        case (Fixed(), Fixed()) if len(old.items) == len(new.items):
            return list(zip(old.items, new.items, strict=True))
        case (Sequence(), Sequence()) if old.container == new.container:
            return [(old.item, new.item)]
    return []


def _value_problems_of(old: Any, new: Any, where: str) -> list[str]:
    """Return a list with a description if an enum or a `Literal` no longer allows all stored values."""
    removed = [text for of, text in old.values if (of, text) not in new.values]
    if not removed or (isinstance(new, Enumeration) and new.accepts is True):
        return []
    name = new.name if isinstance(new, Enumeration) else "the Literal"
    return [f"{where or name} no longer allows {', '.join(removed)}"]


def _cannot_read(kind: DataType, member: DataType) -> bool:
    """Return `True` if no stored value of a kind can be read as the kind of a union member."""
    if isinstance(kind, Record) and isinstance(member, Record):
        return any(field.is_required and name not in kind.fields for name, field in member.fields.items())
    return _form(kind) != _form(member)


def _is_packed(key: DataType) -> bool:
    return not isinstance(key, Scalar | Enumeration)


def _form(type_: DataType) -> str:
    """Return the form in which values of a type are stored."""
    match type_:
        case Scalar() | Packed() | Opaque():
            return "packed"
        case Record() | Map():
            return "mapping"
        case Enumeration():
            return "value"
    return "sequence"


@attrs.frozen
class _Members:
    """The members of a union. A type that is not a union has itself as its only member. See `_structured._Members`.

    :param leaves: the names of scalars
    """

    leaves: list[str]
    literals: list[tuple[str, str]]
    others: list[tuple[str, DataType]]

    @classmethod
    def of(cls, type_: DataType) -> "_Members":
        name = type_.name if isinstance(type_, Record | Enumeration) else ""
        members = type_.members if isinstance(type_, Union) else ((name, type_),)
        return cls(
            [kind.name for _, kind in members if isinstance(kind, Scalar)],
            [value for _, kind in members if isinstance(kind, Choice) for value in kind.values],
            [(tag, kind) for tag, kind in members if not isinstance(kind, Scalar | Choice)],
        )

    @property
    def is_tagged(self) -> bool:
        return len(self.others) > 1 or bool(self.literals) or any(leaf != "None" for leaf in self.leaves)
