"""How plugins read the state of a run."""

from collections.abc import Mapping
from typing import Any, Protocol


class StateReader(Protocol):
    """Reads the stored state of a run as of its last committed batch, while the run continues. Can be used from any
    thread.
    """

    def find(self, key: str, stage: str = "") -> Mapping[str, Any] | None:
        """Return what is stored for a key; `None` if nothing is stored.

        :param key: the key. A key that is not a string is written as in Python, such as ``17`` or ``(1, 'a')``
        :param stage: the name of the stage; can be omitted if the job has only one
        :returns: values that can be written as JSON: ``key``, as Python would show it; ``batch``, the number of the
            last committed batch; ``state``, which has for each spec its ``type``, the value as ``text``, and the times
            ``expires`` and ``next_timer`` or `None`; ``timers``, a list of times and tags; ``held``, by source, a list
            of times and values of held events; and ``hidden``, the names of specs whose state cannot be shown. Times
            are in ISO format. Long texts and lists are cut
        :raises AmadouError: the state cannot be read
        """

    def biggest(self, limit: int, stage: str = "") -> Mapping[str, Any]:
        """Return the keys with the most state, biggest first. Another process reads all state with low priority. This
        can take minutes, so call this method in a thread of your own.

        :param limit: maximum number of keys
        :param stage: the name of the stage; can be omitted if the job has only one
        :returns: values that can be written as JSON: ``batch``, the number of the last committed batch, or `None`; and
            ``keys``, a list of mappings: ``key``, as Python would show it, and cut if it is long; ``bytes``, the size
            of the key's state; ``timers``, the number of pending timers; and ``next``, the time in ISO format at which
            something is due for the key, or `None`. The state of vectorised windows is not counted
        :raises AmadouError: the state cannot be read, or this takes more than ten minutes; the checkpoint is not in the
            local file system
        """
