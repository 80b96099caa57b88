"""Settings for reading the rows of a PostgreSQL table."""

import re
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import attrs

from amadou import Param, Secret
from amadou.errors import AmadouError
from amadou_plugins.connectors._settings import check_secret, has_password, revealed


def _names(value: str | Sequence[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


@attrs.frozen
class RowSettings:
    """Settings for reading the rows of a table by their key; see `PostgresTable` and `PostgresRows`."""

    url: str | Param
    table: str | Param
    key: tuple[str, ...] = attrs.field(converter=_names, kw_only=True)
    columns: tuple[str, ...] | None = attrs.field(
        default=None, converter=attrs.converters.optional(_names), kw_only=True
    )
    row: Callable[..., Any] = attrs.field(default=dict, kw_only=True)
    username: str | Param | None = attrs.field(default=None, kw_only=True)
    password: Secret | Param | None = attrs.field(default=None, kw_only=True)
    _error: ClassVar[type[AmadouError]]
    """The type of the errors for invalid settings."""

    def __attrs_post_init__(self) -> None:
        label = type(self).__name__
        if isinstance(self.url, Secret) or (isinstance(self.url, str) and has_password(self.url)):
            raise self._error(f"{label}: pass the password in password=, not in the url, which is no secret")
        if isinstance(self.url, str) and not re.match(r"postgres(ql)?://", self.url):
            raise self._error(f"{label}: the url must begin with postgresql://, not {self.url!r}")
        if not self.key:
            raise self._error(f"{label}: key must name at least one column")
        check_secret(self._error, f"{label}: password", self.password)

    def _identifier(self) -> Any:
        from psycopg.sql import Identifier

        return Identifier(*str(self.table).split("."))

    def _connected(self, **settings: Any) -> Any:
        """Return a new connection, whose rows are dicts.

        :param settings: settings of psycopg
        :raises ImportError: psycopg is not installed
        """
        import psycopg
        from psycopg.rows import dict_row

        login = {"user": self.username, "password": revealed(self.password)}
        given = {name: value for name, value in login.items() if value is not None}
        return psycopg.connect(
            str(self.url), row_factory=dict_row, application_name="amadou", connect_timeout=10, **settings, **given
        )
