"""Every error that amadou raises.

::

    AmadouError
    ├── LoadError              the job that a command names cannot be found or imported
    ├── JobError               the job has mistakes; all are listed at once
    ├── ParamError             a deployment parameter is missing, unknown or cannot be read
    ├── CallbackError          a handler's callback failed, or returned an unusable value
    ├── EventError             `key_event` returned a value that cannot become an event
    │   ├── NaiveTimestampError    (also for timers)
    │   ├── TimestampRangeError    outside the years 1 to 9999 in UTC (also for timers)
    │   ├── KeyTypeError
    │   ├── TooFarAheadError       beyond the job's `max_ahead`
    │   └── EventTypeError
    ├── HandlerAttributeError  a callback set an attribute of its handler, or code replaced a spec
    ├── NotRunError            a callback returned a generator or coroutine, so that nothing in it ran
    ├── TimerError             a handler without `on_timer_expired` set a timer
    ├── KeylessError           a callback without a key used state or timers
    ├── RecoverError           a window or join of an earlier run is due, and the handler has none of that name
    ├── SpecError              a spec has invalid settings
    ├── CodecError
    │   ├── UnsupportedTypeError   no codec can be made for a type
    │   ├── EncodeError            a value does not fit its spec, port or event
    │   └── StateDecodeError       stored state does not fit its spec
    ├── PortError              a value was collected into a port without a sink
    ├── SourceError            a source cannot be read
    ├── SinkError              a sink cannot be written
    ├── PluginError            a plugin cannot be loaded, or failed
    ├── CheckpointError        a checkpoint cannot be used for this job
    ├── TooManyDeadLettersError    more callbacks failed than the job's `max_dead_letters` allows
    ├── TooManyHeldError       more events wait for a source that is down than `DependsOn` allows
    ├── EngineDifferenceError  a test run had different results on the embedded engine and on Spark
    ├── VectorizedPathError    a test run had different results by columns and event by event
    ├── PlatformError          Java or pyspark is missing, does not start, or has the wrong version
    └── RunError               the engine failed, and the handler is not the cause
"""

import copyreg
from datetime import datetime
from typing import Any

from amadou._secret import redacted
from amadou.text import shown_value

_LIMIT = 200
"""Number of characters of a value that an error shows."""


