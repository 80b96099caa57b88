"""The steps in which a batch of a key group is processed, callback by callback (`semantics.md` 5).

Each step is a function of the operator and of the `GroupWork`, which it changes. Their order is that of `STEPS`.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

from amadou.engine import ON_CHANGE
from amadou.errors import AmadouError
from amadou.event_time import from_micros
from amadou_runtime.core.expiry import expired_keys, remove_expired
from amadou_runtime.core.firing import Firing, due_components
from amadou_runtime.core.group_batch import GroupWork
from amadou_runtime.core.held_events import release_or_hold
from amadou_runtime.core.key_group import KeyGroup, NotStored
from amadou_runtime.formats.failure import callback_error

if TYPE_CHECKING:
    from amadou_runtime.core.operator import Operator

Step: TypeAlias = "Callable[[Operator, GroupWork], None]"


def take_events(of: "Operator", work: GroupWork) -> None:
    """Hold events that wait for other sources, release those that waited, and drop or divert late events."""
    batch, given = work.batch, work.given
    work.runs = release_or_hold(work.group, given.events, given.limits, batch.watermark, of.callbacks.observer)
    work.events = sum(len(run.keys) for run in work.runs)
    dropped_before = of.dropped_before(given, batch)
    if of.late is not None and dropped_before is not None:
        work.runs, work.late = of.late.taken_out(work.runs, dropped_before, batch)


def divide_combined(of: "Operator", work: GroupWork) -> None:
    """Divide the events in combined form by key."""
    if of.vectorized_component is not None:
        for part in work.given.combined:
            work.combined += of.vectorized_component.divide_combined(part)
        work.events += sum(number for _, _, number in work.combined)


def load(of: "Operator", work: GroupWork) -> None:
    """Load the state of the keys that events, dead letters and updates of references concern, and of those with due
    timers. For a declared component with a new structure, load the state of all keys.
    """
    group, again = work.group, work.again
    work.touched.update(*(run.keys for run in work.runs), (call.key for call in again.calls))
    work.touched.update((key for key, *_ in again.timers), (key for key, _, _ in work.combined))
    group.load(work.touched, work.given.watermark)
    work.renewed = group.left_otherwise(of.callbacks.declared)
    if work.renewed:
        group.stored.load_all(group)
    for change in of.changed_references:
        group.stored.load_watching(group, of.watched_names[change.reference])
    work.touched.update(*(keys for _, keys in work.watching(of.changed_references, of.watched_names)))


def open_group_state(of: "Operator", work: GroupWork) -> None:
    """Convert key-group state to state of keys, except for unknown components that are not due."""
    watermark, subject = work.subject.watermark_micros, work.subject
    for name, group_state in list(work.group.group_states.items()):
        component = of.callbacks.components.get(name)
        next_timer = group_state.next_timer
        if component is None and watermark is not None and next_timer is not None and next_timer <= watermark:
            subject.key, subject.timestamp = next(iter(group_state.keys)), from_micros(next_timer)
            component = of.callbacks.recovered(name, subject)
        if component is not None:
            work.group.by_subject(component)


def find_due(of: "Operator", work: GroupWork) -> None:
    """Find the timers that are due, those of dead letters included, and the keys with state that expires."""
    timers, watermark, batch = work.group.timers, work.given.watermark, work.batch
    for timer in work.again.timers:
        timers.add(*timer)
    work.due = timers.due(watermark)
    work.due_components = due_components(work.group, watermark)
    expired = expired_keys(of.with_ttl(), work.group, watermark)
    work.touched.update(*map(timers.at, work.due), *expired.values(), *work.due_components.values())
    started = () if batch.last_watermark is None else (batch.last_watermark,)
    batch.since = min((*work.due, *work.due_components, *started), default=None)


def renew(of: "Operator", work: GroupWork) -> None:
    """Convert declared components' state from older code to the current structure, for all keys. So this path and the
    columnar one store the same state.
    """
    subject, tables = work.subject, work.group.tables
    subject.timestamp = subject.watermark or from_micros(0)
    for component in work.renewed:
        table = tables.get(component.name)
        if table is not None:
            work.touched.update(table.packed)
            for subject.key in list(table.packed):
                component.state_for(subject)
            table.store()


def give_answers(of: "Operator", work: GroupWork) -> None:
    """Give the callbacks the answers of lookups that were fetched."""
    batch, lookups = work.batch, of.lookups
    batch.lookups, batch.lookup_errors, batch.needed_by = lookups.answers, lookups.errors, lookups.needed_by


def repeat_calls(of: "Operator", work: GroupWork) -> None:
    """Repeat the calls of components that failed, and are replayed."""
    for call in work.again.calls:
        separate = of.batch_of(KeyGroup(NotStored()), call.watermark, (call.key,))
        separate.keeper = None
        of.callbacks.call_again(call, work.subject, separate)
        work.fired += 1
        work.count_calls(call.component, 1)


def notify(of: "Operator", work: GroupWork) -> None:
    """Call `on_reference_changed` for the keys that watch a reference that is updated in this batch."""
    changes = work.watching(of.changed_references, of.watched_names)
    for change, keys in changes:  # a call can watch the next reference, or stop watching it
        of.callbacks.notify(change, keys, work.subject)
        work.count_calls(ON_CHANGE, len(keys))


def fire(of: "Operator", work: GroupWork) -> None:
    """Fire the timers that are due (`semantics.md` 6)."""
    if work.due or work.due_components:
        firing = Firing(of.callbacks, work.subject, work.due, work.due_components)
        work.fired += firing.fire()
        for callback, number in firing.calls.items():
            work.count_calls(callback, number)


def keep_answers(of: "Operator", work: GroupWork) -> None:
    """Store the answers that lookups keep. They stay if the callback of their event fails."""
    if of.lookups.kept:
        work.batch.at_watermark = True
        of.lookups.keep(work.runs, work.subject)
        work.batch.at_watermark = False
        for lookup in of.lookups.kept:
            table = work.batch.tables.get(lookup.name)
            if table is not None:
                table.store()


def process_events(of: "Operator", work: GroupWork) -> None:
    """Call `on_event` for each event."""
    work.batch.since = work.given.watermark
    if work.runs:
        of.stopwatch.turn("on_event")
    for run in work.runs:
        work.count_calls("on_event", len(run.keys))
        work.late += of.callbacks.process_events(run, work.subject)
    if work.batch.is_replay:
        work.late = 0


def add_combined(of: "Operator", work: GroupWork) -> None:
    """Add events in combined form to the component that combined them."""
    for key, part, number in work.combined:
        assert of.vectorized_component is not None
        work.subject.key = key
        try:
            of.vectorized_component.add_combined_for(work.subject, part)
        except Exception as error:
            raise of.callbacks.failed(error, "on_event", work.batch, None, key, None)
        work.count_calls("on_event", number)


def expire(of: "Operator", work: GroupWork) -> None:
    """Remove expired state (`semantics.md` 16)."""
    of.stopwatch.turn()
    remove_expired(of.with_ttl(), work.group, work.subject)  # a callback may have created a component


def store(of: "Operator", work: GroupWork) -> None:
    """Pack the state that callbacks have changed."""
    for table in work.group.tables.values():
        try:
            table.store()
        except AmadouError as error:  # msgpack finds some errors only now, such as strings with invalid Unicode
            key = table.unstored()[0]
            source = next((run.source for run in work.runs if key in run.keys), None)
            raise callback_error(
                error,
                handler=of.callbacks.name,
                callback="on_timer_expired" if source is None else "on_event",
                source=source,
                key=key,
                watermark=work.batch.watermark,
            )


STEPS: Final[tuple[Step, ...]] = (
    *(take_events, divide_combined, load),
    *(open_group_state, find_due, renew),
    *(give_answers, repeat_calls, notify, fire, keep_answers),
    *(process_events, add_combined),
    *(expire, store),
)
