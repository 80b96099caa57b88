"""The rules for settings of a job that concern neither its handler nor its connectors."""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from amadou._jobs.params import Param
from amadou.fields import has_fields

if TYPE_CHECKING:
    from amadou._jobs.job import Job

MOST_KEY_GROUPS: Final = 32768
_CHOICES: Final = {
    "state": ("auto", "groups", "log"),
    "late_events": ("deliver", "drop", "divert"),
    "on_error": ("fail", "dead_letter"),
}


def name(job: "Job") -> Iterator[str]:
    if not isinstance(job.name, str) or not job.name.strip():
        yield f"the name must be a non-blank string, not {job.name!r}"


def delays(job: "Job") -> Iterator[str]:
    for setting, delay in _by_source(job, "watermark_delay"):
        if not _is_time(delay, timedelta(0)):
            yield f"{setting} must be a non-negative timedelta or number of seconds, not {delay!r}"


def timeouts(job: "Job") -> Iterator[str]:
    for setting, time in (*_by_source(job, "idle_timeout"), ("max_ahead", job.max_ahead)):
        of_source = setting.startswith("idle_timeout[")  # zero: the source holds the watermark for unread records
        if time is not None and not _is_time(time, timedelta(0) if of_source else timedelta.resolution):
            sign = "non-negative" if of_source else "positive"
            yield f"{setting} must be a {sign} timedelta or number of seconds, or None, not {time!r}"


def sources_of_settings(job: "Job") -> Iterator[str]:
    for setting in ("watermark_delay", "idle_timeout"):
        given = getattr(job, setting)
        if isinstance(given, Mapping):
            for source in given:
                if source not in job.sources:
                    yield f"{setting}: the job has no source {source!r}: correct the name"


def idle_ports(job: "Job") -> Iterator[str]:
    if isinstance(job.idle_timeout, Mapping):
        for source in job.fed_sources:
            if source in job.idle_timeout:
                yield f"idle_timeout[{source!r}]: a port of another stage is never idle: remove the entry"


def key_groups(job: "Job") -> Iterator[str]:
    groups = job.key_groups
    if not isinstance(groups, Param) and (type(groups) is not int or not 1 <= groups <= MOST_KEY_GROUPS):
        yield f"key_groups must be an integer from 1 to {MOST_KEY_GROUPS}, not {groups!r}"


def choices(job: "Job") -> Iterator[str]:
    for setting, known in _CHOICES.items():
        if getattr(job, setting) not in known:
            *first, last = (f'"{choice}"' for choice in known)
            yield f"{setting} must be {', '.join(first)} or {last}, not {getattr(job, setting)!r}"


def retired(job: "Job") -> Iterator[str]:
    if not isinstance(job.retired, Mapping):
        yield f'retired must be a mapping from spec names to "drop" or "keep", not {job.retired!r}'
        return
    for spec, fate in job.retired.items():
        if fate not in ("drop", "keep"):
            yield f'retired[{spec!r}] must be "drop" or "keep", not {fate!r}'


def plugins(job: "Job") -> Iterator[str]:
    if not isinstance(job.plugins, tuple):
        yield f"plugins must be a list of module names or objects, not {job.plugins!r}"


def types(job: "Job") -> Iterator[str]:
    if not isinstance(job.types, tuple):
        yield f"types must be a list of classes, not {job.types!r}"
        return
    for type_ in job.types:
        if not isinstance(type_, type) or not (has_fields(type_) or issubclass(type_, Enum)):
            yield f"types must contain attrs classes, dataclasses, named tuples or enums, not {type_!r}"
        elif "<locals>" in type_.__qualname__:
            yield f"types contains {type_.__qualname__}, which is defined inside a function: define it in a module"


def max_dead_letters(job: "Job") -> Iterator[str]:
    most = job.max_dead_letters
    if most is None:
        return
    is_number, is_share = type(most) is int and most >= 0, type(most) is float and 0 < most < 1
    if not (is_number or is_share or isinstance(most, Param)):
        advice = ": write 1 for one dead letter, or None for no limit" if type(most) is float and most == 1 else ""
        yield f"max_dead_letters must be a non-negative integer, a fraction below 1, or None, not {most!r}{advice}"
    if job.on_error == "fail":
        yield 'max_dead_letters needs on_error="dead_letter": with "fail", any failure ends the run'


RULES: Final = (
    *(name, delays, timeouts, sources_of_settings, idle_ports, key_groups),
    *(choices, retired, plugins, types, max_dead_letters),
)


def _is_time(given: Any, least: timedelta) -> bool:
    return isinstance(given, Param) or (isinstance(given, timedelta) and given >= least)


def _by_source(job: "Job", setting: str) -> list[tuple[str, Any]]:
    """Return the setting's values, each paired with a name for messages. There is one pair per source if the setting is
    a mapping by source; otherwise there is one pair.
    """
    given = getattr(job, setting)
    if not isinstance(given, Mapping):
        return [(setting, given)]
    return [(f"{setting}[{source!r}]", value) for source, value in given.items()]
