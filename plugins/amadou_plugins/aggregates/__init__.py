"""Aggregates for the events of a window or a key.

Most aggregates have an `of` parameter, which selects the value to aggregate. `of` is the name of a field of the event's
value (a mapping key or an attribute), a function of the event, or `None` for the event's value itself::

    Sum("price")
    Mean(lambda event: event.value.price * event.value.quantity)
    CompositeAggregate({"n": Count(), "p99": Quantiles("ms", [0.99])})

`None` and NaN are missing values. Every built-in aggregate skips missing values, except that `Count()` counts every
event.

The result of an aggregate that sets `ordered`, such as `First`, depends on the order of the events. The results of all
other built-in aggregates are the same to the last bit, regardless of the order in which events are added and
accumulators are merged. Sums of floats are exact and rounded once.

Built-in aggregates break ties by a fixed order of values: numbers in numerical order, then strings, bytes, aware
datetimes, dates, durations, and finally all other values, by a canonical string. Equal numbers of different types are
ordered by type name.

A custom aggregate needs the methods `create`, `add`, `result` and, unless the aggregate sets `mergeable = False`,
`merge`. The base class `Aggregate` documents these methods, and has default implementations of all other methods.
"""

from amadou_plugins.aggregates._aggregate import Aggregate
from amadou_plugins.aggregates._composite import CompositeAggregate, aggregate_of
from amadou_plugins.aggregates._count import Count
from amadou_plugins.aggregates._distinct import DistinctCount
from amadou_plugins.aggregates._errors import AggregateError, MissingFieldError, NotAnAggregateError, ValueKindError
from amadou_plugins.aggregates._extremes import ArgMax, ArgMin, Max, Min
from amadou_plugins.aggregates._foreign import AggregateLike
from amadou_plugins.aggregates._moments import Correlation, Covariance, StdDev, Variance
from amadou_plugins.aggregates._moving import MovingAverage
from amadou_plugins.aggregates._quantiles import Median, Quantiles
from amadou_plugins.aggregates._reduce import Reduce
from amadou_plugins.aggregates._running import RunningSpec, RunningState
from amadou_plugins.aggregates._stream import Collect, First, Last
from amadou_plugins.aggregates._times import Earliest, Latest
from amadou_plugins.aggregates._top import TopK
from amadou_plugins.aggregates._totals import Mean, Sum
from amadou_plugins.aggregates._truth import AllOf, AnyOf

__all__ = [
    "Aggregate",
    "AggregateError",
    "AggregateLike",
    "AllOf",
    "AnyOf",
    "ArgMax",
    "ArgMin",
    "Collect",
    "CompositeAggregate",
    "Correlation",
    "Count",
    "Covariance",
    "DistinctCount",
    "Earliest",
    "First",
    "Last",
    "Latest",
    "Max",
    "Mean",
    "Median",
    "Min",
    "MissingFieldError",
    "MovingAverage",
    "NotAnAggregateError",
    "Quantiles",
    "Reduce",
    "RunningSpec",
    "RunningState",
    "StdDev",
    "Sum",
    "TopK",
    "ValueKindError",
    "Variance",
    "aggregate_of",
]
