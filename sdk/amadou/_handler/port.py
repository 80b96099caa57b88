from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Generic, TypeVar

from typing_extensions import TypeForm

from amadou._connectors.codec import Codec, codec_for
from amadou._handler.event import Key
from amadou._handler.subject import Subject
from amadou._state.spec import Spec, shown
from amadou.errors import EncodeError, PortError

T = TypeVar("T")


class SinkSpec(Spec, Generic[T]):
    """An output port. A handler can have any number of ports; `Job(sinks=…)` connects each port to its sinks.

    :param type: the type of the collected values; any type that `codec_for` supports
    :param name: the port's name; by default the attribute's name
    :param codec: codec for the values, for types that `codec_for` does not support, or the name of a codec that a
        plugin registers, such as ``"json"``
    """

    _usage = _removal = "collect(subject, …)"

    def __init__(self, type: TypeForm[T], *, name: str | None = None, codec: Codec[T] | str | None = None) -> None:
        self.type: Any = type
        self._name = name
        self.codec = codec

    def collect(self, subject: Subject, value: T) -> None:
        """Emit a value to the port. The value is committed with the batch, unless the callback or the batch fails.

        :raises EncodeError: the value does not fit the port's type, or the sink does not support it
        :raises PortError: the job has no sink for this port
        """
        port = subject._batch.ports.get(self._name)  # type: ignore[arg-type]
        if port is None:
            raise PortError(self.name, tuple(subject._batch.ports))
        try:
            port.collect(subject.key, subject.timestamp, value)
        except EncodeError as error:
            raise EncodeError(value, self.type, error.why, self.name, subject.key) from error

    def collect_rows(
        self,
        subject: Subject,
        rows: list[tuple[Any, ...]],
        *,
        keys: Sequence[Key] = (),
        timestamps: Sequence[datetime] = (),
    ) -> None:
        """Emit values of a named tuple class that are passed as plain tuples. The result is the same as with `collect`.
        If the port's codec has `encode_rows`, this method is faster.

        :param keys: the key for which each row is emitted; by default the subject's key
        :param timestamps: the time of the event or timer for which each row is emitted; by default the subject's
        :raises EncodeError: a value does not fit the port's type, or the sink does not support it
        :raises PortError: the job has no sink for this port
        """
        port = subject._batch.ports.get(self._name)  # type: ignore[arg-type]
        if port is not None and port.encode_rows is not None:
            with suppress(EncodeError):  # encoding one by one finds the value that fails
                port.encoded_values += port.encode_rows(rows)
                return
        for position, row in enumerate(rows):
            if keys:
                subject.key, subject.timestamp = keys[position], timestamps[position]
            self.collect(subject, self.type(*row))

    def feed_codec(self) -> Codec[Any]:
        """Return the codec with which values are passed to the stages that the port feeds.

        :raises UnsupportedTypeError: the port has no codec of its own, and its type is not supported
        """
        return codec_for(self.type) if self.codec is None or isinstance(self.codec, str) else self.codec

    def check(self) -> None:
        if self.codec is None:
            codec_for(self.type)

    def shown_type(self) -> str:
        return shown(self.type)

    def __repr__(self) -> str:
        return f"SinkSpec({self.shown_type()})"


def declared_specs(handler: Any) -> dict[str, Any]:
    """Return a handler's specs by attribute name: first the class attributes, then the instance attributes."""
    found: dict[str, Any] = {}
    for owner in reversed(type(handler).__mro__):
        found.update(vars(owner))
    found.update(getattr(handler, "__dict__", {}))
    return {attribute: spec for attribute, spec in found.items() if isinstance(spec, Spec)}
