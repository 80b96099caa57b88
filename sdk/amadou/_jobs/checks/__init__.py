"""The rules that a job has to keep. A rule is a function that yields a sentence for each mistake."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from amadou._jobs.job import Job

Rule: TypeAlias = "Callable[[Job], Iterable[str]]"


def broken(job: "Job", rules: Iterable[Rule]) -> list[str]:
    """Return a sentence for each mistake that rules find."""
    return [problem for rule in rules for problem in rule(job)]
