"""Looks up answers of an HTTP service."""

import re
import time
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, ClassVar, Final
from urllib.parse import quote, urlsplit

import attrs
import orjson

from amadou import Param, Secret
from amadou.errors import AmadouError, SpecError
from amadou_plugins._http_pool import limited_pool
from amadou_plugins.connectors._settings import check_no_password, check_secret, keep_out_of_logs, revealed

_KEY: Final = "{key}"
_MOST_BYTES: Final = 10 << 20
_PIECE: Final = 1 << 16
_NOT_FOUND: Final = 404


def _whole(answer: Any) -> Any:
    return answer


@attrs.frozen
class HttpGet:
    """Fetches JSON from an HTTP service with a GET request for each key, for a `Lookup`::

        weather = Lookup(HttpGet("https://weather.example/stations/{key}"), key=lambda event: event.value["station"])

    The lookup's `concurrency` is the number of requests at the same time. The status 404 means that the service has no
    answer for the key; any other status except 200 is an error of the lookup, and is retried. Redirects are not
    followed.

    :param url: URL with ``{key}`` in place of the key
    :param headers: additional headers; a value can be a `Secret`
    :param token: bearer token, sent in the header ``Authorization: Bearer …``
    :param answer: function that turns the JSON of a response into the answer
    :param timeout: seconds to wait for a response, including its body; the lookup's `timeout` also applies
    :raises SpecError: a setting is invalid
    """

    batch_size: ClassVar[int] = 1

    url: str | Param
    headers: Mapping[str, str | Secret | Param] = attrs.field(factory=dict, kw_only=True, hash=False, repr=False)
    token: Secret | Param | None = attrs.field(default=None, kw_only=True)
    answer: Callable[[Any], Any] = attrs.field(default=_whole, kw_only=True)
    timeout: float = attrs.field(default=10.0, kw_only=True)

    def __attrs_post_init__(self) -> None:
        url = revealed(self.url)
        if isinstance(url, str) and not re.match(r"https?://", url):
            raise SpecError(f"HttpGet: the url must begin with http:// or https://, not {self.url!r}")
        if isinstance(url, str) and _KEY not in url:
            raise SpecError(f"HttpGet: the url must contain {_KEY} in place of the key, not {self.url!r}")
        instead = "pass token= or headers=, or make the url a Param with secret=True"
        check_no_password(SpecError, "HttpGet: the url", self.url, instead)
        check_secret(SpecError, "token", self.token)

    def __call__(self, keys: list[Any]) -> dict[Any, Any]:
        """Return the answers for some keys.

        :raises AmadouError: the service does not answer with JSON, the key cannot be in the URL, or urllib3 is not
            installed
        """
        answers = {}
        for key in keys:
            url = str(revealed(self.url)).replace(_KEY, quote(str(key), safe=""))
            if not {".", ".."}.isdisjoint(urlsplit(url).path.split("/")):
                raise AmadouError(f"the key {key!r} cannot be a part of a path: it would lead to another address")
            found = self._get(url)
            if found is not None:
                answers[key] = self.answer(found)
        return answers

    def _get(self, url: str) -> Any:
        headers = {name: str(revealed(value)) for name, value in self.headers.items()}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {revealed(self.token)}"
        until = time.monotonic() + self.timeout
        keep_out_of_logs(self.url)
        response = _pool().request(
            "GET", url, headers=headers, timeout=self.timeout, retries=False, redirect=False, preload_content=False
        )
        try:
            body = self._body(response, until)
        finally:
            response.close()  # unless the body was read to its end, the connection is not used again
        if response.status == _NOT_FOUND:
            return None
        if response.status != 200:
            raise AmadouError(f"the service answered with status {response.status}")
        if len(body) > _MOST_BYTES:
            raise AmadouError(f"the answer has more than {_MOST_BYTES >> 20} MiB")
        try:
            return orjson.loads(body)
        except ValueError as error:
            raise AmadouError(f"the answer is not JSON ({error})") from error

    def _body(self, response: Any, until: float) -> bytes:
        """Return the body of a response, or the part that is over the limit.

        :param until: time from `time.monotonic` at which the body must be complete
        """
        pieces, size = [], 0
        while size <= _MOST_BYTES and (piece := response.read1(_PIECE)):
            pieces.append(piece)
            size += len(piece)
            if time.monotonic() >= until:
                raise AmadouError(f"no complete answer within {self.timeout:g} s")
        return b"".join(pieces)


@cache
def _pool() -> Any:
    """Return the connections of this process."""
    try:
        return limited_pool(maxsize=64, block=False)
    except ImportError as error:
        raise AmadouError("HttpGet needs urllib3: run pip install 'amadou[http]'") from error
