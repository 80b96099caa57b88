"""Checks the form of stored state, which may come from somebody else."""

from collections.abc import Iterable
from typing import Any

from amadou.event_time import BEGINNING_OF_TIME, END_OF_TIME


def are_times(values: Iterable[Any]) -> bool:
    """Return `True` if all values are times in microseconds."""
    return all(type(value) is int and BEGINNING_OF_TIME <= value <= END_OF_TIME for value in values)


def are_rows(rows: Any, width: int, first: int | None = None, last: int = 0) -> bool:
    """Return `True` if a value is a list of rows. A row is a list that begins with a number of events.

    :param width: number of items of a row
    :param first: the position of the earliest time in a row; `None` if a row has no times
    :param last: the position of the latest time in a row
    """
    return type(rows) is list and _have_form(rows, width, first, last)


def is_by_time(rows: Any, width: int, first: int | None = None, last: int = 0) -> bool:
    """Return `True` if a value is a dict with times as keys, and with rows as values; see `are_rows`."""
    return type(rows) is dict and are_times(rows) and _have_form(rows.values(), width, first, last)


def _have_form(rows: Iterable[Any], width: int, first: int | None, last: int) -> bool:
    # a loop, as nearly all keys have one or two rows
    for row in rows:
        if type(row) is not list or len(row) != width or type(row[0]) is not int:
            return False
        if first is None:
            continue
        earliest, latest = row[first], row[last]
        if type(earliest) is not int or type(latest) is not int:
            return False
        if not BEGINNING_OF_TIME <= earliest <= latest <= END_OF_TIME:
            return False
    return True
