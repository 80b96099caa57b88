"""Values that must not be shown, such as passwords and tokens."""

import json
import re
from typing import Any, Final

HIDDEN: Final = "***"
_LEAST = 4
"""Shorter secrets are not hidden in other texts: too many texts contain them by chance."""
_revealing: set[str] = set()
# The first four are Spark's own rule, `spark.redaction.regex`.
_SECRET_NAME = re.compile(
    r"secret|password|token|(access|account|api)[._-]?key|authorization|jaas|key[.]pem|cookie|passphrase|credential",
    re.IGNORECASE,
)


class Secret:
    """A value that is shown as ``***``. Connectors get the value with `reveal`. If the text of an error contains the
    secret, it is hidden there, too, in each process that has the secret. Texts of three characters or less are not.

    :param value: a text, or a value that is read from a text
    """

    __slots__ = ("_value",)

    def __init__(self, value: Any) -> None:
        self._value = value
        text = str(value)
        if len(text) >= _LEAST:
            # also in its form within a literal of Python or JSON
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
    """Return a text with the secrets of this process hidden."""
    for secret in sorted(_revealing, key=len, reverse=True):  # one secret may be part of another
        text = text.replace(secret, HIDDEN)
    return text


def names_secret(option: str) -> bool:
    """Return `True` if the value of an option or a header of this name must not be shown."""
    return _SECRET_NAME.search(option) is not None
