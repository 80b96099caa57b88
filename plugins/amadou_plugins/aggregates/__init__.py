"""Aggregates of the events of a window, or of a key.

Most take `of`, the value to aggregate: the name of a field of the event's value (a mapping's key, else an attribute), a
function of the event, or nothing for the event's value itself::

    Sum("price")
    Mean(lambda event: event.value.price * event.value.quantity)
    CompositeAggregate({"n": Count(), "p99": Quantiles("ms", [0.99])})

`None` and NaN are missing values, and every aggregate skips them; only `Count()` counts every event.

A result does not depend, to the last bit, on the order of the events or on how accumulators were merged: sums of floats
are exact and rounded once. Aggregates that do depend on the stream's order set `ordered`.

A fixed order of values decides ties: numbers by size, then texts, then bytes, then times, then dates, then durations,
then anything else by its content; equal numbers of different types by the names of their types.

Your own aggregate needs the methods `create`, `add`, `result` and, unless it sets `mergeable = False`, `merge`. The
base class `Aggregate` documents each, and has defaults for the rest.
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
