"""State with a time to live, compared with a model that keeps every write, for random cuts into batches."""

from datetime import timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.conformance.handlers import SECOND, at

from amadou import Handler, Job, KeyedEvent, ListSpec, MapSpec, MemorySink, MemorySource, SinkSpec, Subject, ValueSpec
from amadou_runtime import TestRun

LIFE = 5


class Store(Handler):
    """Does what events say, and collects all state after each."""

    value = ValueSpec(int, default=0, ttl=LIFE * SECOND)
    entries = MapSpec(str, int, ttl=LIFE * SECOND)
    items = ListSpec(int, ttl=LIFE * SECOND)
    out = SinkSpec(list)

    def key_event(self, record: Any) -> KeyedEvent[Any]:
        return KeyedEvent("k", at(record[0]), record)

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        seconds, what, key = event.value
        value, entries, items = (
            self.value.state_for(subject),
            self.entries.state_for(subject),
            self.items.state_for(subject),
        )
        if what == "set":
            value.value = seconds
            entries[key] = seconds
            items.append(seconds)
        elif what == "replace" and items:
            items[-1] = seconds
            entries.update(dict.fromkeys(entries, seconds))
        elif what == "replace all":
            items[:] = [item + 100 for item in items[1:]]
        elif what == "remove":
            entries.pop(key, None)
            del items[:1]
        elif what == "pop" and entries:
            entries.popitem()
        elif what == "clear":
            value.clear()
            entries.clear()
            items.clear()
        assert (len(entries), len(items)) == (len(dict(entries)), len(list(items)))
        assert all((key in entries) == (entries.get(key) is not None) for key in "abc")
        self.out.collect(subject, [value.value, value.exists, list(entries.items()), list(items)])


class Model:
    """Every part is a list of the time at which it was written last, and its value."""

    def __init__(self) -> None:
        self.value: list[int] | None = None
        self.entries: dict[str, list[int]] = {}
        self.items: list[list[int]] = []

    def see(self, now: int, what: str, key: str, number: int) -> Any:
        entries = {name: part for name, part in self.entries.items() if now < part[0] + LIFE}
        items = [part for part in self.items if now < part[0] + LIFE]
        if what == "set":
            self.value = [max(now, self.value[0]) if self.value else now, number]
            before = entries.get(key, [now])[0]
            if key not in entries:
                self.entries.pop(key, None)
            self.entries[key] = [max(now, before), number]
            self.items = [*items, [now, number]]
        elif what == "replace" and items:
            self.items = [*items[:-1], [max(now, items[-1][0]), number]]
            self.entries |= {name: [max(now, at), number] for name, (at, _) in entries.items()}
        elif what == "replace all":
            newest = max([now, *(at for at, _ in items)])
            self.items = [[newest, each + 100] for _, each in items[1:]]
        elif what == "remove":
            if key in entries:
                del self.entries[key]
            self.items = items[1:]
        elif what == "pop" and entries:
            del self.entries[list(entries)[-1]]
        elif what == "clear":
            self.value, self.entries, self.items = None, {}, []
        is_set = self.value is not None and now < self.value[0] + LIFE
        return [
            self.value[1] if is_set and self.value else 0,
            is_set,
            [(name, each) for name, (at, each) in self.entries.items() if now < at + LIFE],
            [each for at, each in self.items if now < at + LIFE],
        ]


steps = st.tuples(
    st.integers(-3, 4),
    st.sampled_from(["set", "set", "set", "replace", "replace all", "remove", "pop", "clear", "look", "look"]),
    st.sampled_from("abc"),
    st.booleans(),
)


@given(st.lists(steps, max_size=40))
def test_state_with_a_ttl_is_as_if_every_write_was_kept(script: list[Any]) -> None:
    run = TestRun(Job("store", Store(), {"in": MemorySource()}, {"out": MemorySink()}, watermark_delay=4))
    model, expected, now, newest, watermark = Model(), [], 10, 10, None
    for step, what, key, cut in script:
        now += step
        if cut:
            run.end_batch()
            watermark = newest - 4 if expected else None
        newest = max(newest, now) if expected else now
        run.add_record((now, what, key))
        seen_at = now if watermark is None else max(now, watermark)
        expected.append(model.see(seen_at, what, key, now))
    assert run.run().records("out") == expected


def test_reading_a_large_map_does_not_copy_it() -> None:
    """A map with a ttl can have many entries: what a callback reads takes as long as for a map without one."""

    class Large(Handler):
        entries = MapSpec(int, int, ttl=timedelta(days=1))
        out = SinkSpec(int)

        def key_event(self, record: Any) -> KeyedEvent[Any]:
            return KeyedEvent("k", at(record), record)

        def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
            entries = self.entries.state_for(subject)
            stored = entries._encoded
            entries[event.value] = len(entries)
            self.out.collect(subject, entries.get(event.value))
            assert entries._encoded is stored

    run = TestRun(Job("large", Large(), {"in": MemorySource()}, {"out": MemorySink()}))
    assert run.add_records(range(1000)).run().records("out") == list(range(1000))
