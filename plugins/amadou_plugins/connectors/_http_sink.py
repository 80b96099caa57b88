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

from amadou import Param, Secret
from amadou.errors import SinkError
from amadou.plugins import BufferingWriter, Codec, Sink, SinkBatch, SinkWriter
from amadou.text import shortened
from amadou_plugins._http_pool import limited_pool
from amadou_plugins.connectors._json import JsonCodec, json_lines
from amadou_plugins.connectors._settings import (
    check_count,
    check_no_password,
    check_secret,
    check_time,
    keep_out_of_logs,
    revealed,
)

_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 10.0
_WARNING_INTERVAL = 5.0
_READ_ANSWER = 1 << 16
"""Maximum number of bytes to read from a response. A connection is reused only if its response was read to the end."""
_SHOWN_ANSWER = 300
_HEADER_NAME = re.compile(r"[\w!#$%&'*+.^`|~-]+", re.ASCII)
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e\xa0-\xff]*")
_ADVICE = {
    401: "check token= and headers=",
    403: "check token= and headers=",
    404: "check the url",
    405: "check the url, which does not accept POST",
    413: "lower max_values_per_request",
}
_logger = logging.getLogger("amadou")
_warned: dict[str, float] = {}
"""Time of each sink's last warning (from `time.monotonic`), by the sink's label."""


