"""Connections to PostgreSQL: what is tried again, and what is said of what is not."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import attrs

from amadou import Secret
from amadou.errors import SinkError
from amadou_plugins.connectors._settings import revealed

T = TypeVar("T")
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0
_SETTINGS: dict[str, Any] = {
    "application_name": "amadou",
    "connect_timeout": 10,
    # A server that vanished is noticed within a minute.
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}
_PASSING = ("08", "25006", "25P03", "40", "53", "55P03", "57")
"""How the codes begin of errors that are no fault of the batch: lost connections, a standby that is not promoted yet, a
transaction that idled, deadlocks, a lack of resources, locks, servers that shut down or start.
"""
_logger = logging.getLogger("amadou")


@attrs.frozen
class Server:
    """How a sink reaches its database.

    :param told: the sink, for messages
    """

    told: str
    url: str
    username: str | None
    password: Secret | None
    give_up_after: timedelta

    @contextmanager
    def connected(self) -> Iterator[Any]:
        """A connection and a transaction on it, which is committed at the end.

        :raises SinkError: psycopg is missing, there is no connection, or PostgreSQL refuses something
        """
        try:
            import psycopg
        except ImportError as error:
            raise SinkError(f"{self.told} needs psycopg: run pip install 'amadou[postgres]' ({error})") from error
        try:
            with self._connect() as connection:
                yield connection
        except psycopg.Error as error:
            if not _may_pass(error):
                raise self.refused(error) from error
            text = _one_line(error)
            advice = "username= and password=" if "password" in text else "its url, and that PostgreSQL runs"
            raise SinkError(f"{self.told}: {text}. Check {advice}") from error

    def patiently(self, work: Callable[[Any], T]) -> T:
        """What some work on a connection gives, in a transaction of its own; it is done again where the connection is
        lost, also in the middle.

        :raises SinkError: the connection does not come back, or PostgreSQL refuses something
        """
        import psycopg

        since, pause, limit = None, _FIRST_PAUSE, self.give_up_after.total_seconds()
        while True:
            try:
                with self._connect() as connection:
                    done = work(connection)
                break
            except psycopg.Error as error:
                if not _may_pass(error):
                    raise self.refused(error) from error
                text = _one_line(error)
                if since is None:
                    since = time.monotonic()
                    self._warn(f"{text}; the run waits, and tries again for up to {limit:g} s")
                left = since + limit - time.monotonic()
                if left <= 0:
                    raise SinkError(
                        f"{self.told}: {text}; tried again for {limit:g} s (give_up_after). See to PostgreSQL, and "
                        "start the run again: with its checkpoint it goes on with this batch"
                    ) from error
                time.sleep(min(left, pause))
                pause = min(2 * pause, _LONGEST_PAUSE)
        if since is not None:
            self._warn(f"PostgreSQL is back after {time.monotonic() - since:.3g} s; the run goes on")
        return done

    def refused(self, error: Any, advice: str = "") -> SinkError:
        """The error for what PostgreSQL refuses, with its own message.

        :param advice: what to do, where PostgreSQL does not say
        """
        said = error.diag
        told = [said.message_primary or _one_line(error), said.message_detail, said.message_hint, advice]
        return SinkError(f"{self.told}: PostgreSQL refuses: {'; '.join(filter(None, told))}")

    def _connect(self) -> Any:
        import psycopg
        from psycopg.conninfo import conninfo_to_dict

        login = {"user": self.username, "password": revealed(self.password)}
        given = {name: value for name, value in login.items() if value is not None}
        # prepared statements do not pass every pooler
        return psycopg.connect(**{**_SETTINGS, **conninfo_to_dict(self.url), **given}, prepare_threshold=None)

    def _warn(self, text: str) -> None:
        _logger.warning("%s", SinkError(f"{self.told}: {text}"))  # errors hide secrets


def _may_pass(error: Any) -> bool:
    import psycopg

    if error.sqlstate is None:  # not from the server
        return isinstance(error, psycopg.OperationalError)
    return str(error.sqlstate).startswith(_PASSING)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
