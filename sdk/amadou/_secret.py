"""Values that must not be shown, such as passwords and tokens."""

import json
import re
from typing import Any, Final

HIDDEN: Final = "***"
_LEAST = 4
"""Minimum length of a secret that is hidden inside other text. Shorter secrets occur too often by chance."""
_revealing: set[str] = set()
# The first four names come from Spark's default for `spark.redaction.regex`.
_SECRET_NAME = re.compile(
    r"secret|password|token|(access|account|api)[._-]?key|authorization|jaas|key[.]pem|cookie|passphrase|credential",
    re.IGNORECASE,
)


class Secret:
    """A value that is shown as
    ``***``. Connectors access the value with `reveal`. In each process in which the `Secret` exists, amadou also hides
    the value in error messages. Values of three characters or fewer are not hidden in messages.

    :param value: a string, or a value that was parsed from a string
    """

    __slots__ = ("_value",)

    def __init__(self, value: Any) -> None:
        self._value = value
        text = str(value)
        if len(text) >= _LEAST:
            # also hide the escaped forms of the value in Python and JSON literals
            _revealing.update((text, repr(text)[1:-1], json.dumps(text)[1:-1]))

    def reveal(self) -> Any:
        """Return the value itself."""
        return self._value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._value == other._value

    def __hash__(self) -> int:
        return hash((Secret, self._value))

    def __reduce__(self) -> tuple[Any, ...]:
        return Secret, (self._value,)

    def __repr__(self) -> str:
        return HIDDEN


def redacted(text: str) -> str:
    """Return a string with the secrets of this process hidden."""
    for secret in sorted(_revealing, key=len, reverse=True):  # one secret may contain another
        text = text.replace(secret, HIDDEN)
    return text


def names_secret(option: str) -> bool:
    """Return `True` if the value of an option or header with this name must not be shown."""
    return _SECRET_NAME.search(option) is not None