@attrs.frozen
class HttpSink(Sink):
    """Sends values to a URL in POST requests, each of which contains a JSON array. At-least-once.

    The process that started the run sends a batch's requests one by one, once the batch has been processed. If a
    request gets no response, or a response with status 429 or 5xx, the run waits and retries the request. The pauses
    between retries grow; a `Retry-After` header in the response can make a pause longer. Any other status except 2xx
    ends the run. The values of a reprocessed batch are sent again, and a request with the same values has the same
    `Idempotency-Key` header as before. If the service accepts each of these keys only once, such a request takes effect
    exactly once.

    :param url: URL that begins with ``http://`` or ``https://``; a `Secret` if the URL alone authorizes requests. Pass
        a login in `headers`, not in the URL
    :param headers: additional headers for each request; a value can be a `Secret`
    :param token: bearer token, sent in the header ``Authorization: Bearer …``
    :param max_values_per_request: maximum number of values in a request
    :param timeout: maximum time to wait for a response, including its body
    :param give_up_after: maximum time to retry a request; after this time, the run fails
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
                    f"{self._label}: the header {name!r} cannot be sent: its name or value contains a line feed or "
                    "another character that is not allowed in headers. Remove this character"
                )

    def open(self, batch: SinkBatch, part: str) -> SinkWriter:
        return BufferingWriter()

    def commit(self, batch: SinkBatch, parts: Sequence[Any]) -> None:
        values = [line for part in parts for line in json_lines(batch, part)]
        if not values:
            return

        keep_out_of_logs(self.url)
        assert isinstance(self.max_values_per_request, int)
        with limited_pool() as pool:
            for first in range(0, len(values), self.max_values_per_request):
                sent = values[first : first + self.max_values_per_request]
                body = b"[%b]" % b",".join(sent)
                # A reprocessed batch may be split differently: a request with different values needs a different key.
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
                raise SinkError(f"{self._label}: {failure.reason}. {_resumed(failure.advice)}")
            if left <= 0:
                tried = f"retried for {self.give_up_after.total_seconds():g} s (give_up_after)"
                raise SinkError(f"{self._label}: {failure.reason}; {tried}. {_resumed('check the service')}")
            self._warn(f"{self._label}: {failure.reason}; the run waits and retries for up to {left:.3g} s")
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
        except urllib3.exceptions.NewConnectionError as error:  # in urllib3 a subclass of TimeoutError
            return _Failure(f"no connection: {error}", passes=True)
        except urllib3.exceptions.TimeoutError:
            return _Failure(f"no response within {seconds:g} s", passes=True)
        except urllib3.exceptions.HTTPError as error:
            return _Failure(f"no response: {error}", passes=True)
        text = _text(answer, until)
        if 200 <= answer.status < 300:
            return None
        shown = shortened(text, _SHOWN_ANSWER)
        reason = f"the response is {answer.status} {http.client.responses.get(answer.status, '')}".rstrip()
        reason += f": {shown}" if shown else ""
        if answer.status == 429 or answer.status >= 500:
            return _Failure(reason, passes=True, pause=_asked_pause(answer))
        if 300 <= answer.status < 400:
            return _Failure(reason, advice="set the url to the address that the response redirects to")
        return _Failure(reason, advice=_ADVICE.get(answer.status, "fix the problem that the response describes"))

    def _headers(self) -> dict[str, str]:
        given = {name: str(revealed(value)) for name, value in self.headers.items()}
        if self.token is not None:
            given["Authorization"] = f"Bearer {revealed(self.token)}"
        own = {"Content-Type": "application/json"}
        return {**{name: value for name, value in own.items() if name.lower() not in map(str.lower, given)}, **given}

    def _warn(self, text: str) -> None:
        now = time.monotonic()
        if now - _warned.get(self._label, -_WARNING_INTERVAL) >= _WARNING_INTERVAL:
            _warned[self._label] = now
            _logger.warning("%s", SinkError(text))  # errors hide secrets

    def _check_url(self) -> None:
        try:
            parts = self._parts
            is_usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            is_usable = False
        if "@" in self._address.partition("://")[2].partition("/")[0]:
            raise SinkError(
                "HttpSink does not accept a login in its url, because logs and errors show the url: pass token=, or "
                "headers={'Authorization': Secret('Basic …')}"
            )
        check_no_password(SinkError, "HttpSink: the url", self.url, "pass it in headers=, or make the url a Secret")
        if not is_usable:
            shown = "this one" if isinstance(self.url, Secret) else repr(self.url)
            raise SinkError(f"HttpSink needs a url such as https://host:port/path, not {shown}")

    @property
    def _address(self) -> str:
        return str(revealed(self.url))

    @property
    def _parts(self) -> SplitResult:
        return urlsplit(self._address)

    @property
    def _label(self) -> str:
        parts = self._parts
        path = "/***" if isinstance(self.url, Secret) else parts.path
        return f"HttpSink({parts.scheme}://{parts.netloc}{path})"


@attrs.frozen
class _Failure:
    reason: str
    advice: str = ""
    passes: bool = False
    """`True` if a retry can succeed."""
    pause: float = 0.0
    """Pause that the response requests, in seconds."""


def _text(answer: Any, until: float) -> str:
    """Return the part of a response's text that arrives in time. Reading a response to its end allows the connection
    to be reused.

    :param until: time from `time.monotonic` at which to stop reading
    """
    import urllib3

    read, is_whole = b"", False
    with suppress(urllib3.exceptions.HTTPError):  # only the status matters, and the status is already known
        while not is_whole and len(read) < _READ_ANSWER and time.monotonic() < until:
            piece = answer.read1(_READ_ANSWER - len(read))
            read += piece
            is_whole = not piece
    answer.close()
    words = read.decode(errors="replace").split()
    if not is_whole and len(read) < _READ_ANSWER:
        words = words[:-1]  # a truncated secret would not be recognized and hidden
    return " ".join(words)


def _pause(attempt: int) -> float:
    """Return the pause before the next attempt, in seconds. Jitter prevents clients from retrying simultaneously."""
    return min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** min(attempt, 10)) * random.uniform(0.5, 1)


def _asked_pause(answer: Any) -> float:
    import urllib3

    try:
        return urllib3.Retry().get_retry_after(answer) or 0.0
    except (urllib3.exceptions.InvalidHeader, ValueError, OverflowError):  # a huge number, or a date in a huge year
        return 0.0


def _resumed(advice: str) -> str:
    return f"{advice[0].upper()}{advice[1:]}, and restart the job from its checkpoint. The job resumes with this batch"
