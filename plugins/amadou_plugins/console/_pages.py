"""The pages, which show the documents of the API."""

from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from amadou_plugins.console._api import BATCHES_SHOWN, Api
from amadou_plugins.console._chart import svg_chart, svg_parts
from amadou_plugins.console._series import SERIES
from amadou_plugins.console._text import FILTERS

PAGES: Final = {
    "/": "Overview",
    "/pipeline": "Pipeline",
    "/state": "State",
    "/letters": "Dead letters and late events",
    "/batches": "Batches",
}
"""The pages in the navigation."""


class Pages:
    """Answers requests with pages.

    :param api: returns the documents that the pages show
    :param acts: `True` to offer actions
    """

    def __init__(self, api: Api, *, acts: bool) -> None:
        self._api = api
        self._acts = acts
        self._templates = Environment(
            loader=PackageLoader("amadou_plugins.console"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters |= {**FILTERS, "parts": svg_parts}

    def overview(self, request: Request) -> Response:
        points = {name: chart["points"] for name, chart in self._api.charts(request).items()}
        charts = {
            name: {
                "drawn": svg_chart(SERIES[name], of),
                "most": max((each for _, each in of if each is not None), default=None),
            }
            for name, of in points.items()
        }
        return self._page(request, "overview.html", charts=charts, series=SERIES)

    def pipeline(self, request: Request) -> Response:
        return self._page(request, "pipeline.html", pipeline=self._api.pipeline(request))

    def state(self, request: Request) -> Response:
        key = request.query_params.get("key", "")
        is_asked = "key" in request.query_params
        stage = self._api.stage(request)
        found = self._api.find(key, stage) if is_asked else None
        biggest = self._api.biggest(request) if "biggest" in request.query_params else self._api.known_biggest(request)
        return self._page(request, "state.html", key=key, asked=is_asked, found=found, biggest=biggest, stage=stage)

    def letters(self, request: Request) -> Response:
        return self._page(request, "letters.html", letters=self._api.letters(request))

    def letter(self, request: Request) -> Response:
        return self._page(request, "letter.html", letter=self._api.letter(request))

    def test(self, request: Request) -> Response:
        test = self._api.test(request)
        return self._page(request, "test.html", letter=self._api.letter(request), test=test["test"])

    def test_file(self, request: Request) -> Response:
        headers = {"Content-Disposition": 'attachment; filename="test_dead_letter.py"'}
        return Response(self._api.test(request)["test"], media_type="text/x-python", headers=headers)

    def batches(self, request: Request) -> Response:
        batches = self._api.batches(request)["batches"]
        return self._page(request, "batches.html", batches=batches, most=BATCHES_SHOWN)

    def confirm_stop(self, request: Request) -> Response:
        return self._page(request, "stop.html")

    def done(self, request: Request, answer: dict[str, Any]) -> Response:
        """Return the page that says what an action does.

        :param answer: the answer of the API
        """
        return self._page(request, "done.html", message=answer["message"])

    def error(self, status: int, why: str) -> Response:
        """Return the page for a request that failed."""
        text = self._templates.get_template("error.html").render(status=status, why=why, pages=PAGES, path="")
        return HTMLResponse(text, status)

    def _page(self, request: Request, template: str, **values: Any) -> Response:
        run = self._api.overview(request)
        acts = self._acts and run["status"] == "running"
        text = self._templates.get_template(template).render(
            pages=PAGES, path=request.url.path, run=run, acts=acts, **values
        )
        return HTMLResponse(text)
