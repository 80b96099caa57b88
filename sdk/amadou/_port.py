from contextlib import suppress
from typing import Any, Generic, TypeVar

from typing_extensions import TypeForm

from amadou._codec import Codec, codec_for
from amadou._spec import Spec, shown
from amadou._subject import Subject
from amadou.errors import EncodeError, PortError

T = TypeVar("T")


class SinkSpec(Spec, Generic[T]):
    """An output port. A handler has any number of them; `Job(sinks=…)` says where each leads.

    :param type: the type of what is collected; any that `codec_for` knows
    :param name: the port's name; the attribute's name without it
    :param codec: turns values into what msgpack carries, for types that `codec_for` does not know; or the name of one
        that a plugin registers, such as ``"json"``
    """

    _usage = _removal = "collect(subject, …)"

    def __init__(self, type: TypeForm[T], *, name: str | None = None, codec: Codec[T] | str | None = None) -> None:
        self.type: Any = type
        self._name = name
        self.codec = codec

    def collect(self, subject: Subject, value: T) -> None:
        """Give a value to the port. It leaves with the batch: once, or not at all where the batch fails.

        :raises EncodeError: the value does not fit the port's type, or the sink cannot carry it
        :raises PortError: the job has no sink for this port
        """
        port = subject._batch.ports.get(self._name)  # type: ignore[arg-type]
        if port is None:
            raise PortError(self.name, tuple(subject._batch.ports))
        try:
            port.encoded_values.append(port.encode(value))
        except EncodeError as error:
            raise EncodeError(value, self.type, error.why, self.name, subject.key) from error

    def collect_rows(self, subject: Subject, rows: list[tuple[Any, ...]]) -> None:
        """Give values of a named tuple's class to the port as plain tuples: as `collect` does, and faster where the
        sink's codec has `encode_rows`.

        :raises EncodeError: a value does not fit the port's type, or the sink cannot carry it
        :raises PortError: the job has no sink for this port
        """
        port = subject._batch.ports.get(self._name)  # type: ignore[arg-type]
        if port is not None and port.encode_rows is not None:
            with suppress(EncodeError):  # one by one tells which
                port.encoded_values += port.encode_rows(rows)
                return
        for row in rows:
            self.collect(subject, self.type(*row))

    def check(self) -> None:
        if self.codec is None:
            codec_for(self.type)

    def shown_type(self) -> str:
        return shown(self.type)

    def __repr__(self) -> str:
        return f"SinkSpec({self.shown_type()})"


def declared_specs(handler: Any) -> dict[str, Any]:
    """The specs of a handler by attribute: its classes' first, then those that the instance was given."""
    found: dict[str, Any] = {}
    for owner in reversed(type(handler).__mro__):
        found.update(vars(owner))
    found.update(getattr(handler, "__dict__", {}))
    return {attribute: spec for attribute, spec in found.items() if isinstance(spec, Spec)}
