import hashlib
import http.client
import importlib.util
import itertools
import logging
import random
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any
from urllib.parse import SplitResult, quote, urlsplit

import attrs

from amadou import BufferingWriter, Codec, Param, Secret, Sink, SinkBatch, SinkWriter
from amadou.errors import SinkError
from amadou.text import shortened
from amadou_plugins.connectors._json import JsonCodec, json_lines
from amadou_plugins.connectors._settings import check_count, check_secret, check_time, revealed

_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 10.0
_WARNING_INTERVAL = 5.0
_READ_ANSWER = 1 << 16
"""Largest answer after which a connection is reused."""
_SHOWN_ANSWER = 300
_HEADER_NAME = re.compile(r"[\w!#$%&'*+.^`|~-]+", re.ASCII)
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e\xa0-\xff]*")
_ADVICE = {
    401: "check its token and headers",
    403: "check its token and headers",
    404: "check its address",
    405: "check its address, which takes no POST",
    413: "give it a lower max_values_per_request",
}
_logger = logging.getLogger("amadou")
_warned: dict[str, float] = {}
"""Time of the last warning, by `time.monotonic`, for each address."""


@attrs.frozen
class HttpSink(Sink):
    """Sends values to an address: each request is a POST of a JSON array. At-least-once.

    The process that started the run sends the requests, one after another, when their batch is complete. A request
    without an answer, or with status 429 or 5xx, is retried with growing pauses, or those of `Retry-After`, while the
    run waits. Any other answer than 2xx ends the run. A replayed batch is sent again, each request with the same
    `Idempotency-Key` as before: if the service takes each key once, each value arrives once.

    :param url: address that begins with ``http://`` or ``https://``; a `Secret` if knowing the address is enough to
        send to it. A login belongs in `headers`, not here
    :param headers: further headers of each request; their values may be `Secret`
    :param token: token that is sent as ``Authorization: Bearer …``
    :param max_values_per_request: largest number of values in a request's array
    :param timeout: time to wait for an answer, and for its text
    :param give_up_after: time for which a request is retried before it ends the run
    :raises SinkError: a setting is invalid
    """

    guarantee = "at-least-once"

    url: str | Secret | Param
    headers: Mapping[str, str | Secret | Param] = attrs.field(factory=dict, kw_only=True, repr=False)
    token: Secret | Param | None = attrs.field(default=None, kw_only=True)
    max_values_per_request: int | Param = attrs.field(default=500, kw_only=True)
    timeout: timedelta | Param = attrs.field(default=timedelta(seconds=10), kw_only=True)
    give_up_after: timedelta | Param = attrs.field(default=timedelta(minutes=5), kw_only=True)

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.url, Param):
            self._check_url()
        check_secret(SinkError, "token", self.token)
        check_count(SinkError, "max_values_per_request", self.max_values_per_request)
        check_time(SinkError, "timeout", self.timeout)
        check_time(SinkError, "give_up_after", self.give_up_after)

    def codec(self, type_: Any) -> Codec[Any]:
        return JsonCodec(type_)

    def check(self, port: str, type_: Any) -> None:
        if importlib.util.find_spec("urllib3") is None:
            raise SinkError("HttpSink needs urllib3: run pip install 'amadou[http]'")
        for name, value in self._headers().items():
            if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
                raise SinkError(
                    f"{self._told}: the header {name!r} cannot be sent: there is a line feed, or another character "
                    "that headers do not take, in its name or value"
                )

    def open(self, batch: SinkBatch, part: str) -> SinkWriter:
        return BufferingWriter()

    def commit(self, batch: SinkBatch, parts: Sequence[Any]) -> None:
        values = [line for part in parts for line in json_lines(batch, part)]
        if not values:
            return
        import urllib3

        if isinstance(self.url, Secret):
            # This logger would show the address at debug level.
            logging.getLogger("urllib3.connectionpool").addFilter(_is_no_detail)
        assert isinstance(self.max_values_per_request, int)
        with urllib3.PoolManager() as pool:
            for first in range(0, len(values), self.max_values_per_request):
                sent = values[first : first + self.max_values_per_request]
                body = b"[%b]" % b",".join(sent)
                # A replay may cut the batch in other places: a request with other values needs another key.
                digest = hashlib.blake2b(body, digest_size=8).hexdigest()
                key = f"{batch.run}-{quote(batch.port, safe='')}-{batch.number}-{first}-{digest}"
                self._deliver(pool, body, {**self._headers(), "Idempotency-Key": key})

    def _deliver(self, pool: Any, body: bytes, headers: Mapping[str, str]) -> None:
        assert isinstance(self.give_up_after, timedelta)
        until = time.monotonic() + self.give_up_after.total_seconds()
        for attempt in itertools.count():
            failure = self._post(pool, body, headers)
            if failure is None:
                return
            left = until - time.monotonic()
            if not failure.passes:
                raise SinkError(f"{self._told}: {failure.told}. {_resumed(failure.advice)}")
            if left <= 0:
                tried = f"tried again for {self.give_up_after.total_seconds():g} s (give_up_after)"
                raise SinkError(f"{self._told}: {failure.told}; {tried}. {_resumed('see to the service')}")
            self._warn(f"{self._told}: {failure.told}; the run waits, and tries again for another {left:.3g} s")
            time.sleep(min(left, max(failure.pause, _pause(attempt))))

    def _post(self, pool: Any, body: bytes, headers: Mapping[str, str]) -> "_Failure | None":
        import urllib3

        assert isinstance(self.timeout, timedelta)
        seconds = self.timeout.total_seconds()
        until = time.monotonic() + seconds
        try:
            answer = pool.request(
                "POST",
                self._address,
                body=body,
                headers=headers,
                timeout=urllib3.Timeout(total=seconds),
                retries=False,
                redirect=False,
                preload_content=False,
            )
        except urllib3.exceptions.NewConnectionError as error:  # urllib3 makes it a kind of timeout
            return _Failure(f"no connection: {error}", passes=True)
        except urllib3.exceptions.TimeoutError:
            return _Failure(f"no answer within {seconds:g} s", passes=True)
        except urllib3.exceptions.HTTPError as error:
            return _Failure(f"no answer: {error}", passes=True)
        text = _text(answer, until)
        if 200 <= answer.status < 300:
            return None
        shown = shortened(text, _SHOWN_ANSWER)
        told = f"the answer is {answer.status} {http.client.responses.get(answer.status, '')}".rstrip()
        told += f": {shown}" if shown else ""
        if answer.status == 429 or answer.status >= 500:
            return _Failure(told, passes=True, pause=_asked_pause(answer))
        if 300 <= answer.status < 400:
            return _Failure(told, advice="give it the address that this one leads to")
        return _Failure(told, advice=_ADVICE.get(answer.status, "see to what the answer names"))

    def _headers(self) -> dict[str, str]:
        given = {name: str(revealed(value)) for name, value in self.headers.items()}
        if self.token is not None:
            given["Authorization"] = f"Bearer {revealed(self.token)}"
        own = {"Content-Type": "application/json"}
        return {**{name: value for name, value in own.items() if name.lower() not in map(str.lower, given)}, **given}

    def _warn(self, text: str) -> None:
        now = time.monotonic()
        if now - _warned.get(self._told, -_WARNING_INTERVAL) >= _WARNING_INTERVAL:
            _warned[self._told] = now
            _logger.warning("%s", SinkError(text))  # errors hide secrets

    def _check_url(self) -> None:
        try:
            parts = self._parts
            is_usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            is_usable = False
        if "@" in self._address.partition("://")[2].partition("/")[0]:
            raise SinkError(
                "HttpSink takes no login in its address, which is shown: give it a token, or "
                "headers={'Authorization': Secret('Basic …')}"
            )
        if not is_usable:
            shown = "this one" if isinstance(self.url, Secret) else repr(self.url)
            raise SinkError(f"HttpSink needs an address such as https://host:port/path, not {shown}")

    @property
    def _address(self) -> str:
        return str(revealed(self.url))

    @property
    def _parts(self) -> SplitResult:
        return urlsplit(self._address)

    @property
    def _told(self) -> str:
        parts = self._parts
        path = "/***" if isinstance(self.url, Secret) else parts.path
        return f"HttpSink({parts.scheme}://{parts.netloc}{path})"


