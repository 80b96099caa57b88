"""The answers of the JSON API, and what the pages show of them."""

from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from typing import Any, Final, TypeAlias

import orjson
from starlette.exceptions import HTTPException
from starlette.requests import Request

from amadou import AmadouError
from amadou.plugins import DeadLetterReport, RunControl, StateReader
from amadou_plugins.console._biggest_keys import BiggestKeys
from amadou_plugins.console._documents import shown
from amadou_plugins.console._history import RunHistory

Document: TypeAlias = dict[str, Any]
_MOST_ANSWERED: Final = 1_000
_LONGEST_KEY: Final = 2_000
NO_STATE: Final = "only runs on Spark have state that can be looked into"
BATCHES_SHOWN: Final = 100


class Api:
    """Answers requests about the newest run. Each method returns a document in which secrets are hidden.

    :param runs: function that returns the runs, the newest last
    """

    def __init__(self, runs: Callable[[], Sequence[RunHistory]]) -> None:
        self._runs = runs
        self._biggest = BiggestKeys()

    def history(self) -> RunHistory:
        """Return the history of the newest run.

        :raises HTTPException: there is no run, or its checkpoint cannot be read
        """
        try:
            found = self._runs()
        except AmadouError as error:
            raise HTTPException(503, str(error)) from error
        if not found:
            raise HTTPException(503, "no run has started")
        return found[-1]

    def overview(self, _: Request) -> Document:
        return shown("overview", self.history().overview(datetime.now(timezone.utc)))

    def charts(self, _: Request) -> Document:
        return shown("charts", self.history().charts(datetime.now(timezone.utc)))

    def pipeline(self, _: Request) -> Document:
        return shown("pipeline", self.history().pipeline(datetime.now(timezone.utc)))

    def batches(self, request: Request) -> Document:
        limit, before = _number(request, "limit", BATCHES_SHOWN), _number(request, "before", None)
        found = self.history().batches(min(limit or 0, _MOST_ANSWERED), before)
        return shown("batches", {"batches": [orjson.Fragment(each) for each in found]})

    def letters(self, _: Request) -> Document:
        return shown("letters", self.history().letters())

    def letter(self, request: Request) -> Document:
        return shown("letter", self._letter(request)[0])

    def test(self, request: Request) -> Document:
        document, letter = self._letter(request)
        reproduce = self.history().facts.reproduce
        if reproduce is None:
            raise HTTPException(404, "the console does not know the job's code: start it with --job")
        try:
            return shown("test", {"id": document["id"], "test": reproduce(letter)})
        except AmadouError as error:
            raise HTTPException(404, str(error)) from error

    def stop(self, _: Request) -> Document:
        self._control().stop()
        return {"message": "The run stops after the current batch."}

    def savepoint(self, _: Request) -> Document:
        try:
            directory = self._control().savepoint()
        except AmadouError as error:
            raise HTTPException(409, str(error)) from error
        return shown("message", {"message": f"The run takes a savepoint, as a new directory in {directory}."})

    def _control(self) -> RunControl:
        control = self.history().facts.control
        if control is None:
            raise HTTPException(409, "this run can neither be stopped nor take savepoints here")
        return control

    def _letter(self, request: Request) -> tuple[Document, DeadLetterReport]:
        found = self.history().letter(request.path_params["id"])
        if found is None:
            raise HTTPException(404, "this dead letter is not among the newest ones")
        return found

    def state(self, request: Request) -> Document:
        if "key" not in request.query_params:
            raise HTTPException(400, "name the key, such as key=news")
        key = request.query_params["key"]
        found = self.find(key, self.stage(request))
        if found is None:
            raise HTTPException(404, f"nothing is stored for the key {key!r}")
        return found

    def biggest(self, request: Request) -> Document:
        self._state()
        return shown("biggest", self._biggest.ask(self.history().facts, self.stage(request)))

    def known_biggest(self, request: Request) -> Document:
        """Return the biggest keys that have been found, without finding them."""
        return shown("biggest", self._biggest.known(self.history().facts, self.stage(request)))

    def stage(self, request: Request) -> str:
        """Return the name of the stage that a request about state asks for: by default, the first.

        :raises HTTPException: the job has no such stage
        """
        stages = list(self.history().facts.description.get("stages") or [""])
        name = str(request.query_params.get("stage", stages[0]))
        if name not in stages:
            raise HTTPException(404, f"the job has no stage {name!r}: use one of {', '.join(stages)}")
        return name

    def find(self, key: str, stage: str) -> Document | None:
        """Return what is stored for a key; `None` if nothing is stored.

        :param stage: the name of the stage; empty in a job with one handler
        :raises HTTPException: the state cannot be read
        """
        reader = self._state()
        if len(key) > _LONGEST_KEY:
            raise HTTPException(400, f"a key has at most {_LONGEST_KEY:,} characters here")
        try:
            found = reader.find(key, stage)
        except AmadouError as error:
            raise HTTPException(503, str(error)) from error
        return None if found is None else shown("state", found)

    def _state(self) -> StateReader:
        reader = self.history().facts.state
        if reader is None:
            raise HTTPException(404, NO_STATE)
        return reader


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
