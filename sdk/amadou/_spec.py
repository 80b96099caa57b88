from functools import cached_property, partial
from typing import Any, ClassVar

MISSING: Any = type("Missing", (), {"__repr__": lambda self: "MISSING", "__reduce__": lambda self: "MISSING"})()


class Spec:
    """A declaration of a handler under a name: state of a subject, or an output port.

    A spec that is a class attribute has the attribute's name unless it is given a `name=`; a spec that is made at run
    time needs a `name=`.
    """

    _name: str | None
    _usage: ClassVar[str] = "…"
    """Usage of the spec in a callback, after its name and a dot."""
    _removal: ClassVar[str] = "…"
    """Code that clears the state in a callback, likewise."""
    _functions: ClassVar[tuple[str, ...]] = ()
    """Attributes that `_resolve` makes when the first of them is called, since codecs take long to make. They are
    instance attributes: the lookup of a property takes three times as long, for every event.
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
        """The name; `None` before the spec has one."""
        return self._name

    def _defer(self) -> None:
        """Make all of `_functions` on the first call of one of them."""
        for name in self._functions:
            setattr(self, name, partial(self._resolved, name))

    def _resolved(self, name: str, value: Any) -> Any:
        self._resolve()
        return getattr(self, name)(value)

    def _resolve(self) -> None:
        """Make the attributes that `_functions` names."""

    def __getstate__(self) -> dict[str, Any]:
        # The receiving process makes the codecs again: those of cattrs cannot be pickled.
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
        """Return the declared type or types, for people."""
        raise NotImplementedError


def shown(type_: Any) -> str:
    """Return the text of a type, for people."""
    if isinstance(type_, type) and not hasattr(type_, "__args__"):
        return type_.__name__
    return str(type_).replace("typing.", "")
