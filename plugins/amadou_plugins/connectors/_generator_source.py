import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import attrs

from amadou import Param
from amadou.errors import SourceError
from amadou.plugins import Source
from amadou_plugins.connectors._function_source import Function, loaded_function
from amadou_plugins.connectors._settings import check_count


def _loaded(function: Callable[[int, random.Random], Any] | str | Param) -> Any:
    return loaded_function(function, "GeneratorSource needs function(number, random)", SourceError)


@attrs.frozen
class GeneratorSource(Source):
    """Calls a function with each record's number to generate records for demonstrations and load tests.

    If the function depends only on its arguments, the same number always produces the same record: on either engine,
    with any batch size, and after a restart. So derive timestamps from the number, too.

    On Spark, records become due at the `rate` in wall-clock time, so a slow batch is followed by a large batch. No
    records become due while the job is stopped. The embedded engine ignores the `rate`: all records are due
    immediately.

    :param function: function ``function(number, random)`` that returns a record; or the function's name, as
        ``module:function``. Numbers begin at 0; `random` is a `random.Random`, seeded with `seed` and the number
    :param rate: records per second; by default all records are due immediately
    :param count: number of records; by default the source is unbounded
    :param seed: seed for the random numbers
    :param key_event: function that converts records into events; by default, the handler's `key_event`
    :raises SourceError: a setting is invalid, or neither `rate` nor `count` is set
    """

    function: Function | Param = attrs.field(converter=_loaded)
    rate: float | Param | None = attrs.field(default=None, kw_only=True)
    count: int | Param | None = attrs.field(default=None, kw_only=True)
    seed: int | Param = attrs.field(default=0, kw_only=True)
    key_event: Callable[[Any], Any] | None = attrs.field(default=None, kw_only=True)

    def __attrs_post_init__(self) -> None:
        rate, count = self.rate, self.count
        if not isinstance(rate, Param | None) and not _is_rate(rate):
            raise SourceError(f"rate must be a positive, finite number of records per second, not {rate!r}")
        check_count(SourceError, "count", count, optional=True)
        if not isinstance(self.seed, Param) and type(self.seed) is not int:
            raise SourceError(f"seed must be an integer, not {self.seed!r}")
        if rate is None and count is None:
            raise SourceError("GeneratorSource needs a rate or a count: set rate=, count= or both")

    @property
    def bounded(self) -> bool:
        return self.count is not None

    def records(self) -> Iterator[Any]:
        return self._made(range(self._number()))

    def read_from(self, position: Any) -> tuple[list[tuple[str, Iterable[Any]]], int]:
        """Return the remaining records; the position is the number of records read."""
        first = position or 0
        end = max(first, self._number())
        return [("", self._made(range(first, end)))], end

    def position_at(self, offset: Any, files: Mapping[str, str]) -> Any:
        return offset["records"]

    def offset_at(self, position: Any) -> tuple[Any, Mapping[str, str]]:
        return {"records": position}, {}

    def _number(self) -> int:
        """Return the number of records of a bounded source."""
        if self.count is None:
            raise SourceError(
                "the embedded engine reads all records from a source, but this GeneratorSource is unbounded: set "
                "count, or run the job with engine='spark'"
            )
        assert isinstance(self.count, int)
        return self.count

    def read_stream(self, spark: Any, reader: Any, name: str, checkpoint: str) -> Any:
        from amadou_plugins.connectors._generator_stream import GeneratorStream  # needs pyspark

        spark.dataSource.register(GeneratorStream)
        reader = reader.format(GeneratorStream.name()).option("parts", spark.sparkContext.defaultParallelism)
        for option, value in (("rate", self.rate), ("count", self.count)):
            if value is not None:
                reader = reader.option(option, value)
        return reader.load().selectExpr("struct(start, end) AS record", "'' AS partition", "start AS position")

    def to_records(self, cells: Any) -> Iterable[Any]:
        """Yield the records whose numbers are in the ranges that the cells contain."""
        for part in cells.to_pylist():
            yield from self._made(range(part["start"], part["end"]))

    def _made(self, numbers: range) -> Iterator[Any]:
        assert isinstance(self.function, Function)
        function = self.function.call
        seeded = random.Random()
        for number in numbers:
            seeded.seed(f"{self.seed}:{number}")
            try:
                record = function(number, seeded)
            except Exception as error:
                cause = f"{type(error).__name__}: {error}"
                raise SourceError(f"{self.function} failed for record number {number}: {cause}") from error
            yield record


def _is_rate(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf
