"""Checks and values of the settings of connectors. A `Param` is checked when it has its value."""

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from amadou import Param, Secret
from amadou.errors import AmadouError

_PASSWORD = re.compile(
    r"//[^/?#\s]*:[^/?#\s]+@"
    r"|^jdbc:oracle:[^/@]*/[^/@]+@"
    r"|(^|[?&;])\s*[\w.-]*(password|passphrase|pwd|secret|token|(access|account)[._-]?key|credential)[\w.-]*=[^=]",
    re.IGNORECASE,
)
"""Pattern of a password in an address: in a login, or as one of its settings."""


def check_count(error: type[AmadouError], name: str, value: Any, *, optional: bool = False) -> None:
    """Raise unless a setting is a whole number from 1, or `None` if it is optional."""
    if value is None and optional:
        return
    if not isinstance(value, Param) and (type(value) is not int or value < 1):
        raise error(f"{name} must be a whole number from 1, not {value!r}")


def check_time(error: type[AmadouError], name: str, value: Any) -> None:
    """Raise unless a setting is a duration above zero."""
    if not isinstance(value, Param) and (not isinstance(value, timedelta) or value <= timedelta(0)):
        raise error(f"{name} must be a timedelta above zero, not {value!r}")


def check_secret(error: type[AmadouError], name: str, value: Any) -> None:
    """Raise unless a setting that must not be shown is a secret or a parameter."""
    if not isinstance(value, Secret | Param | None):
        raise error(f"{name} must be a Secret, or a Param with secret=True")


def check_options(error: type[AmadouError], connector: str, options: Mapping[str, Any]) -> None:
    """Raise if an option, which would be shown, contains a password.

    :param connector: the connector's class
    """
    for name, value in options.items():
        if isinstance(value, str) and _PASSWORD.search(value):
            raise error(
                f"{connector}: there is a password in the option {name!r}, which is shown: put it into an option of "
                "its own, as a Secret or a Param with secret=True, or let the whole value be one"
            )


def revealed(value: Any) -> Any:
    """Return the value of a setting that may be a secret."""
    return value.reveal() if isinstance(value, Secret) else value
