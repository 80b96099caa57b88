"""The envelope around the body of a message or reply."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

import orjson

from amadou_plugins.window_node._errors import MessageError

MOST_BYTES: Final = 16 * 2**20
"""Maximum length of a line, in bytes."""


# A named tuple rather than an attrs class, because an envelope is created for every message.
class Envelope(NamedTuple):
    """The sender, the recipient and the id of a message. All three can be any JSON values.

    :param is_bare: `True` if the line was a body without an envelope
    """

    src: Any = None
    dest: Any = None
    msg_id: Any = None
    is_bare: bool = True

    def reply(self, kind: str, fields: dict[str, Any]) -> bytes:
        """Return a reply as a line.

        :param kind: type of the reply
        :param fields: the other fields of the reply's body
        """
        reply: dict[str, Any] = {"type": kind, "in_reply_to": self.msg_id, **fields}
        if not self.is_bare:
            reply = {"src": self.dest, "dest": self.src, "body": reply}
        try:
            return orjson.dumps(reply, option=orjson.OPT_APPEND_NEWLINE)
        except orjson.JSONEncodeError:  # orjson cannot write deeply nested values or lone surrogates
            src, dest, msg_id = map(_writable, self[:3])
            writable = Envelope(src, dest, msg_id, self.is_bare)
            if self == writable:
                raise
            return writable.reply(kind, fields)

    def refusal(self, error: MessageError) -> bytes:
        """Return a reply that reports an error."""
        return self.reply("error", {"code": error.code, "text": error.text})


def _writable(given: Any) -> Any:
    """Return a value from an envelope; `None` if the value cannot be written."""
    try:
        orjson.dumps([[given]])  # nested as deeply as in a reply
    except orjson.JSONEncodeError:
        return None
    return given


# takes half as long as calling the class
_new_envelope: Callable[[Any], Envelope] = partial(tuple.__new__, Envelope)


def _number(digits: str) -> int | float:
    """Parse an integer as orjson does: as a float if the integer does not fit in 64 bits."""
    if len(digits) <= 20 and -(2**63) <= int(digits) < 2**64:
        return int(digits)
    return float(digits)


_LENIENT: Final = json.JSONDecoder(parse_int=_number)
"""Decoder for JSON that Python can write but orjson rejects: NaN, Infinity, numbers too large for floats, lone
surrogates.
"""


def opened(line: bytes) -> tuple[Envelope, Any]:
    """Return the envelope and the body of a message.

    :raises MessageError: the line is too long, or is not a JSON object
    """
    if len(line) > MOST_BYTES:
        raise MessageError("too_long", f"the message is longer than {MOST_BYTES:,} bytes: split the message")
    try:
        message = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        try:
            message = _LENIENT.decode(line.decode())
        except (ValueError, RecursionError):
            raise MessageError("malformed_json", f"the line is not JSON: send one object per line ({error})") from None
    if type(message) is not dict:
        raise MessageError("bad_message", "a message must be a JSON object")
    if "body" not in message:
        return Envelope(msg_id=message.get("msg_id")), message
    body = message["body"]
    msg_id = body.get("msg_id") if type(body) is dict else None
    return _new_envelope((message.get("src"), message.get("dest"), msg_id, False)), body
