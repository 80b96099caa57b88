"""Classes whose annotations are strings, because their module postpones them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from nowhere import Missing  # type: ignore[import-not-found]


@attrs.frozen
class Outer:
    inners: list[Inner]
    by_name: dict[str, Inner | None]


@attrs.frozen
class Inner:
    when: datetime


@dataclass
class Record:
    number: int
    inner: Inner | None = None


@attrs.frozen
class Dangling:
    missing: Missing
