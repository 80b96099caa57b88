"""How many dead letters a job takes before its run ends (`Job(max_dead_letters=…)`)."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

import attrs

from amadou import Job
from amadou.engine import sum_counts
from amadou.errors import TooManyDeadLettersError
from amadou.text import error_type

Failures: TypeAlias = dict[str, dict[str, list[Any]]]
"""How often callbacks failed with an error of some type, and the text of the first such error: by callback, a component
by its name, then by type."""

_LEAST: Final = 10
"""So many failures of a callback make a share of its calls worth looking at."""
_SHOWN: Final = 5
_LONGEST: Final = 200


def note_failure(failures: Failures, callback: str, error: str) -> None:
    """Add an error.

    :param error: its type and text, as a dead letter has it
    """
    found = failures.setdefault(callback, {}).setdefault(error_type(error), [0, error[:_LONGEST]])
    found[0] += 1


def all_failures(parts: Iterable[Failures]) -> Failures:
    """Several failures as one."""
    whole: Failures = {}
    for part in parts:
        for callback, kinds in part.items():
            for kind, (number, example) in kinds.items():
                found = whole.setdefault(callback, {}).setdefault(kind, [0, example])
                found[0] += number
    return whole


@attrs.frozen
class LetterCount:
    """What a job's callbacks came to since its checkpoint was begun.

    :param calls: how often they were called
    :param failures: how often they failed
    """

    calls: Mapping[str, int] = attrs.field(factory=dict)
    failures: Failures = attrs.field(factory=dict)

    def then(self, job: Job, calls: Mapping[str, int], failures: Failures) -> "LetterCount":
        """This with what a batch came to.

        :raises TooManyDeadLettersError: that is more than the job takes
        """
        if job.on_error == "fail":
            return self
        count = LetterCount(sum_counts((self.calls, calls)), all_failures((self.failures, failures)))
        count._check(job)
        return count

    def _check(self, job: Job) -> None:
        bound = job.max_dead_letters
        by_callback = {name: sum(number for number, _ in kinds.values()) for name, kinds in self.failures.items()}
        letters = sum(by_callback.values())
        if isinstance(bound, int) and letters > bound:
            raise TooManyDeadLettersError(letters, bound, self._most_frequent())
        if isinstance(bound, float):
            for callback, failed in by_callback.items():
                calls = max(self.calls.get(callback, 0), failed)
                if failed >= _LEAST and failed > bound * calls:
                    raise TooManyDeadLettersError(letters, bound, self._most_frequent(), callback, failed, calls)

    def _most_frequent(self) -> tuple[str, ...]:
        found = [
            (-number, f"{number:,} × {callback}: {example}")
            for callback, kinds in self.failures.items()
            for number, example in kinds.values()
        ]
        return tuple(line for _, line in sorted(found)[:_SHOWN])