class AmadouError(Exception):
    """The root of amadou's errors. Programs read the details from attributes. The texts hide `Secret`s.

    Errors of any subclass can be pickled and copied, whatever its `__init__` takes.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        # Without `__init__`, whose parameters may differ from the attributes: those are restored directly.
        return copyreg.__newobj__, (type(self),), {"args": self.args, **vars(self)}  # type: ignore[attr-defined]

    def __str__(self) -> str:
        return redacted(super().__str__())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"


class LoadError(AmadouError):
    """The job that a command names cannot be found or imported.

    :param target: the job as named in the command, `FILE:name` or `MODULE:name`
    :param why: the mistake, and the advice to fix it
    :param user_traceback: the formatted traceback of a failed import, cut down to the user's own frames
    """

    def __init__(self, target: str, why: str, user_traceback: str | None = None) -> None:
        self.target = target
        self.why = why
        self.user_traceback = user_traceback
        before = "" if user_traceback is None else f"{user_traceback.rstrip()}\n\n"
        super().__init__(f"{before}cannot load {target}: {why}")


class JobError(AmadouError):
    """A job has mistakes.

    :param job: the job's name
    :param problems: one sentence for each mistake
    """

    def __init__(self, job: str, problems: tuple[str, ...]) -> None:
        self.job = job
        self.problems = problems
        lines = "".join(f"\n  - {problem}" for problem in problems)
        super().__init__(f"job {job!r} cannot run:{lines}")


class ParamError(AmadouError):
    """Deployment parameters are missing, unknown or cannot be read.

    :param problems: one sentence for each mistake
    """

    def __init__(self, problems: tuple[str, ...]) -> None:
        self.problems = problems
        super().__init__("; ".join(problems))


class CallbackError(AmadouError):
    """A handler's callback raised an error, or returned an unusable value (`semantics.md` 1, 18, 33).

    The text shows the user's own traceback first, then handler, callback, key and record.

    :param handler: the handler's class name
    :param callback: ``key_event``, ``on_event``, ``on_timer_expired``, ``open`` or ``close``
    :param error: the type and message of the user's error
    :param user_traceback: the formatted traceback, cut down to the user's own frames
    :param source: the source of the record, or ``None`` for a timer
    :param key: the subject's key, or ``None`` in ``key_event``
    :param record: the ``repr`` of the record, event or timer
    :param watermark: the watermark of the batch in ISO form, or ``None``
    """

    def __init__(
        self,
        *,
        handler: str,
        callback: str,
        error: str,
        user_traceback: str,
        source: str | None = None,
        key: Any = None,
        record: str | None = None,
        watermark: str | None = None,
    ) -> None:
        self.handler = handler
        self.callback = callback
        self.error = error
        self.user_traceback = user_traceback
        self.source = source
        self.key = key
        self.record = record
        self.watermark = watermark
        super().__init__(error)

    def fields(self) -> dict[str, Any]:
        """Return the attributes as the keyword arguments that build the same error again."""
        return {
            "handler": self.handler,
            "callback": self.callback,
            "error": self.error,
            "user_traceback": self.user_traceback,
            "source": self.source,
            "key": self.key,
            "record": self.record,
            "watermark": self.watermark,
        }

    def __str__(self) -> str:
        # If there is a cause, Python prints its traceback itself, before this text.
        shown = [] if self.__cause__ is not None else [self.user_traceback.rstrip(), ""]
        shown.append(f"{self.handler}.{self.callback} failed: {self.error}")
        for label, value in (
            ("source", self.source),
            ("key", None if self.key is None else shown_value(self.key)),
            ("record", self.record),
            ("watermark", self.watermark),
        ):
            if value is not None:
                shown.append(f"  {label:<10}{value}")
        return "\n".join(shown)


class EventError(AmadouError):
    """`key_event` returned a value that cannot become an event."""


class NaiveTimestampError(EventError):
    """A timestamp has no time zone, or is not a datetime (`semantics.md` 1).

    :param timestamp: the value given as the timestamp
    """

    def __init__(self, timestamp: Any) -> None:
        self.timestamp = timestamp
        wrong = "has no time zone" if isinstance(timestamp, datetime) else "is no datetime"
        super().__init__(
            f"the timestamp {timestamp!r} {wrong}: give an aware datetime, "
            "with tzinfo=timezone.utc where the time is meant as UTC"
        )


class TimestampRangeError(EventError):
    """A time is outside the years 1 to 9999 in UTC, the range of a `datetime`.

    :param timestamp: the timestamp
    :param why: the time that is outside, if it is not the timestamp itself
    """

    def __init__(self, timestamp: datetime, why: str = "it") -> None:
        self.timestamp = timestamp
        self.why = why
        super().__init__(
            f"the timestamp {timestamp.isoformat()} cannot be used: {why} is outside the years 1 to 9999 in UTC; "
            "where it stands for no time at all, leave the event out or give it another time"
        )


class KeyTypeError(EventError):
    """A key is not a `str`, `bytes`, `int` or a tuple of those, or is nested too deeply.

    :param key: the value given as the key
    :param why: the mistake, if it is not the type
    """

    def __init__(self, key: Any, why: str | None = None) -> None:
        self.key = key
        self.why = why
        wrong = why or f"is of type {type(key).__name__}"
        super().__init__(
            f"the key {shown_value(key, _LIMIT)} {wrong}: a key is a str, bytes or int, or a tuple of those"
        )


class TooFarAheadError(EventError):
    """An event is further ahead of the clock than the job's `max_ahead` (`semantics.md` 4).

    :param timestamp: the event's timestamp
    :param limit: the newest time that the job accepts now
    """

    def __init__(self, timestamp: datetime, limit: datetime) -> None:
        self.timestamp = timestamp
        self.limit = limit
        super().__init__(
            f"the timestamp {timestamp.isoformat()} is too far ahead of the clock: with the job's max_ahead the newest "
            f"time that it takes now is {limit.isoformat(timespec='seconds')}"
        )


class EventTypeError(EventError):
    """`key_event` returned a value that is not an event, or an event whose timestamp is not a datetime."""


class HandlerAttributeError(AmadouError):
    """A callback set or deleted an attribute of its handler, or code assigned another value to a spec's name.

    :param handler: the handler's class name
    :param attribute: the attribute's name
    :param kind: the class of the spec of that name
    :param usage: the right use of the spec; `None` if there is no spec of that name
    :param did: the change to the attribute: ``set`` or ``deleted``
    """

    def __init__(self, handler: str, attribute: str, kind: str, usage: str | None, did: str = "set") -> None:
        self.handler = handler
        self.attribute = attribute
        self.kind = kind
        self.usage = usage
        self.did = did
        if usage is None:
            told = (
                f"a callback {did} the attribute {handler}.{attribute}, which no other worker sees, nor this one after "
                f"a restart: keep the value as state ({attribute} = ValueSpec(…) on the class), or set it in open()"
            )
        else:
            why = "it cannot be deleted" if did == "deleted" else "nothing else can take its place"
            told = f"{handler}.{attribute} is a {kind}, and {why}: use {usage}"
        super().__init__(told)


class NotRunError(AmadouError):
    """A callback returned a generator or a coroutine, so that nothing in it ran.

    :param callback: the callback's name
    :param kind: the type of its result: ``generator``, ``coroutine`` or ``async_generator``
    """

    def __init__(self, callback: str, kind: str) -> None:
        self.callback = callback
        self.kind = kind
        plain = "without yield" if kind == "generator" else "and not async"
        super().__init__(
            f"{callback} returned {'a' if kind != 'async_generator' else 'an'} {kind.replace('_', ' ')}, so that "
            f"nothing in it ran: a callback is a plain function {plain}. Where a decorator makes it, let the decorator "
            "run it"
        )


class TimerError(AmadouError):
    """A handler that does not define `on_timer_expired` set a timer.

    :param handler: the handler's class name
    """

    def __init__(self, handler: str) -> None:
        self.handler = handler
        super().__init__(
            f"{handler} set a timer but does not define on_timer_expired(self, subject, timestamp): "
            "define it, or do not set timers"
        )


class KeylessError(AmadouError):
    """A callback that belongs to no key used state or timers.

    :param callback: the callback's name
    """

    def __init__(self, callback: str) -> None:
        self.callback = callback
        super().__init__(
            f"{callback} belongs to no key, so there is neither state nor a timer: collect values, and leave what "
            "belongs to a key to on_event"
        )


class RecoverError(AmadouError):
    """A window or join of an earlier run is due, and the handler has none of that name.

    :param handler: the handler's class name
    :param name: the window's name
    :param key: the window's key
    :param why: the mistake in the result of `on_recover_window`; `None` without a result
    :param noun: the noun for it: window or join
    """

    def __init__(self, handler: str, name: str, key: Any, why: str | None = None, noun: str = "window") -> None:
        self.handler = handler
        self.name = name
        self.key = key
        self.why = why
        self.noun = noun
        lacks = f"{handler} has none of that name" if why is None else f"on_recover_window of {handler} {why}"
        super().__init__(
            f"the {noun} {name!r} of key {key!r} is due, and {lacks}: declare it, or make or return it in "
            f"on_recover_window(self, name, subject). {self.where_removed(name)}. Nothing was changed"
        )

    @staticmethod
    def where_removed(name: str) -> str:
        """Return the advice for a window that was removed from the handler on purpose."""
        return (
            "If you removed it, say what becomes of what it has open: "
            f'Job(retired={{{name!r}: "drop"}}), or "keep" to declare it again later'
        )


class SpecError(AmadouError):
    """A spec has invalid settings."""


class CodecError(AmadouError):
    """A value cannot be encoded as msgpack, or decoded."""


class UnsupportedTypeError(CodecError):
    """No codec can be made for a type.

    :param type_: the type
    :param why: the reason, and the types to use instead
    :param setting: the setting of a spec that takes a codec for the type; `None` if a codec does not help
    """

    def __init__(self, type_: Any, why: str, setting: str | None = None) -> None:
        self.type = type_
        self.why = why
        self.setting = setting
        instead = "" if setting is None else f", or give the spec a {setting}="
        super().__init__(f"the type {_type_name(type_)} is not supported: {why}{instead}")


class EncodeError(CodecError):
    """A value does not fit the type of its spec, port or event.

    :param value: the value
    :param type_: the declared type
    :param spec: the spec or port that the value was written to, or ``None``
    :param key: the subject's key, or ``None``
    """

    def __init__(self, value: Any, type_: Any, why: str = "", spec: str | None = None, key: Any = None) -> None:
        self.value = value
        self.type = type_
        self.why = why
        self.spec = spec
        self.key = key
        where = "" if spec is None else f"{spec}: "
        told = f": {why}" if why else ""
        super().__init__(
            f"{where}cannot store {shown_value(value, _LIMIT)} ({type(value).__name__}) as {_type_name(type_)}{told}"
        )


class StateDecodeError(CodecError):
    """Stored state does not fit its spec. The state is unchanged (`semantics.md` 17). The error ends a run, whatever
    the job's `on_error`: a dead letter cannot replace state that the next version of the code could read.

    :param stored: the stored state, as msgpack carries it
    :param type_: the type that the spec expects
    :param spec: the spec's name
    :param key: the subject's key
    :param advice: the advice to fix it
    """

    def __init__(
        self,
        stored: Any,
        type_: Any,
        why: str = "",
        spec: str | None = None,
        key: Any = None,
        advice: str = "give the spec a type, or a migrate=, that can read it",
    ) -> None:
        self.stored = stored
        self.type = type_
        self.why = why
        self.spec = spec
        self.key = key
        where = "" if spec is None else f"state {spec!r} of key {shown_value(key)}: "
        told = f": {why}" if why else ""
        self.mismatch = f"stored is {shown_value(stored, _LIMIT)}, expected is {_type_name(type_)}{told}"
        self.advice = advice
        super().__init__(f"{where}{self.mismatch}. Nothing was changed; {advice}")


class PortError(AmadouError):
    """A value was collected into a port for which the job has no sink.

    :param port: the port's name
    """

    def __init__(self, port: str, ports: tuple[str, ...]) -> None:
        self.port = port
        self.ports = ports
        known = ", ".join(ports) or "none"
        super().__init__(f"no sink serves the port {port!r} (the job's sinks: {known})")


class SourceError(AmadouError):
    """A source cannot be read."""


class SinkError(AmadouError):
    """A sink cannot be written."""


class PluginError(AmadouError):
    """A plugin cannot be loaded, or failed.

    :param plugin: the plugin's name
    :param why: the cause, and the advice to fix it
    :param hook: the hook that failed; `None` if the plugin cannot be loaded
    """

    def __init__(self, plugin: str, why: str, hook: str | None = None) -> None:
        self.plugin = plugin
        self.why = why
        self.hook = hook
        what = "cannot be loaded" if hook is None else f"failed in {hook}"
        super().__init__(f"the plugin {plugin} {what}: {why}")


class CheckpointError(AmadouError):
    """A checkpoint cannot be used for this job.

    :param checkpoint: the directory
    """

    def __init__(self, checkpoint: str, message: str) -> None:
        self.checkpoint = checkpoint
        self.message = message
        super().__init__(f"checkpoint {checkpoint}: {message}")


class PlatformError(AmadouError):
    """Java or pyspark is missing, does not start, or has the wrong version."""


class TooManyDeadLettersError(AmadouError):
    """More callbacks failed than the job's `max_dead_letters` allows. Nothing of the batch counts.

    :param letters: number of failures since the checkpoint was begun
    :param bound: the job's `max_dead_letters`
    :param failures: the most frequent failures, a text for each
    :param callback: the callback whose failed share exceeds the bound; `None` if the bound is a number
    :param failed: number of its failures
    :param calls: number of its calls
    """

    def __init__(
        self,
        letters: int,
        bound: float,
        failures: tuple[str, ...],
        callback: str | None = None,
        failed: int = 0,
        calls: int = 0,
    ) -> None:
        self.letters = letters
        self.bound = bound
        self.failures = failures
        self.callback = callback
        self.failed = failed
        self.calls = calls
        told = (
            f"dead letters: {letters:,}, more than max_dead_letters={bound:,}"
            if callback is None
            else f"{failed:,} of {calls:,} calls of {callback} failed, a greater share than max_dead_letters={bound}"
        )
        lines = "".join(f"\n  {failure}" for failure in failures)
        super().__init__(
            f"{told}. Nothing of this batch counts: mend what fails and start again, or raise max_dead_letters. "
            f"The most frequent failures:{lines}"
        )


class TooManyHeldError(AmadouError):
    """More events wait for a source that is down than `DependsOn(max_held=…)` allows. Nothing of the batch counts.

    :param source: the source whose events are held
    :param on: the source that it depends on
    :param held: number of held events
    :param max_held: the bound
    """

    def __init__(self, source: str, on: str, held: int, max_held: int) -> None:
        self.source = source
        self.on = on
        self.held = held
        self.max_held = max_held
        super().__init__(
            f"{held:,} events of {source!r} are held, more than max_held={max_held:,} of DependsOn({source!r}, "
            f"on={on!r}). Nothing is lost: raise max_held, and start the run again with its checkpoint. They run when "
            f"{on!r} has caught up"
        )


class EngineDifferenceError(AmadouError):
    """A test run on both engines had different results.

    :param what: the part that differs: `trace`, `state`, `newest`, `letters`, or `outcome` if one engine failed
    :param embedded: the embedded engine's result at the first difference, shortened
    :param spark: Spark's result there
    :param where: the first entry that differs, and the number of entries on each engine
    """

    def __init__(self, what: str, embedded: str, spark: str, where: str = "") -> None:
        self.what = what
        self.embedded = embedded
        self.spark = spark
        self.where = where
        super().__init__(
            f"the engines differ in the {what} of a batch{where}:\n  embedded  {embedded}\n  spark     {spark}\n"
            "Check that the handler is deterministic: it must not read the clock, use randomness or depend on set order"
        )


class VectorizedPathError(AmadouError):
    """The vectorised path of a component, or of `key_event`, differs in a batch of a test run from its reference, which
    processes one event after the other. This is an error of amadou or of the component.

    :param name: the component, or ``key_event``
    :param what: the part that differs, such as `outputs`, `state`, or `outcome` if one path failed
    :param vectorized: the vectorised path's result at the first difference, shortened
    :param per_event: the reference's result there
    :param where: the first entry that differs, and the number of entries of each
    """

    def __init__(self, name: str, what: str, vectorized: str, per_event: str, where: str = "") -> None:
        self.name = name
        self.what = what
        self.vectorized = vectorized
        self.per_event = per_event
        self.where = where
        super().__init__(
            f"an error of amadou: the vectorised path of {name}, which runs use, and the per-event path differ in the "
            f"{what} of a batch{where}:\n  vectorised  {vectorized}\n  per event   {per_event}\nPlease report this"
        )


class RunError(AmadouError):
    """The engine failed, and the handler is not the cause."""


def _type_name(type_: Any) -> str:
    return type_.__name__ if isinstance(type_, type) and not hasattr(type_, "__args__") else str(type_)
