"""Finds the biggest keys of a run in a thread, and keeps them."""

import threading
from collections.abc import Mapping
from datetime import datetime, timezone
from time import monotonic
from typing import Any, Final

from amadou import AmadouError
from amadou.plugins import StateReader
from amadou.text import shortened, shown_error
from amadou_plugins.console._facts import RunFacts

_MOST_KEYS: Final = 20
_MOST_SECONDS: Final = 60.0
_PAUSE: Final = 9
"""Multiple of the time that finding the keys took for which they are not found again."""
_ERROR_LENGTH: Final = 2_000
_NOTHING: Final[Mapping[str, Any]] = {"status": "none", "batch": None, "found": None, "keys": [], "error": None}


class BiggestKeys:
    """The biggest keys of the stage of a run that was asked for last. All methods can be called from any thread, and
    return at once, with a document of the API.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of: tuple[str, str] | None = None
        """The id of the run, and the stage."""
        self._document = _NOTHING
        self._is_finding = False
        self._again_at = 0.0

    def known(self, run: RunFacts, stage: str) -> Mapping[str, Any]:
        """Return the keys that were found last, if any."""
        with self._lock:
            return self._known((run.id, stage))

    def ask(self, run: RunFacts, stage: str) -> Mapping[str, Any]:
        """Return the keys that were found last. If this was long ago, start to find them again."""
        with self._lock:
            if (run.id, stage) != self._of and not self._is_finding:
                self._of, self._document, self._again_at = (run.id, stage), _NOTHING, 0.0
            if run.state is not None and not self._is_finding and monotonic() >= self._again_at:
                self._is_finding = True
                finding = threading.Thread(
                    target=self._find, args=(run.state, stage), name="amadou-biggest-keys", daemon=True
                )
                finding.start()
            return self._known((run.id, stage))

    def _known(self, of: tuple[str, str]) -> Mapping[str, Any]:
        document = self._document if of == self._of else _NOTHING
        return {**document, "status": "computing", "error": None} if self._is_finding else document

    def _find(self, reader: StateReader, stage: str) -> None:
        began = monotonic()
        try:
            document = {**_NOTHING, **reader.biggest(_MOST_KEYS, stage), "status": "found"}
        except Exception as error:
            text = str(error) if isinstance(error, AmadouError) else shown_error(error)
            document = {**_NOTHING, "status": "failed", "error": shortened(text, _ERROR_LENGTH)}
        now = monotonic()
        with self._lock:
            self._document = {**document, "found": datetime.now(timezone.utc)}
            self._is_finding = False
            self._again_at = now + max(_MOST_SECONDS, _PAUSE * (now - began))
