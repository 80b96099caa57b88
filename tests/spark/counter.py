"""A handler that counts events, for tests of checkpoints."""

from datetime import datetime, timezone

from amadou import Handler, KeyedEvent, SinkSpec, Subject, ValueSpec

NOON = datetime(2025, 1, 1, 12, tzinfo=timezone.utc)


class Counter(Handler):
    """Counts the events of each key."""

    count = ValueSpec(int, 0)
    counts = SinkSpec(tuple[str, int])

    def key_event(self, record: str) -> KeyedEvent:
        return KeyedEvent(record, NOON)

    def on_event(self, subject: Subject, event: KeyedEvent) -> None:
        state = self.count.state_for(subject)
        state.value += 1
        self.counts.collect(subject, (str(subject.key), state.value))
