"""Functions for `amadou.Lookup`: rows of a PostgreSQL table, and answers of an HTTP service."""

from amadou_plugins.lookups._http_get import HttpGet
from amadou_plugins.lookups._postgres_rows import PostgresRows

__all__ = ["HttpGet", "PostgresRows"]
