"""The planned end offsets of a batch that is read from Kafka; Spark stores them as JSON."""

from collections.abc import Iterable, Mapping, Set
from datetime import datetime
from typing import Any, TypeAlias

import attrs

from amadou.plugins import PartitionOffset
from amadou_plugins.connectors.kafka.offsets import Range, partition_name

Partition: TypeAlias = tuple[str, int]


@attrs.frozen
class Planned:
    """The end offsets of a batch, and the number of records that the batch leaves unread.

    In JSON, each topic has an object with the offsets of its partitions, and additional entries::

        {topic: {"0": offset, "left": {"0": records}, "fresh": ["0"], "removed": true, "back": time, "id": id}}

    :param read: for each partition, the offset of the first record that is unread after the batch
    :param left: for each partition with unread records, the number of records that are unread after the batch
    :param fresh: partitions from which no record has been read yet
    :param removed: topics that no longer exist
    :param ids: id of each topic; a re-created topic has a new id
    :param back: time at which the cluster answered again after an outage; `None` if there was no outage
    """

    read: dict[Partition, int]
    left: dict[Partition, int] = attrs.field(factory=dict)
    fresh: Set[Partition] = frozenset()
    removed: Set[str] = frozenset()
    ids: dict[str, str] = attrs.field(factory=dict)
    back: datetime | None = None

    def then(
        self,
        there: Iterable[Range],
        chosen: Iterable[Range],
        ends: Iterable[Partition],
        ids: dict[str, str],
        back: datetime | None = None,
    ) -> "Planned":
        """Return the plan for the next batch.

        :param there: ranges that are available to read
        :param chosen: ranges that the batch reads: some or all of the available ranges, possibly with earlier ends
        :param ends: existing partitions
        :param ids: current ids of the topics
        :param back: new value of `back`; `None` to keep the current value
        """
        read = {(each.topic, each.partition): each.end for each in chosen}
        starts = {(each.topic, each.partition): each.start for each in there}
        reached = {**starts, **self.read, **read}
        left = {(each.topic, each.partition): each.end - reached[each.topic, each.partition] for each in there}
        fresh = (self.fresh | (starts.keys() - self.read.keys())) - read.keys()
        topics = {topic for topic, _ in ends}
        return Planned(
            reached,
            {partition: count for partition, count in left.items() if count},
            fresh & left.keys(),
            {topic for topic, _ in reached} - topics,
            ids,
            back or self.back,
        )

    def offsets(self) -> dict[str, PartitionOffset]:
        """Return the offsets that the source reports, by partition."""
        offsets = {}
        for partition, offset in self.read.items():
            if partition[0] not in self.removed:
                read = 0 if partition in self.fresh else offset
                offsets[partition_name(*partition)] = PartitionOffset(
                    read, read + self.left.get(partition, 0), self.back
                )
        return offsets

    def to_json(self) -> dict[str, Any]:
        nested: dict[str, dict[str, Any]] = {}
        for (topic, partition), offset in sorted(self.read.items()):
            of = nested.setdefault(topic, {"id": self.ids[topic]} if topic in self.ids else {})
            of[str(partition)] = offset
        for topic, of in nested.items():
            left = {str(partition): count for (name, partition), count in sorted(self.left.items()) if name == topic}
            fresh = [str(partition) for name, partition in sorted(self.fresh) if name == topic]
            back = self.back and self.back.isoformat()
            marks = {"left": left, "fresh": fresh, "removed": topic in self.removed, "back": back}
            of.update({name: mark for name, mark in marks.items() if mark})
        return nested

    @classmethod
    def of_json(cls, nested: Mapping[str, Mapping[str, Any]]) -> "Planned":
        back = next((of["back"] for of in nested.values() if "back" in of), None)
        return cls(
            {
                (topic, int(name)): offset
                for topic, of in nested.items()
                for name, offset in of.items()
                if name.isdecimal()
            },
            {(topic, int(name)): count for topic, of in nested.items() for name, count in of.get("left", {}).items()},
            {(topic, int(name)) for topic, of in nested.items() for name in of.get("fresh", ())},
            {topic for topic, of in nested.items() if "removed" in of},
            {topic: of["id"] for topic, of in nested.items() if "id" in of},
            back and datetime.fromisoformat(back),
        )
