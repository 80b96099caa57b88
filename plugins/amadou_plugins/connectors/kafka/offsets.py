"""The offset ranges to read from a Kafka cluster."""

import re
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from amadou.errors import SourceError
from amadou.event_time import to_millis
from amadou_plugins.connectors.kafka.client import Admin, Cluster

EARLIEST, LATEST = "earliest", "latest"


class Range(NamedTuple):
    """A range of offsets in a partition, from `start` (inclusive) to `end` (exclusive)."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def name(self) -> str:
        """Name of the partition within the source."""
        return partition_name(self.topic, self.partition)


def partition_name(topic: str, partition: int) -> str:
    """Return the name of a partition within a source."""
    return f"{topic}-{partition}"


class Offsets:
    """Looks up the partitions of topics, and the offsets of partitions.

    :param topics: topics, or regular expressions that begin with ``^``
    """

    def __init__(self, cluster: Cluster, topics: Iterable[str]) -> None:
        self._cluster = cluster
        self._topics = tuple(topics)
        self._admin = Admin(cluster)

    @property
    def back(self) -> datetime | None:
        """Time at which the cluster answered again after the latest outage; `None` if there was no outage."""
        return self._admin.back

    def partitions(self) -> list[tuple[str, int]]:
        """Return the existing partitions of the topics, as pairs of topic and partition number.

        :raises AmadouError: a topic does not exist, or the cluster does not answer or refuses the request
        """
        known = self._admin.partitions()
        chosen: dict[str, None] = {}
        for topic in self._topics:
            matching = [name for name in known if re.match(topic, name)] if topic.startswith("^") else [topic]
            chosen |= dict.fromkeys(matching)
        missing = [name for name in chosen if name not in known]
        if missing:
            raise self._cluster.error(
                f"{self._cluster.label}: Kafka at {self._cluster.servers} has no topic {', '.join(missing)}: create "
                "the topic, correct the name, or grant this user permission to see the topic"
            )
        return [(name, partition) for name in chosen for partition in known[name]]

    def at(self, start: str | datetime, partitions: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """Return the offset at which to start reading each partition, for a `start` setting as in `KafkaSource`."""
        from confluent_kafka.admin import OffsetSpec

        partitions = list(partitions)
        if isinstance(start, str) and start in (EARLIEST, LATEST):
            spec = OffsetSpec.earliest() if start == EARLIEST else OffsetSpec.latest()
            return self._admin.offsets(dict.fromkeys(partitions, spec))
        time = start if isinstance(start, datetime) else datetime.fromisoformat(start)
        found = self._admin.offsets(dict.fromkeys(partitions, OffsetSpec.for_timestamp(to_millis(time))))
        later = [partition for partition, offset in found.items() if offset < 0]  # no record is that recent
        return found | self.at(LATEST, later)

    def emptied(self, partitions: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """Return the first offset of each partition that once had records but is now empty."""
        partitions = list(partitions)
        ends = self.at(LATEST, partitions)
        return {
            partition: begin
            for partition, begin in self.at(EARLIEST, partitions).items()
            if 0 < begin == ends[partition]
        }

    def ids(self, topics: Collection[str], known: Mapping[str, str]) -> dict[str, str]:
        """Return the current ids of topics. Topics whose ids the cluster does not report are left out.

        :param known: ids of the topics when they were last read, by topic
        :raises SourceError: the id of a topic has changed
        """
        ids = self._admin.ids(topics)
        for topic, id_ in ids.items():
            if id_ != known.get(topic, id_):
                raise SourceError(
                    f"{self._cluster.label}: the topic {topic} was re-created since it was last read: "
                    "start with a new checkpoint directory"
                )
        return ids

    def ranges(self, starts: Mapping[tuple[str, int], int], ends: Mapping[tuple[str, int], int]) -> list[Range]:
        """Return the non-empty ranges between start and end offsets. A partition without a start offset is read from
        its first existing record.

        :raises SourceError: a partition's end offset is less than its start offset
        """
        new = self.at(EARLIEST, [partition for partition in ends if partition not in starts])
        ranges = [
            Range(*partition, starts.get(partition, new.get(partition, 0)), end)
            for partition, end in sorted(ends.items())
        ]
        for each in ranges:
            if each.end < each.start:
                raise SourceError(
                    f"{self._cluster.label}: partition {each.partition} of {each.topic} ends at offset {each.end}, but "
                    f"was read up to offset {each.start}: the topic was re-created; use a new checkpoint directory"
                )
        return [each for each in ranges if each.start < each.end]


def check_start(start: Any) -> None:
    """Raise a `SourceError` if a source's `start` setting is invalid."""
    if start in (EARLIEST, LATEST):
        return
    try:
        time = start if isinstance(start, datetime) else datetime.fromisoformat(start)
    except (TypeError, ValueError):
        time = None
    if time is None or time.tzinfo is None:
        raise SourceError(f'start must be "earliest", "latest" or a time with a time zone, not {start!r}')


def furthest_behind(ranges: list[Range], newest: Mapping[str, int]) -> list[Range]:
    """Return the ranges to read first: those in partitions that were never read or are behind. The newest event times
    of the partitions that were read span a range. A partition is behind if its time is in the lower half of this range.
    If every batch read all partitions, some partitions could get far ahead of others. The events from the partitions
    that are ahead would then stay in the state for a long time.

    :param newest: newest event time of each partition that was read, by partition name
    """
    times = [newest[each.name] for each in ranges if each.name in newest]
    middle = (min(times) + max(times)) / 2 if times else 0
    return [each for each in ranges if newest.get(each.name, middle) <= middle]


def limited(ranges: list[Range], most: int) -> list[Range]:
    """Shorten ranges to at most `most` records in total, each range in proportion to its length."""
    total = sum(each.end - each.start for each in ranges)
    if total <= most:
        return ranges
    left, taken = most, []
    for each in ranges:
        share = min(left, max(1, (each.end - each.start) * most // total))
        taken.append(each._replace(end=each.start + share))
        left -= share
    return [each for each in taken if each.start < each.end]


def shares(ranges: list[Range], count: int) -> list[list[Range]]:
    """Divide ranges into up to `count` shares with nearly the same number of records."""
    total = sum(each.end - each.start for each in ranges)
    bounds = [total * number // count for number in range(1, count + 1)]
    parts: list[list[Range]] = [[] for _ in range(count)]
    done = at = 0
    for each in ranges:
        start = each.start
        while start < each.end:
            end = min(each.end, start + bounds[at] - done)
            if end > start:
                parts[at].append(each._replace(start=start, end=end))
            done += end - start
            start = end
            if done == bounds[at]:
                at += 1
    return [part for part in parts if part]
