"""The node: from lines to the replies to them."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from amadou import Key
from amadou_plugins.window_node._answers import Answer, answers
from amadou_plugins.window_node._envelope import Envelope, opened
from amadou_plugins.window_node._errors import MessageError
from amadou_plugins.window_node._handler import Numbered
from amadou_plugins.window_node._requests import ListWindows, Request, read_request

_INTERNAL: Final = MessageError("internal", "the node failed at this message, which changed nothing; it goes on")
_logger = logging.getLogger("amadou")


class Player(Protocol):
    """Plays requests against the windows."""

    def play(self, record: Any) -> Mapping[str, list[Any]]:
        """Play requests as a batch, all or none.

        :returns: what was collected, by port
        """

    def keys(self) -> Sequence[Key]:
        """Where open windows begin."""


class Node:
    """Answers messages. Those that came together are played together.

    :param player: has the windows
    """

    def __init__(self, player: Player) -> None:
        self._player = player

    def answer(self, lines: Sequence[bytes]) -> list[bytes]:
        """The reply to each line, in their order. None fails."""
        read = [_read(line) for line in lines]
        answered: dict[int, Answer] = {}
        batch: list[Numbered] = []
        for number, (_, request) in enumerate(read):
            if isinstance(request, MessageError):
                answered[number] = request
            elif isinstance(request, ListWindows):  # asks the windows that are open after what came before
                answered |= self._played(batch)
                answered |= self._played([(number, request)])
                batch = []
            else:
                batch.append((number, request))
        answered |= self._played(batch)
        return [_reply(envelope, answered[number]) for number, (envelope, _) in enumerate(read)]

    def _played(self, batch: list[Numbered]) -> dict[int, Answer]:
        """The answers to some requests. Where they fail together, each is played alone."""
        if not batch:
            return {}
        try:
            return self._play(batch)
        except Exception:
            if len(batch) > 1:
                return {number: answer for each in batch for number, answer in self._played([each]).items()}
            _logger.exception("window-node: a message could not be played")
            return {batch[0][0]: _INTERNAL}

    def _play(self, batch: list[Numbered]) -> dict[int, Answer]:
        number, request = batch[0]
        if isinstance(request, ListWindows):
            starts = (key for key in self._player.keys() if isinstance(key, int))  # noqa: SIM118
            batch = [(number, ListWindows(tuple(starts)))]
        return answers(batch, self._player.play(batch))


def _read(line: bytes) -> tuple[Envelope, Request | MessageError]:
    envelope = Envelope()
    try:
        envelope, body = opened(line)
        return envelope, read_request(body)
    except MessageError as error:
        return envelope, error
    except Exception:
        _logger.exception("window-node: a message could not be read")
        return envelope, _INTERNAL


def _reply(envelope: Envelope, answer: Answer) -> bytes:
    if isinstance(answer, MessageError):
        return envelope.refusal(answer)
    return envelope.reply(*answer)