@attrs.frozen
class _Failure:
    told: str
    advice: str = ""
    passes: bool = False
    """True if the failure may pass by itself."""
    pause: float = 0.0
    """Pause that the answer asks for, in seconds."""


def _text(answer: Any, until: float) -> str:
    """Return the text of an answer, as much as arrives in time. A fully read connection serves the next request.

    :param until: time by `time.monotonic` at which to stop waiting
    """
    import urllib3

    read, is_whole = b"", False
    with suppress(urllib3.exceptions.HTTPError):  # the status is known, and decides
        while not is_whole and len(read) < _READ_ANSWER and time.monotonic() < until:
            piece = answer.read1(_READ_ANSWER - len(read))
            read += piece
            is_whole = not piece
    answer.close()
    words = read.decode(errors="replace").split()
    if not is_whole and len(read) < _READ_ANSWER:
        words = words[:-1]  # half a secret would not be hidden
    return " ".join(words)


def _pause(attempt: int) -> float:
    """Return the seconds before another attempt. They vary, so that many clients do not retry at once."""
    return min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** min(attempt, 10)) * random.uniform(0.5, 1)


def _asked_pause(answer: Any) -> float:
    import urllib3

    try:
        return urllib3.Retry().get_retry_after(answer) or 0.0
    except urllib3.exceptions.InvalidHeader:
        return 0.0


def _resumed(advice: str) -> str:
    return f"{advice[0].upper()}{advice[1:]}, and start the run again: with its checkpoint it goes on with this batch"


def _is_no_detail(record: logging.LogRecord) -> bool:
    return record.levelno > logging.DEBUG
