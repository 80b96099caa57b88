"""Connections to PostgreSQL, with retries after errors that may be temporary."""

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
    # With these settings, a connection fails within a minute after the server disappears.
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}
_PASSING = ("08", "25006", "25P03", "40", "53", "55P03", "57")
"""SQLSTATE prefixes of errors that the batch did not cause: lost connections, a standby that is not promoted yet, idle
transactions that timed out, deadlocks, a lack of resources, busy locks, and servers that are stopping or starting.
"""
_logger = logging.getLogger("amadou")


@attrs.frozen
class Server:
    """The database of a sink, with the settings for connecting to the database.

    :param label: name of the sink, for messages
    """

    label: str
    url: str
    username: str | None
    password: Secret | None
    give_up_after: timedelta

    @contextmanager
    def connected(self) -> Iterator[Any]:
        """Open a connection and begin a transaction. The transaction is committed at the end of the `with` block, or
        rolled back if the block raises an error.

        :raises SinkError: psycopg is not installed, the connection fails, or PostgreSQL rejects a statement
        """
        try:
            import psycopg
        except ImportError as error:
            raise SinkError(f"{self.label} needs psycopg: run pip install 'amadou[postgres]' ({error})") from error
        try:
            with self._connect() as connection:
                yield connection
        except psycopg.Error as error:
            if not _may_pass(error):
                raise self.refused(error) from error
            text = _one_line(error)
            advice = "username= and password=" if "password" in text else "the url, and that PostgreSQL is running"
            raise SinkError(f"{self.label}: {text}. Check {advice}") from error

    def patiently(self, work: Callable[[Any], T]) -> T:
        """Call a function in a new transaction, and return the function's result. After an error that may be temporary,
        such as a lost connection, call the function again.

        :param work: function that is called with the connection
        :raises SinkError: the errors continue for longer than `give_up_after`, or PostgreSQL rejects a statement
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
                    self._warn(f"{text}; the run waits and retries for up to {limit:g} s")
                left = since + limit - time.monotonic()
                if left <= 0:
                    raise SinkError(
                        f"{self.label}: {text}; retried for {limit:g} s (give_up_after). Check PostgreSQL, and restart "
                        "the job from its checkpoint. The job resumes with this batch"
                    ) from error
                time.sleep(min(left, pause))
                pause = min(2 * pause, _LONGEST_PAUSE)
        if since is not None:
            self._warn(f"PostgreSQL answers again after {time.monotonic() - since:.3g} s; the run continues")
        return done

    def refused(self, error: Any, advice: str = "") -> SinkError:
        """Return the error for a statement that PostgreSQL rejected. The error contains the PostgreSQL error message.

        :param advice: advice to append to the PostgreSQL error message
        """
        said = error.diag
        parts = [said.message_primary or _one_line(error), said.message_detail, said.message_hint, advice]
        return SinkError(f"{self.label}: PostgreSQL reports: {'; '.join(filter(None, parts))}")

    def _connect(self) -> Any:
        import psycopg
        from psycopg.conninfo import conninfo_to_dict

        login = {"user": self.username, "password": revealed(self.password)}
        given = {name: value for name, value in login.items() if value is not None}
        # some poolers do not support prepared statements
        return psycopg.connect(**{**_SETTINGS, **conninfo_to_dict(self.url), **given}, prepare_threshold=None)

    def _warn(self, text: str) -> None:
        _logger.warning("%s", SinkError(f"{self.label}: {text}"))  # errors hide secrets


def _may_pass(error: Any) -> bool:
    import psycopg

    if error.sqlstate is None:  # the error is not from the server
        return isinstance(error, psycopg.OperationalError)
    return str(error.sqlstate).startswith(_PASSING)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
