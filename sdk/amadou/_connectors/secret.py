"""Values that must not be shown, such as passwords and tokens."""

import html
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import chain
from typing import Any, Final

HIDDEN: Final = "***"
_LEAST = 4
"""Minimum length of a secret that is hidden inside other text. Shorter secrets occur too often by chance."""
_MOST = 16
"""Maximum number of backslashes before a character: those of a literal within three others."""
_BACKSLASHES = rf"\\{{1,{_MOST}}}"
_LETTERS = {"\n": "n", "\r": "r", "\t": "t", "\b": "b", "\f": "f"}
"""The letters after a backslash that stand for control characters."""
_RUN = re.compile(r"(\\*)(.|$)", re.DOTALL)
_NESTED = (Mapping, list, tuple)
_revealing: set[str] = set()
# The first four names come from Spark's default for `spark.redaction.regex`.
_SECRET_NAME = re.compile(
    r"secret|password|token|(access|account|api)[._-]?key|authorization|jaas|key[.]pem|cookie|passphrase|credential",
    re.IGNORECASE,
)


class Secret:
    """A value that is shown as
    ``***``. Connectors access the value with `reveal`. In each process in which the `Secret` exists, amadou also hides
    the value in error messages, and also the strings in it if it is a dict, list or tuple. Values of three characters
    or fewer are not hidden in messages.

    :param value: a string, bytes, or a value that was parsed from a string
    """

    __slots__ = ("_value",)

    def __init__(self, value: Any) -> None:
        self._value = value
        _revealing.update(text for text in _texts_of(value) if len(text) >= _LEAST)

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


def _texts_of(value: Any) -> Iterator[str]:
    """Yield the texts in which a secret value would be visible."""
    yield value.decode("latin-1") if isinstance(value, bytes) else str(value)
    if isinstance(value, _NESTED):
        parts = value.values() if isinstance(value, Mapping) else value
        yield from chain.from_iterable(_texts_of(part) for part in parts if isinstance(part, (str, bytes, *_NESTED)))


def redacted(text: str) -> str:
    """Return a string with the secrets of this process hidden."""
    for secret in sorted(_revealing, key=len, reverse=True):  # one secret may contain another
        if secret.isascii() and secret.isalnum():
            text = text.replace(secret, HIDDEN)
        else:
            text = _pattern_of(secret).sub(HIDDEN, text)
    return text


@lru_cache(maxsize=1024)
def _pattern_of(secret: str) -> re.Pattern[str]:
    """Return a pattern for a secret as such, and as it is written in literals of Python and JSON, also in literals
    within literals, and in URLs and HTML.
    """
    return re.compile("".join(_forms_of(len(run[1]), run[2]) for run in _RUN.finditer(secret)), re.DOTALL)


def _forms_of(backslashes: int, character: str) -> str:
    """Return a pattern for the forms of a run of backslashes and the character that follows it; empty at the end.

    Where the backslashes and the character both have backslashes in a text, one part of the pattern matches all of
    them. With two parts, the time would grow exponentially with the number of runs, since each run could be divided in
    many ways.
    """
    forms = _forms_of_character(character) if character else ""
    if not backslashes:
        return forms
    # each literal doubles them
    literal = rf"\\{{{backslashes},{_MOST * (backslashes + 1)}}}{_forms_of_character(character, '')}"
    return rf"(?:{literal}|(?i:%(?:25)*5c|{_BACKSLASHES}(?:x5c|u005c)){{{backslashes}}}{forms})"


def _forms_of_character(character: str, before: str | None = None) -> str:
    """Return a pattern for the forms of a character that is no backslash.

    :param before: the pattern for backslashes before it; `None` for as many as each form needs
    """
    if not character or (character.isascii() and character.isalnum()):
        return character
    least_one, any_number = (_BACKSLASHES, rf"\\{{0,{_MOST}}}") if before is None else (before, before)
    code, encoded = ord(character), character.encode(errors="surrogatepass")
    units = character.encode("utf-16-be", errors="surrogatepass")
    escaped = [f"U{code:08x}", _BACKSLASHES.join(f"u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))]
    escaped += [_BACKSLASHES.join(f"x{byte:02x}" for byte in encoded)]
    escaped += [f"x{code:02x}"] if code < 256 else []
    literal = rf"{any_number}(?:{re.escape(character)}|{re.escape(html.escape(character))})"
    forms = [least_one + form for form in (*escaped, *_LETTERS.get(character, ()))]
    forms += ["".join(f"%(?:25)*{byte:02x}" for byte in encoded), *([r"\+"] if character == " " else [])]
    return f"(?:{literal}|(?i:{'|'.join(forms)}))"


def names_secret(option: str) -> bool:
    """Return `True` if the value of an option or header with this name must not be shown."""
    return _SECRET_NAME.search(option) is not None
