"""The limit on dead letters (`Job(max_dead_letters=…)`)."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

import attrs

from amadou import Job
from amadou.engine import sum_counts
from amadou.errors import TooManyDeadLettersError
from amadou.text import error_type

Failures: TypeAlias = dict[str, dict[str, list[Any]]]
"""Number of failures and the first error message, by callback (or component name), then by error type."""

_LEAST: Final = 10
"""Minimum number of failures of a callback before a limit on the fraction of failed calls applies."""
_SHOWN: Final = 5
_LONGEST: Final = 200


def note_failure(failures: Failures, callback: str, error: str) -> None:
    """Count a failure.

    :param error: the error's type and message, as in a dead letter
    """
    found = failures.setdefault(callback, {}).setdefault(error_type(error), [0, error[:_LONGEST]])
    found[0] += 1


def all_failures(parts: Iterable[Failures]) -> Failures:
    """Return the total of multiple failure counts."""
    total: Failures = {}
    for part in parts:
        for callback, kinds in part.items():
            for kind, (number, example) in kinds.items():
                found = total.setdefault(callback, {}).setdefault(kind, [0, example])
                found[0] += number
    return total


@attrs.frozen
class LetterCount:
    """Number of calls and failures of a job's callbacks since the job's checkpoint was created.

    :param calls: number of calls, by callback
    :param failures: number of failures; see `Failures`
    """

    calls: Mapping[str, int] = attrs.field(factory=dict)
    failures: Failures = attrs.field(factory=dict)

    def then(self, job: Job, calls: Mapping[str, int], failures: Failures) -> "LetterCount":
        """Return this count with the calls and failures of a batch added.

        :raises TooManyDeadLettersError: there are more failures than `max_dead_letters` allows
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
