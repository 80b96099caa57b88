"""The envelope around the body of a message, and its part in a reply."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

import orjson

from amadou_plugins.window_node._errors import MessageError

MOST_BYTES: Final = 16 * 2**20
"""Largest size of a line."""


# A named tuple, not attrs: one is made for every message.
class Envelope(NamedTuple):
    """The origin of a message, to which its reply goes. Its attributes may be any JSON.

    :param is_bare: true if the line was a body without an envelope
    """

    src: Any = None
    dest: Any = None
    msg_id: Any = None
    is_bare: bool = True

    def reply(self, kind: str, told: dict[str, Any]) -> bytes:
        """Return a reply as a line.

        :param kind: type of the reply
        :param told: rest of its body
        """
        reply: dict[str, Any] = {"type": kind, "in_reply_to": self.msg_id, **told}
        if not self.is_bare:
            reply = {"src": self.dest, "dest": self.src, "body": reply}
        try:
            return orjson.dumps(reply, option=orjson.OPT_APPEND_NEWLINE)
        except orjson.JSONEncodeError:  # a readable value may be nested too deeply to be written, or not be UTF-8
            src, dest, msg_id = map(_writable, self[:3])
            writable = Envelope(src, dest, msg_id, self.is_bare)
            if self == writable:
                raise
            return writable.reply(kind, told)

    def refusal(self, error: MessageError) -> bytes:
        """Return a reply that reports an error."""
        return self.reply("error", {"code": error.code, "text": error.text})


def _writable(given: Any) -> Any:
    """Return a value of the envelope, `None` where it cannot be written."""
    try:
        orjson.dumps([[given]])  # as deep as it stands in a reply
    except orjson.JSONEncodeError:
        return None
    return given


# half the time of calling the class
_new_envelope: Callable[[Any], Envelope] = partial(tuple.__new__, Envelope)


def _number(digits: str) -> int | float:
    """Return a whole number as orjson reads it: as a float beyond 64 bits."""
    if len(digits) <= 20 and -(2**63) <= int(digits) < 2**64:
        return int(digits)
    return float(digits)


_LENIENT: Final = json.JSONDecoder(parse_int=_number)
"""Reads what Python's json writes and orjson refuses: NaN, Infinity, numbers beyond floats, halves of surrogates."""


def opened(line: bytes) -> tuple[Envelope, Any]:
    """Return the envelope and the body of a message.

    :raises MessageError: the line is not a JSON object
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
