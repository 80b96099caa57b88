from functools import cached_property, partial
from typing import Any, ClassVar

MISSING: Any = type("Missing", (), {"__repr__": lambda self: "MISSING", "__reduce__": lambda self: "MISSING"})()


class Spec:
    """A named declaration in a handler, either of per-subject state or of an output port.

    A spec that is a class attribute is named after the attribute, unless `name=` is set. A spec created at run time
    needs a `name=`.
    """

    _name: str | None
    _usage: ClassVar[str] = "…"
    """Code that uses the spec in a callback, for messages; follows the spec's name and a dot."""
    _removal: ClassVar[str] = "…"
    """Code that clears the state in a callback, for messages; follows the spec's name and a dot."""
    _functions: ClassVar[tuple[str, ...]] = ()
    """Names of the functions that `_resolve` creates on the first call to any of them, because creating codecs is slow.
    The functions are instance attributes: looking up a property would take three times as long, and each event needs a
    lookup.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        if self._name is None:
            self._name = name

    @property
    def name(self) -> str:
        """The name of the stored state, or of the port in `Job(sinks=…)`."""
        if self._name is None:
            raise ValueError(
                f"{type(self).__name__} has no name: make it a class attribute of the handler, or pass name="
            )
        return self._name

    @property
    def given_name(self) -> str | None:
        """The name; `None` if the spec does not have a name yet."""
        return self._name

    def _defer(self) -> None:
        """Set up the `_functions` so that the first call to any of them creates all of them."""
        for name in self._functions:
            setattr(self, name, partial(self._resolved, name))

    def _resolved(self, name: str, value: Any) -> Any:
        self._resolve()
        return getattr(self, name)(value)

    def _resolve(self) -> None:
        """Create the functions that `_functions` lists."""

    def __getstate__(self) -> dict[str, Any]:
        # cattrs codecs cannot be pickled: the receiving process creates new codecs.
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
        """Raise an `UnsupportedTypeError` if there is no codec for a declared type."""
        raise NotImplementedError

    def shown_type(self) -> str:
        """Return the declared type or types as text."""
        raise NotImplementedError


def shown(type_: Any) -> str:
    """Return a type as readable text."""
    if isinstance(type_, type) and not hasattr(type_, "__args__"):
        return type_.__name__
    return str(type_).replace("typing.", "")
