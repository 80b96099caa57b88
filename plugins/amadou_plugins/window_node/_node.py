"""The node: converts message lines into reply lines."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from amadou import Key
from amadou_plugins.window_node._answers import Answer, answers
from amadou_plugins.window_node._envelope import Envelope, opened
from amadou_plugins.window_node._errors import MessageError
from amadou_plugins.window_node._handler import Numbered
from amadou_plugins.window_node._requests import ListWindows, Request, read_request

_INTERNAL: Final = MessageError("internal", "processing failed, and no window changed; see the node's standard error")
_logger = logging.getLogger("amadou")


class Runner(Protocol):
    """Applies requests to the windows."""

    def process(self, record: Any) -> Mapping[str, list[Any]]:
        """Process all requests in a batch, or none of them.

        :returns: the values that the handler collected, by port
        """

    def keys(self) -> Sequence[Key]:
        """Return the start times of the open windows, in milliseconds since 1970."""


class Node:
    """Answers messages. The node processes messages that arrive together as one batch, and each `ListWindows` request
    as a separate batch.

    :param runner: object that stores the windows and processes the requests
    """

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    def answer(self, lines: Sequence[bytes]) -> list[bytes]:
        """Return a reply to each line, in the order of the lines. The reply to an invalid line is an error."""
        read = [_read(line) for line in lines]
        answered: dict[int, Answer] = {}
        batch: list[Numbered] = []
        for number, (_, request) in enumerate(read):
            if isinstance(request, MessageError):
                answered[number] = request
            elif isinstance(request, ListWindows):  # must see the effects of the earlier requests
                answered |= self._processed(batch)
                answered |= self._processed([(number, request)])
                batch = []
            else:
                batch.append((number, request))
        answered |= self._processed(batch)
        return [_reply(envelope, answered[number]) for number, (envelope, _) in enumerate(read)]

    def _processed(self, batch: list[Numbered]) -> dict[int, Answer]:
        """Return the answers to a batch of requests, by request number. If the batch fails, process the requests one by
        one.
        """
        if not batch:
            return {}
        try:
            return self._process(batch)
        except Exception:
            if len(batch) > 1:
                return {number: answer for each in batch for number, answer in self._processed([each]).items()}
            _logger.exception("window-node: a message could not be processed")
            return {batch[0][0]: _INTERNAL}

    def _process(self, batch: list[Numbered]) -> dict[int, Answer]:
        number, request = batch[0]
        if isinstance(request, ListWindows):
            starts = (key for key in self._runner.keys() if isinstance(key, int))  # noqa: SIM118
            batch = [(number, ListWindows(tuple(starts)))]
        return answers(batch, self._runner.process(batch))


def _read(line: bytes) -> tuple[Envelope, Request | MessageError]:
    envelope = Envelope()
    try:
        envelope, body = opened(line)
        return envelope, read_request(body)
    except MessageError as error:
        return envelope, MessageError(error.code, error.text)  # its traceback takes kilobytes
    except Exception:
        _logger.exception("window-node: a message could not be read")
        return envelope, _INTERNAL


def _reply(envelope: Envelope, answer: Answer) -> bytes:
    if isinstance(answer, MessageError):
        return envelope.refusal(answer)
    return envelope.reply(*answer)
