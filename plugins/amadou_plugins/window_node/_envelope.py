"""What is around the body of a message, and what a reply has of it."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

import orjson

from amadou_plugins.window_node._errors import MessageError

MOST_BYTES: Final = 16 * 2**20
"""How long a line may be."""


# A named tuple, not attrs: one is made for every message.
class Envelope(NamedTuple):
    """Where a message came from, which is where its reply goes. What it has may be any JSON.

    :param is_bare: whether the line was a body alone
    """

    src: Any = None
    dest: Any = None
    msg_id: Any = None
    is_bare: bool = True

    def reply(self, kind: str, told: dict[str, Any]) -> bytes:
        """A reply as a line.

        :param kind: its type
        :param told: the rest of its body
        """
        reply: dict[str, Any] = {"type": kind, "in_reply_to": self.msg_id, **told}
        if not self.is_bare:
            reply = {"src": self.dest, "dest": self.src, "body": reply}
        try:
            return orjson.dumps(reply, option=orjson.OPT_APPEND_NEWLINE)
        except orjson.JSONEncodeError:  # what was read may be nested deeper than what can be written, or be no UTF-8
            src, dest, msg_id = map(_writable, self[:3])
            writable = Envelope(src, dest, msg_id, self.is_bare)
            if self == writable:
                raise
            return writable.reply(kind, told)

    def refusal(self, error: MessageError) -> bytes:
        """A reply that tells an error."""
        return self.reply("error", {"code": error.code, "text": error.text})


def _writable(given: Any) -> Any:
    """What the envelope has, `None` where it cannot be written."""
    try:
        orjson.dumps([[given]])  # as deep as it stands in a reply
    except orjson.JSONEncodeError:
        return None
    return given


# half the time of calling the class
_new_envelope: Callable[[Any], Envelope] = partial(tuple.__new__, Envelope)


def _number(digits: str) -> int | float:
    """A whole number as orjson reads it, which makes floats of those beyond 64 bits."""
    if len(digits) <= 20 and -(2**63) <= int(digits) < 2**64:
        return int(digits)
    return float(digits)


_LENIENT: Final = json.JSONDecoder(parse_int=_number)
"""Reads what Python's json writes and orjson refuses: NaN, Infinity, numbers beyond floats, halves of surrogates."""


def opened(line: bytes) -> tuple[Envelope, Any]:
    """The envelope and the body of a message.

    :raises MessageError: the line is no JSON object
    """
    if len(line) > MOST_BYTES:
        raise MessageError("too_long", f"a message has at most {MOST_BYTES:,} bytes")
    try:
        told = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        try:
            told = _LENIENT.decode(line.decode())
        except (ValueError, RecursionError):
            raise MessageError("malformed_json", f"a line is one JSON object: {error}") from None
    if type(told) is not dict:
        raise MessageError("bad_message", "a message is a JSON object")
    if "body" not in told:
        return Envelope(msg_id=told.get("msg_id")), told
    body = told["body"]
    msg_id = body.get("msg_id") if type(body) is dict else None
    return _new_envelope((told.get("src"), told.get("dest"), msg_id, False)), body
