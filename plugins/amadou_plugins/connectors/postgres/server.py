"""Connections to PostgreSQL: the retries, and the errors that are not retried."""

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
    # A vanished server is noticed within a minute.
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}
_PASSING = ("08", "25006", "25P03", "40", "53", "55P03", "57")
"""First characters of the codes of errors that the batch did not cause: lost connections, a standby not promoted yet, a
transaction that idled, deadlocks, a lack of resources, locks, servers that shut down or start.
"""
_logger = logging.getLogger("amadou")


@attrs.frozen
class Server:
    """A sink's database, with the settings to reach it.

    :param told: the sink, for messages
    """

    told: str
    url: str
    username: str | None
    password: Secret | None
    give_up_after: timedelta

    @contextmanager
    def connected(self) -> Iterator[Any]:
        """Open a connection with a transaction, which is committed at the end.

        :raises SinkError: psycopg is missing, there is no connection, or PostgreSQL refuses a statement
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
        """Return the result of some work on a connection, in a transaction of its own; the work is retried if the
        connection is lost, even midway.

        :raises SinkError: the connection does not come back, or PostgreSQL refuses a statement
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
        """Return the error for a statement that PostgreSQL refuses, with PostgreSQL's own message.

        :param advice: advice, if PostgreSQL gives none
        """
        said = error.diag
        told = [said.message_primary or _one_line(error), said.message_detail, said.message_hint, advice]
        return SinkError(f"{self.told}: PostgreSQL refuses: {'; '.join(filter(None, told))}")

    def _connect(self) -> Any:
        import psycopg
        from psycopg.conninfo import conninfo_to_dict

        login = {"user": self.username, "password": revealed(self.password)}
        given = {name: value for name, value in login.items() if value is not None}
        # some poolers do not support prepared statements
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
