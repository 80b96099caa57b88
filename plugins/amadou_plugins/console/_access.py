"""Decides which requests the console answers, and protects its answers."""

import hmac
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from amadou_plugins._hosts import Hosts

_Scope = MutableMapping[str, Any]
_App = Callable[[_Scope, Any, Any], Awaitable[None]]

_TOKEN: Final = "token"
_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",  # without a referrer, a browser does not say where a form comes from
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class Access:
    """ASGI middleware. A request is answered only if its `Host` header names this server, its method only reads, and it
    has the token, as a parameter or a bearer token, or the cookie of this port. An address with the token sets the
    cookie, and redirects to the same address without the token. Requests to the addresses of actions may use POST. If
    they have the cookie, the header `Origin` must name this server, too.

    Browsers send cookies to all ports of a host. So the cookie is made from the token and the port: no other console
    accepts it, and nobody can compute the token from it.

    :param app: the application
    :param token: the token
    :param hosts: the values of the header `Host` that are answered
    :param port: the port of this server
    :param actions: the addresses of actions
    """

    def __init__(self, app: _App, token: str, hosts: Hosts, port: int, *, actions: Collection[str] = ()) -> None:
        self._app = app
        self._token = token
        self._hosts = hosts
        self._cookie = f"amadou-console-{port}"
        self._secret = hmac.new(token.encode(), self._cookie.encode(), "sha256").hexdigest()
        self._actions = frozenset(actions)

    async def __call__(self, scope: _Scope, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return

        async def protected(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                headers = [(name.lower().encode(), value.encode()) for name, value in _HEADERS.items()]
                message["headers"] = [*message.get("headers", ()), *headers]
            await send(message)

        refusal = self._refusal(Request(scope))
        await (refusal or self._app)(scope, receive, protected)

    def _refusal(self, request: Request) -> Response | None:
        """Return the answer to a request that is not allowed; `None` if it is allowed."""
        if request.headers.get("host", "") not in self._hosts:
            return PlainTextResponse("The host name of this address is not that of the console.\n", 421)
        is_action = request.method == "POST" and request.url.path in self._actions
        if request.method != "GET" and not is_action:
            return PlainTextResponse("The console only answers GET.\n", 405, {"Allow": "GET"})
        has_bearer = self._is_right(request.headers.get("authorization", "").removeprefix("Bearer "))
        if is_action and not has_bearer and request.headers.get("origin") != f"http://{request.headers['host']}":
            return PlainTextResponse("Actions are only answered on pages of the console.\n", 403)
        redirect = None if is_action else self._redirect(request)
        if redirect is not None:
            return redirect
        if has_bearer or hmac.compare_digest(request.cookies.get(self._cookie, "").encode(), self._secret.encode()):
            return None
        text = "This needs the console's token: open the address that the run printed when it started.\n"
        return PlainTextResponse(text, 401)

    def _redirect(self, request: Request) -> Response | None:
        """Return the answer to an address with the token, which sets the cookie; `None` for other addresses."""
        given = parse_qsl(request.url.query, keep_blank_values=True)
        tokens = [value for name, value in given if name == _TOKEN]
        if not tokens or not self._is_right(tokens[0]):
            return None
        rest = urlencode([(name, value) for name, value in given if name != _TOKEN])
        path = f"/{request.url.path.lstrip('/')}"  # two slashes would lead to another server
        answer = RedirectResponse(f"{path}{'?' if rest else ''}{rest}", 303)
        answer.set_cookie(self._cookie, self._secret, httponly=True, samesite="strict", path="/")
        return answer

    def _is_right(self, token: str) -> bool:
        return hmac.compare_digest(token.encode(), self._token.encode())
