from functools import cached_property, partial
from typing import Any, ClassVar

MISSING: Any = type("Missing", (), {"__repr__": lambda self: "MISSING", "__reduce__": lambda self: "MISSING"})()


class Spec:
    """What a handler declares under a name: state of a subject, or an output port.

    As a class attribute it takes the attribute's name, unless `name=` says otherwise; one that is made at run time
    needs a `name=`.
    """

    _name: str | None
    _usage: ClassVar[str] = "…"
    """How a callback uses it, after its name and a dot."""
    _removal: ClassVar[str] = "…"
    """How a callback forgets what it holds, likewise."""
    _functions: ClassVar[tuple[str, ...]] = ()
    """Attributes that `_resolve` makes when the first of them is called, since codecs take long to make. Attributes of
    the instance alone, since Python looks a property up three times as long, in every event.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        if self._name is None:
            self._name = name

    @property
    def name(self) -> str:
        """The name that the state is stored under, or that the port has in `Job(sinks=…)`."""
        if self._name is None:
            raise ValueError(
                f"{type(self).__name__} has no name: make it a class attribute of the handler or give name="
            )
        return self._name

    @property
    def given_name(self) -> str | None:
        """The name, or `None` before it has one."""
        return self._name

    def _defer(self) -> None:
        """Let the first call of one of `_functions` make them all."""
        for name in self._functions:
            setattr(self, name, partial(self._resolved, name))

    def _resolved(self, name: str, value: Any) -> Any:
        self._resolve()
        return getattr(self, name)(value)

    def _resolve(self) -> None:
        """Make what `_functions` names."""

    def __getstate__(self) -> dict[str, Any]:
        # Codecs are made anew where a job arrives: those of cattrs cannot be pickled.
        kind = type(self)
        return {
            name: value
            for name, value in vars(self).items()
            if name not in self._functions and not isinstance(vars(kind).get(name), cached_property)
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._defer()

    def check(self) -> None:
        """Raise an `UnsupportedTypeError` where no codec can be made for a declared type."""
        raise NotImplementedError

    def shown_type(self) -> str:
        """The declared type or types, for people."""
        raise NotImplementedError


def shown(type_: Any) -> str:
    """A type as a reader knows it."""
    if isinstance(type_, type) and not hasattr(type_, "__args__"):
        return type_.__name__
    return str(type_).replace("typing.", "")
