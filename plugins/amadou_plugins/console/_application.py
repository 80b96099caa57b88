"""The console's addresses: pages, and the JSON API below `/api/v1`."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import orjson
from anyio.to_thread import run_sync
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from amadou_plugins.console._api import Api, Document
from amadou_plugins.console._history import RunHistory
from amadou_plugins.console._pages import Pages

_STATIC: Final = Path(__file__).with_name("static")
_MOST_SECONDS: Final = 20.0
"""Time after which a request fails."""
ACTIONS: Final = ("/stop", "/savepoint", "/api/v1/stop", "/api/v1/savepoint")
"""The addresses that change something, with the method POST."""


def application(runs: Callable[[], Sequence[RunHistory]], *, acts: bool) -> Starlette:
    """Return the console's application, without access control.

    :param runs: function that returns the runs to show, the newest last
    :param acts: `True` to offer the actions
    """
    api = Api(runs)
    pages = Pages(api, acts=acts)

    def failed(request: Request, error: Exception) -> Response:
        status, why = (error.status_code, error.detail) if isinstance(error, HTTPException) else (500, "")
        if request.url.path.startswith("/api/"):
            return _json({"error": why or "the console failed"}, status)
        return pages.error(status, why)

    async def favicon(_: Request) -> Response:
        return RedirectResponse("/static/icon.svg")

    routes: list[Any] = [
        Route("/", _bounded(pages.overview)),
        Route("/pipeline", _bounded(pages.pipeline)),
        Route("/state", _bounded(pages.state)),
        Route("/letters", _bounded(pages.letters)),
        Route("/letters/{id}", _bounded(pages.letter)),
        Route("/letters/{id}/test", _bounded(pages.test)),
        Route("/letters/{id}/test.py", _bounded(pages.test_file)),
        Route("/batches", _bounded(pages.batches)),
        Route("/favicon.ico", favicon),
        Mount("/static", StaticFiles(directory=_STATIC)),
        Route("/api/v1/overview", _as_json(api.overview)),
        Route("/api/v1/charts", _as_json(api.charts)),
        Route("/api/v1/pipeline", _as_json(api.pipeline)),
        Route("/api/v1/state", _as_json(api.state)),
        Route("/api/v1/biggest", _as_json(api.biggest)),
        Route("/api/v1/letters", _as_json(api.letters)),
        Route("/api/v1/letters/{id}", _as_json(api.letter)),
        Route("/api/v1/letters/{id}/test", _as_json(api.test)),
        Route("/api/v1/batches", _as_json(api.batches)),
    ]
    if acts:
        for path, act in (("/stop", api.stop), ("/savepoint", api.savepoint)):
            page = partial(_acted, pages, act)
            routes.append(Route(path, _bounded(page), methods=["POST"]))
            routes.append(Route(f"/api/v1{path}", _as_json(act), methods=["POST"]))
        routes.append(Route("/stop", _bounded(pages.confirm_stop)))
    return Starlette(routes=routes, exception_handlers={HTTPException: failed, 500: failed})


def _acted(pages: Pages, act: Callable[[Request], Document], request: Request) -> Response:
    return pages.done(request, act(request))


def _bounded(answer: Callable[[Request], Response]) -> Callable[[Request], Awaitable[Response]]:
    """Return an endpoint that answers in a thread, and fails if the answer takes too long."""

    async def bounded(request: Request) -> Response:
        try:
            with anyio.fail_after(_MOST_SECONDS):
                return await run_sync(answer, request, abandon_on_cancel=True)
        except TimeoutError:
            raise HTTPException(503, f"this took longer than {_MOST_SECONDS:.0f} seconds: try again") from None

    return bounded


def _as_json(answer: Callable[[Request], Any]) -> Callable[[Request], Awaitable[Response]]:
    return _bounded(lambda request: _json(answer(request)))


def _json(content: Any, status: int = 200) -> Response:
    return Response(orjson.dumps(content), status, media_type="application/json")
