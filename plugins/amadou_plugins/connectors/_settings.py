"""Checks the settings of connectors. A `Param` is checked later, once it has a value."""

import logging
import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from amadou import Param, Secret
from amadou.errors import AmadouError

_PASSWORD = re.compile(
    r"//[^/?#\s\[]*:(?!\d+(,[^/?#\s,:@]*:\d+)*[/?#])\S+@"
    r"|^jdbc:oracle:[^/@]*/[^/@]+@"
    r"|(^|[?&;,(])\s*[\w.-]*(password|passphrase|pwd|secret|token|(access|account|api)[._-]?key|credential)[\w.-]*"
    r"\s*=\s*[^=\s]",
    re.IGNORECASE,
)
"""Pattern that finds a password in a URL or connection string: in the login, or in a parameter."""


def check_count(error: type[AmadouError], name: str, value: Any, *, optional: bool = False) -> None:
    """Raise an error unless a setting is a positive integer. An optional setting can also be `None`."""
    if value is None and optional:
        return
    if not isinstance(value, Param) and (type(value) is not int or value < 1):
        raise error(f"{name} must be a positive integer, not {value!r}")


def check_time(error: type[AmadouError], name: str, value: Any) -> None:
    """Raise an error unless a setting is a positive `timedelta`."""
    if not isinstance(value, Param) and (not isinstance(value, timedelta) or value <= timedelta(0)):
        raise error(f"{name} must be a positive timedelta, not {value!r}")


def check_secret(error: type[AmadouError], name: str, value: Any) -> None:
    """Raise an error unless a confidential setting is a `Secret`, a `Param` or `None`."""
    if not isinstance(value, Secret | Param | None):
        raise error(f"{name} must be a Secret, or a Param with secret=True")


def has_password(url: str) -> bool:
    """Return `True` if a URL or connection string contains a password, also one that is not encoded."""
    return _PASSWORD.search(url) is not None


def check_no_password(error: type[AmadouError], what: str, value: Any, instead: str) -> None:
    """Raise an error if a setting is a string that contains a password, which would appear in logs.

    :param what: the connector and the setting, for the error
    :param instead: what to do, for the error
    """
    if isinstance(value, str) and has_password(value):
        raise error(f"{what} contains a password, which would appear in logs: {instead}")


def check_options(error: type[AmadouError], connector: str, options: Mapping[str, Any]) -> None:
    """Raise an error if an option that is not a `Secret` contains a password, which would appear in logs.

    :param connector: name of the connector's class, for the error
    """
    for name, value in options.items():
        instead = "pass it in a separate secret option, or make the entire value a Secret or a Param with secret=True"
        check_no_password(error, f"{connector}: the option {name!r}", value, instead)


def revealed(value: Any) -> Any:
    """Return a setting's value; for a `Secret`, return the revealed value."""
    return value.reveal() if isinstance(value, Secret) else value


def keep_out_of_logs(url: Any) -> None:
    """If a URL is a `Secret`, keep urllib3 from logging requests at debug level, which would show the URL."""
    if isinstance(url, Secret):
        logging.getLogger("urllib3.connectionpool").addFilter(_is_above_debug)


def _is_above_debug(record: logging.LogRecord) -> bool:
    return record.levelno > logging.DEBUG
