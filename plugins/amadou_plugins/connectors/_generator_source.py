import math
import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import attrs

from amadou import Param, Source
from amadou.errors import SourceError
from amadou_plugins.connectors._function_source import Function, loaded_function
from amadou_plugins.connectors._settings import check_count


def _loaded(function: Callable[[int, random.Random], Any] | str | Param) -> Any:
    return loaded_function(function, "GeneratorSource needs function(number, random)", SourceError)


@attrs.frozen
class GeneratorSource(Source):
    """Generates each record with a function of its number: for demonstrations and load tests.

    A number's record is the same on each engine, however records are cut into batches, and after a restart, as long as
    the function depends only on its arguments: best derive timestamps from the number, too.

    On Spark the records of a `rate` become due by the clock: a large batch follows a slow one. The clock starts with
    each run, so no records become due while the job does not run. The embedded engine has no clock and takes all
    records at once.

    :param function: ``function(number, random)``, which returns a record, or its name, ``module:function``. Numbers
        begin at 0; `random` is a `random.Random` that depends on `seed` and number
    :param rate: records a second; without it all are due at once
    :param count: number of records; without it the source does not end
    :param seed: seed of the random numbers
    :param key_event: function that turns records into events, instead of the handler's own
    :raises SourceError: a setting is invalid, or neither `rate` nor `count` is given
    """

    function: Function | Param = attrs.field(converter=_loaded)
    rate: float | Param | None = attrs.field(default=None, kw_only=True)
    count: int | Param | None = attrs.field(default=None, kw_only=True)
    seed: int | Param = attrs.field(default=0, kw_only=True)
    key_event: Callable[[Any], Any] | None = attrs.field(default=None, kw_only=True)

    def __attrs_post_init__(self) -> None:
        rate, count = self.rate, self.count
        if not isinstance(rate, Param | None) and not _is_rate(rate):
            raise SourceError(f"rate must be a number of records a second, above zero, not {rate!r}")
        check_count(SourceError, "count", count, optional=True)
        if not isinstance(self.seed, Param) and type(self.seed) is not int:
            raise SourceError(f"seed must be a whole number, not {self.seed!r}")
        if rate is None and count is None:
            raise SourceError("GeneratorSource needs a rate or a count: it would make endless records at once")

    @property
    def bounded(self) -> bool:
        return self.count is not None

    def records(self) -> Iterator[Any]:
        if self.count is None:
            raise SourceError(
                "the embedded engine plays all records at once, and this GeneratorSource has no end: give it a count, "
                "or run the job with engine='spark'"
            )
        assert isinstance(self.count, int)
        return self._made(range(self.count))

    def read_stream(self, spark: Any, reader: Any, name: str, checkpoint: str) -> Any:
        from amadou_plugins.connectors._generator_stream import GeneratorStream  # needs pyspark

        spark.dataSource.register(GeneratorStream)
        reader = reader.format(GeneratorStream.name()).option("parts", spark.sparkContext.defaultParallelism)
        for option, value in (("rate", self.rate), ("count", self.count)):
            if value is not None:
                reader = reader.option(option, value)
        return reader.load().selectExpr("struct(start, end) AS record", "'' AS partition", "start AS position")

    def to_records(self, cells: Any) -> Iterable[Any]:
        """Yield the records of ranges of numbers."""
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
                told = f"{type(error).__name__}: {error}"
                raise SourceError(f"{self.function} made no record of number {number}: {told}") from error
            yield record


def _is_rate(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf
