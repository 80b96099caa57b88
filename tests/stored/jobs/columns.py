"""Jobs with vectorised windows, whose state is stored for whole key groups. Fixtures were made with them: never change
them.
"""

from datetime import datetime, timedelta, timezone

from amadou import Job
from amadou_plugins.aggregates import ArgMax, Count, DistinctCount, First, Max, Mean, Min, MovingAverage, Sum, Variance
from amadou_plugins.connectors import JsonLinesSink, LinesSource
from amadou_plugins.windows import HoppingWindow, SessionWindow, TumblingWindow, windowed

BEGIN = datetime(2025, 1, 1, tzinfo=timezone.utc)
MINUTE = timedelta(minutes=1)
MERGEABLE = {
    "n": Count(),
    "sum": Sum("value"),
    "mean": Mean("value"),
    "min": Min("value"),
    "max": Max("value"),
    "arg max": ArgMax("text", "value"),
    "distinct": DistinctCount("text"),
    "variance": Variance("value"),
}
WINDOWS = {
    "tumbling": TumblingWindow(MINUTE, MERGEABLE, allowed_lateness=MINUTE / 6),
    "hopping": HoppingWindow(2 * MINUTE, MINUTE, MERGEABLE),
    "hopping-events": HoppingWindow(2 * MINUTE, MINUTE, {"n": Count(), "moving": MovingAverage("value", 2)}),
    "session": SessionWindow(MINUTE / 2, MERGEABLE),
    "session-ordered": SessionWindow(MINUTE / 2, {"n": Count(), "first": First("text")}),
}


def columns_job(window: str, place: str, out: str, store: str, key_groups: int) -> Job:
    return Job(
        f"columns {window}",
        windowed(key="key", timestamp="timestamp", window=WINDOWS[window]),
        {"in": LinesSource(f"{place}/in/in/", max_files_per_batch=1)},
        {"results": JsonLinesSink(f"{out}/results")},
        watermark_delay=MINUTE / 6,
        key_groups=key_groups,
        state=store,
    )
