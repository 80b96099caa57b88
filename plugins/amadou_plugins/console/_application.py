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
ACTIONS: Final = ("/stop", "/savepoint", "/api/v1/stop", "/api/v1/savepoint")
"""The addresses that change something, with the method POST."""


def application(runs: Callable[[], Sequence[RunHistory]], *, acts: bool, time_limit: float) -> Starlette:
    """Return the console's application, without access control.

    :param runs: function that returns the runs to show, the newest last
    :param acts: `True` to offer the actions
    :param time_limit: number of seconds after which a request fails
    """
    bounded = partial(_bounded, time_limit)
    as_json = partial(_as_json, time_limit)
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
        Route("/", bounded(pages.overview)),
        Route("/pipeline", bounded(pages.pipeline)),
        Route("/state", bounded(pages.state)),
        Route("/letters", bounded(pages.letters)),
        Route("/letters/{id}", bounded(pages.letter)),
        Route("/letters/{id}/test", bounded(pages.test)),
        Route("/letters/{id}/test.py", bounded(pages.test_file)),
        Route("/batches", bounded(pages.batches)),
        Route("/favicon.ico", favicon),
        Mount("/static", StaticFiles(directory=_STATIC)),
        Route("/api/v1/overview", as_json(api.overview)),
        Route("/api/v1/charts", as_json(api.charts)),
        Route("/api/v1/pipeline", as_json(api.pipeline)),
        Route("/api/v1/state", as_json(api.state)),
        Route("/api/v1/biggest", as_json(api.biggest)),
        Route("/api/v1/letters", as_json(api.letters)),
        Route("/api/v1/letters/{id}", as_json(api.letter)),
        Route("/api/v1/letters/{id}/test", as_json(api.test)),
        Route("/api/v1/batches", as_json(api.batches)),
    ]
    if acts:
        for path, act in (("/stop", api.stop), ("/savepoint", api.savepoint)):
            page = partial(_acted, pages, act)
            routes.append(Route(path, bounded(page), methods=["POST"]))
            routes.append(Route(f"/api/v1{path}", as_json(act), methods=["POST"]))
        routes.append(Route("/stop", bounded(pages.confirm_stop)))
    return Starlette(routes=routes, exception_handlers={HTTPException: failed, 500: failed})


def _acted(pages: Pages, act: Callable[[Request], Document], request: Request) -> Response:
    return pages.done(request, act(request))


def _bounded(time_limit: float, answer: Callable[[Request], Response]) -> Callable[[Request], Awaitable[Response]]:
    """Return an endpoint that answers in a thread, and fails if the answer takes too long."""

    async def bounded(request: Request) -> Response:
        try:
            with anyio.fail_after(time_limit):
                return await run_sync(answer, request, abandon_on_cancel=True)
        except TimeoutError:
            raise HTTPException(503, f"this took longer than {time_limit:g} seconds: try again") from None

    return bounded


def _as_json(time_limit: float, answer: Callable[[Request], Any]) -> Callable[[Request], Awaitable[Response]]:
    return _bounded(time_limit, lambda request: _json(answer(request)))


def _json(content: Any, status: int = 200) -> Response:
    return Response(orjson.dumps(content), status, media_type="application/json")
