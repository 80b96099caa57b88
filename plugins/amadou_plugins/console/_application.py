"""The console's addresses: pages, and the JSON API below `/api/v1`."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from amadou import AmadouError
from amadou_plugins.console._biggest_keys import BiggestKeys
from amadou_plugins.console._chart import svg_chart
from amadou_plugins.console._history import SERIES, RunHistory
from amadou_plugins.console._text import FILTERS

_STATIC = Path(__file__).with_name("static")
_MOST_ANSWERED = 1_000
_SHOWN_BATCHES = 100
_LONGEST_KEY = 2_000
_NO_STATE = "only runs on Spark have state that can be looked into"
PAGES = {"/": "Overview", "/state": "State", "/batches": "Batches"}


def application(runs: Callable[[], Sequence[RunHistory]]) -> Starlette:
    """Return the console's application, without access control.

    :param runs: function that returns the runs to show, the newest last
    """
    pages = Environment(
        loader=PackageLoader("amadou_plugins.console"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    pages.filters |= FILTERS
    biggest_keys = BiggestKeys()

    def history() -> RunHistory:
        found = runs()
        if not found:
            raise HTTPException(503, "no run has started")
        return found[-1]

    def overview(_: Request) -> Response:
        return _json(history().overview(datetime.now(UTC)))

    def charts(_: Request) -> Response:
        now, of = datetime.now(UTC), history()
        return _json(
            {
                name: {"title": series.title, "unit": series.unit, "points": of.chart(name, now)}
                for name, series in SERIES.items()
            }
        )

    def batches(request: Request) -> Response:
        limit, before = _number(request, "limit", _SHOWN_BATCHES), _number(request, "before", None)
        found = history().batches(min(limit or 0, _MOST_ANSWERED), before)
        return Response(b'{"batches":[' + b",".join(found) + b"]}", media_type="application/json")

    def biggest(_: Request) -> Response:
        run = history().run
        if run.state is None:
            raise HTTPException(404, _NO_STATE)
        return _json(biggest_keys.ask(run))

    def found_state(request: Request) -> tuple[str, Mapping[str, Any] | None]:
        key = request.query_params.get("key", "")
        reader = history().run.state
        if reader is None:
            raise HTTPException(404, _NO_STATE)
        if len(key) > _LONGEST_KEY:
            raise HTTPException(400, f"a key has at most {_LONGEST_KEY:,} characters here")
        try:
            return key, reader.find(key) if "key" in request.query_params else None
        except AmadouError as error:
            raise HTTPException(503, str(error)) from error

    def state(request: Request) -> Response:
        if "key" not in request.query_params:
            raise HTTPException(400, "name the key, such as key=news")
        key, found = found_state(request)
        if found is None:
            raise HTTPException(404, f"nothing is stored for the key {key!r}")
        return _json(found)

    def page(request: Request, template: str, **values: Any) -> Response:
        text = pages.get_template(template).render(pages=PAGES, path=request.url.path, **values)
        return HTMLResponse(text)

    def overview_page(request: Request) -> Response:
        now, of = datetime.now(UTC), history()
        shown = {name: svg_chart(series, of.chart(name, now)) for name, series in SERIES.items()}
        return page(request, "overview.html", run=of.overview(now), charts=shown, series=SERIES)

    def state_page(request: Request) -> Response:
        key, found = found_state(request)
        asked = "key" in request.query_params
        of = history()
        biggest = (biggest_keys.ask if "biggest" in request.query_params else biggest_keys.known)(of.run)
        run = of.overview(datetime.now(UTC))
        return page(request, "state.html", run=run, key=key, asked=asked, found=found, biggest=biggest)

    def batches_page(request: Request) -> Response:
        of = history()
        before = _number(request, "before", None)
        found = [orjson.loads(each) for each in of.batches(_SHOWN_BATCHES, before)]
        return page(
            request,
            "batches.html",
            run=of.overview(datetime.now(UTC)),
            batches=found,
            before=before,
            most=_SHOWN_BATCHES,
        )

    def failed(request: Request, error: Exception) -> Response:
        status, why = (error.status_code, error.detail) if isinstance(error, HTTPException) else (500, "")
        if request.url.path.startswith("/api/"):
            return _json({"error": why or "the console failed"}, status)
        return HTMLResponse(
            pages.get_template("error.html").render(status=status, why=why, pages=PAGES, path=""), status
        )

    return Starlette(
        routes=[
            Route("/", overview_page),
            Route("/state", state_page),
            Route("/batches", batches_page),
            Route("/favicon.ico", lambda _: RedirectResponse("/static/icon.svg")),
            Mount("/static", StaticFiles(directory=_STATIC)),
            Route("/api/v1/overview", overview),
            Route("/api/v1/charts", charts),
            Route("/api/v1/batches", batches),
            Route("/api/v1/state", state),
            Route("/api/v1/biggest", biggest),
        ],
        exception_handlers={HTTPException: failed, 500: failed},
    )


def _json(content: Any, status: int = 200) -> Response:
    return Response(orjson.dumps(content), status, media_type="application/json")


def _number(request: Request, name: str, default: int | None) -> int | None:
    """Return a query parameter as a number.

    :raises HTTPException: the parameter is not a number
    """
    text = request.query_params.get(name)
    if text is None:
        return default
    if not text.isdecimal() or len(text) > 18:
        raise HTTPException(400, f"{name} must be a number, such as {name}=10")
    return int(text)
