"""The errors that amadou raises. Plugins define more subclasses of `AmadouError`.

::

    AmadouError
    ├── LoadError              the job passed to a command cannot be found or imported
    ├── JobError               the job has mistakes; the message lists all of them
    ├── ParamError             a parameter is missing, cannot be parsed, or does not belong to the job
    ├── CallbackError          a handler's callback failed, or returned an unusable value
    ├── EventError             `key_event` returned a value that cannot become an event
    │   ├── NaiveTimestampError    (also for timers)
    │   ├── TimestampRangeError    outside the years 1 to 9999 in UTC (also for timers)
    │   ├── KeyTypeError
    │   ├── TooFarAheadError       beyond the job's `max_ahead`
    │   └── EventTypeError
    ├── HandlerAttributeError  a callback changed an attribute of the handler, or code tried to replace or delete a spec
    ├── NotRunError            a callback returned a generator or coroutine, so the callback's code did not run
    ├── LookupFailedError      the answers of a lookup cannot be fetched
    ├── LookupAnswerError      the function of a lookup returned something other than answers for its keys
    ├── LookupKeyError         a callback asked a lookup for a key that no event of the batch needs
    ├── InPlaceChangeError     a callback changed a value in place, which is not stored
    ├── ReferenceKeyError      a callback read an entry that a reference does not have
    ├── TimerError             a handler without `on_timer_expired` set a timer
    ├── TimerLoopError         timer callbacks of a key have set very many timers for one batch
    ├── KeylessError           a callback without a key used state or timers
    ├── RecoverError           a window or join is due, but the handler neither declares nor recreates it
    ├── SpecError              a spec has invalid settings
    ├── CodecError
    │   ├── UnsupportedTypeError   amadou has no codec for a type
    │   ├── EncodeError            a value does not fit its spec, port or event
    │   └── StateDecodeError       stored state does not fit its spec
    ├── PortError              a port has no sink, or does not exist
    ├── SourceError            a source has an invalid setting, or cannot be read
    ├── SinkError              a sink has an invalid setting, or cannot be written to
    ├── PluginError            a plugin cannot be loaded, or failed
    ├── CheckpointError        a checkpoint cannot be used for this job
    ├── SavepointError         a savepoint cannot be read or written, or cannot be used for this job
    ├── TooManyDeadLettersError    more callbacks failed than the job's `max_dead_letters` allows
    ├── TooManyHeldError       more events are held while a source is down than `DependsOn` allows
    ├── EngineDifferenceError  a test run had different results on the embedded engine and on Spark
    ├── VectorizedPathError    a test run had different results on the vectorised and the per-event path
    ├── ProjectError           a project cannot be created or packaged
    ├── PlatformError          Spark cannot start; for example, Java is missing or not a supported version
    └── RunError               the run failed for a reason that no other error describes, such as a failure in Spark
"""

import copyreg
from datetime import datetime, timedelta
from typing import Any, TypeVar

import attrs
from typing_extensions import dataclass_transform

from amadou._connectors.secret import redacted
from amadou.text import shown_error, shown_value

_E = TypeVar("_E", bound="AmadouError")
_LIMIT = 200
"""Maximum number of characters of a value that an error shows."""


def _shown(value: Any) -> str:
    return shown_value(value, _LIMIT)


@dataclass_transform(field_specifiers=(attrs.field,))
def error_class(class_: type[_E]) -> type[_E]:
    """Give an error class the attributes that its annotations declare, and an `__init__` that sets them.

    The class's method `_message` returns the error's message.
    """
    return attrs.define(class_, slots=False, eq=False, repr=False, auto_exc=False, on_setattr=attrs.setters.NO_OP)


class AmadouError(Exception):
    """The base class of all errors that amadou defines.

    Errors store their details in attributes. Messages hide the values of `Secret`s. Instances of all subclasses
    can be pickled and copied, regardless of the parameters of `__init__`. Subclasses with details are made with
    `error_class`, or define `__init__`.
    """

    def __attrs_post_init__(self) -> None:
        Exception.__init__(self, self._message())

    def _message(self) -> str:
        raise NotImplementedError

    def __reduce__(self) -> tuple[Any, ...]:
        # Restore the attributes directly: the parameters of `__init__` may differ from the attributes.
        return copyreg.__newobj__, (type(self),), {"args": self.args, **vars(self)}  # type: ignore[attr-defined]

    def __str__(self) -> str:
        return redacted(super().__str__())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"


@error_class
class LoadError(AmadouError):
    """The job passed to a command cannot be found or imported.

    :param target: the command's job argument: `FILE:name` or `MODULE:name`
    :param why: the mistake, and how to fix it
    :param user_traceback: the formatted traceback of a failed import, reduced to the frames of the user's code
    """

    target: str
    why: str
    user_traceback: str | None = None

    def _message(self) -> str:
        before = "" if self.user_traceback is None else f"{self.user_traceback.rstrip()}\n\n"
        return f"{before}cannot load {self.target}: {self.why}"


@error_class
class JobError(AmadouError):
    """A job has mistakes.

    :param job: the job's name
    :param problems: one sentence per mistake
    """

    job: str
    problems: tuple[str, ...]

    def _message(self) -> str:
        lines = "".join(f"\n  - {problem}" for problem in self.problems)
        return f"job {self.job!r} cannot run:{lines}"


@error_class
class ParamError(AmadouError):
    """Deployment parameters are missing, cannot be parsed, or do not belong to the job.

    :param problems: one sentence per mistake
    """

    problems: tuple[str, ...]

    def _message(self) -> str:
        return "; ".join(self.problems)


@error_class
class ReferenceKeyError(AmadouError, KeyError):
    """A reference has no entry for a key.

    :param reference: the reference's name
    :param key: the key
    """

    reference: str
    key: Any

    def _message(self) -> str:
        return (
            f"the reference {self.reference} has no entry for {shown_value(self.key)}: read it with "
            f"self.{self.reference}.get(subject, …), which returns None or a default"
        )

    __str__ = Exception.__str__


@attrs.define(slots=False, eq=False, repr=False, auto_exc=False, kw_only=True)
class CallbackError(AmadouError):
    """A handler's callback raised an error, or returned an unusable value (`semantics.md` 1, 18, 33).

    The message shows the traceback of the user's code first, then the handler, callback, error, source, key, record and
    watermark.

    :param handler: the handler's class name
    :param callback: the callback's name, such as ``key_event`` or ``on_event``
    :param error: the type and message of the user's error
    :param user_traceback: the formatted traceback, reduced to the frames of the user's code
    :param source: the name of the record's source, or ``None`` for a timer
    :param key: the subject's key, or ``None`` in ``key_event``
    :param record: the ``repr`` of the record, event or timer
    :param watermark: the watermark of the batch in ISO format, or ``None``
    :param stage: the name of the stage; ``None`` in a job with one handler
    :param advice: a sentence at the end of the message
    """

    handler: str
    callback: str
    error: str
    user_traceback: str
    source: str | None = None
    key: Any = None
    record: str | None = None
    watermark: str | None = None
    stage: str | None = None
    advice: str | None = None

    def fields(self) -> dict[str, Any]:
        """Return the keyword arguments that re-create this error."""
        return attrs.asdict(self, recurse=False)

    def _message(self) -> str:
        return self.error

    def __str__(self) -> str:
        # If the error has a cause, Python itself prints the cause's traceback before this text.
        shown = [] if self.__cause__ is not None else [self.user_traceback.rstrip(), ""]
        shown.append(f"{self.handler}.{self.callback} failed: {self.error}")
        for label, value in (
            ("stage", self.stage),
            ("source", self.source),
            ("key", None if self.key is None else shown_value(self.key)),
            ("record", self.record),
            ("watermark", self.watermark),
        ):
            if value is not None:
                shown.append(f"  {label:<10}{value}")
        if self.advice is not None:
            shown.append(self.advice)
        return "\n".join(shown)


class EventError(AmadouError):
    """`key_event` returned a value that cannot become an event."""


@error_class
class NaiveTimestampError(EventError):
    """A timestamp has no time zone, or is not a datetime (`semantics.md` 1).

    :param timestamp: the value passed as the timestamp
    """

    timestamp: Any

    def _message(self) -> str:
        wrong = "has no time zone" if isinstance(self.timestamp, datetime) else "is not a datetime"
        return f"the timestamp {self.timestamp!r} {wrong}: use an aware datetime (for UTC, with tzinfo=timezone.utc)"


@error_class
class TimestampRangeError(EventError):
    """A time is outside the years 1 to 9999 in UTC, the range of a `datetime`.

    :param timestamp: the timestamp
    :param why: the noun phrase for the invalid time in the message; by default "it", which refers to the timestamp
    """

    timestamp: datetime
    why: str = "it"

    def _message(self) -> str:
        return (
            f"the timestamp {self.timestamp.isoformat()} is out of range: {self.why} must be within the years 1 to "
            "9999 in UTC. If the timestamp stands for a missing value, skip the event or set a different timestamp"
        )


@error_class
class KeyTypeError(EventError):
    """A key has an unsupported type, or is nested too deeply.

    Supported types are `str`, `bytes`, `int`, and tuples of these types.

    :param key: the key, or the element of a tuple key that has the wrong type
    :param why: the mistake; `None` if the type is wrong
    """

    key: Any
    why: str | None = None

    def _message(self) -> str:
        wrong = self.why or f"has type {type(self.key).__name__}"
        return f"the key {_shown(self.key)} {wrong}: a key must be a str, bytes or int, or a tuple of those"


@error_class
class TooFarAheadError(EventError):
    """An event is further ahead of the clock than the job's `max_ahead` allows (`semantics.md` 4).

    :param timestamp: the event's timestamp
    :param limit: the maximum timestamp that `max_ahead` allowed when the event was checked
    """

    timestamp: datetime
    limit: datetime

    def _message(self) -> str:
        return (
            f"the timestamp {self.timestamp.isoformat()} is too far ahead of the clock: correct the timestamp, or "
            f"raise the job's max_ahead, which currently allows times up to {self.limit.isoformat(timespec='seconds')}"
        )


class EventTypeError(EventError):
    """`key_event` returned a value that is not an event, or an event whose timestamp is not a datetime."""


@error_class
class HandlerAttributeError(AmadouError):
    """A callback set, deleted or changed an attribute of the handler or its class, or code tried to replace or delete a
    spec.

    :param handler: the handler's class name
    :param attribute: the attribute's name
    :param kind: the spec's class name; has no meaning if the attribute is not a spec
    :param usage: the correct use of the spec; `None` if the attribute is not a spec
    :param did: the change to the attribute: ``set`` or ``deleted``; ``changed`` for an attribute of the class
    """

    handler: str
    attribute: str
    kind: str
    usage: str | None
    did: str = "set"

    def _message(self) -> str:
        if self.usage is not None:
            refused = "deleted" if self.did == "deleted" else "replaced"
            return f"{self.handler}.{self.attribute} is a {self.kind} and cannot be {refused}: use {self.usage}"
        advice, of = "Or set the attribute in open()", ""
        if self.did == "changed":
            advice, of = "If this is intended, as in a fake, set check_in_place = False on the class", "class "
        return (
            f"a callback {self.did} the {of}attribute {self.handler}.{self.attribute}: other workers do not see the "
            f"change, and a restart loses it. Use state ({self.attribute} = ValueSpec(…) on the class). {advice}"
        )


@error_class
class NotRunError(AmadouError):
    """A callback returned a generator or a coroutine, so the callback's code did not run.

    :param callback: the callback's name
    :param kind: the type of the return value: ``generator``, ``coroutine`` or ``async_generator``
    """

    callback: str
    kind: str

    def _message(self) -> str:
        plain = "without yield" if self.kind == "generator" else "that is not async"
        return (
            f"{self.callback} returned {'a' if self.kind != 'async_generator' else 'an'} "
            f"{self.kind.replace('_', ' ')}, so its code did not run: use a plain function {plain}. If a decorator "
            "returned this object, the decorator must run it"
        )


@error_class
class LookupFailedError(AmadouError):
    """The answers of a lookup cannot be fetched.

    :param lookup: the lookup's name
    :param keys: the keys that cannot be fetched
    :param error: the error of the last call
    """

    lookup: str
    keys: list[Any]
    error: Any = attrs.field(converter=shown_error)

    def _message(self) -> str:
        others = f" and {len(self.keys) - 1:,} others" if len(self.keys) > 1 else ""
        shown = f"{_shown(self.keys[0])}{others}"
        return f"the lookup {self.lookup} cannot fetch the key {shown}: {self.error}"


class LookupAnswerError(AmadouError):
    """The function of a lookup returned something other than a mapping from the keys to answers that can be copied."""


@error_class
class LookupKeyError(AmadouError):
    """A callback asked a lookup for a key that no event of the batch needs, so that no answer was fetched.

    :param lookup: the lookup's name
    :param key: the key
    :param error: the error of the lookup's function `key` on an event of the batch; `None` if it did not fail
    :param key_of_event: the current key, if only events of other keys need the answer; otherwise `None`
    """

    lookup: str
    key: Any = attrs.field(converter=_shown)
    error: str | None = attrs.field(default=None, kw_only=True)
    key_of_event: Any = attrs.field(default=None, kw_only=True)

    def _message(self) -> str:
        why = "only the keys that key= returns for the events of the batch are fetched"
        advice: str | None = "Return this key there, or set keep=True to read the answers for earlier events"
        if self.error is not None:
            why, advice = f"the lookup's function key= failed on an event of the batch ({self.error})", None
        elif self.key_of_event is not None:
            current = _shown(self.key_of_event)
            why = f"no event of {current} in the batch needs it, and a different worker may process those that do"
        message = f"the lookup {self.lookup} has no answer for the key {self.key}: {why}"
        return message if advice is None else f"{message}. {advice}"


@error_class
class InPlaceChangeError(AmadouError):
    """In a test run, a callback changed a value of state in place, which is not stored.

    :param name: the name of the spec
    :param assignment: the code that assigns the value, up to the equals sign
    """

    name: str
    assignment: str

    def _message(self) -> str:
        return (
            f"a value of the state {self.name!r} was changed in place, and the change is not stored: assign the value "
            f"again ({self.assignment} = …), or change a copy of it"
        )


@error_class
class TimerError(AmadouError):
    """A handler that does not define `on_timer_expired` set a timer.

    :param handler: the handler's class name
    """

    handler: str

    def _message(self) -> str:
        return (
            f"{self.handler} set a timer but does not define on_timer_expired(self, subject, timestamp): "
            "define this callback, or do not set timers"
        )


@error_class
class TimerLoopError(AmadouError):
    """The timer callbacks of a key have set very many timers that are due in the same batch.

    :param key: the key
    :param number: number of these timers
    :param at: the time of the callback that sets the last one
    :param interval: how much later the last one is
    :param watermark: the batch's watermark
    """

    key: Any
    number: int
    at: datetime
    interval: timedelta
    watermark: datetime | None

    def _message(self) -> str:
        return (
            f"timer callbacks of the key {self.key!r} have set {self.number:,} timers in one batch, the last at "
            f"{self.at.isoformat()} for {self.interval} later, since the watermark has advanced to "
            f"{self.watermark and self.watermark.isoformat()}: set timers further apart, stop when the key has no "
            "data, or look for an event with a time far in the future"
        )


@error_class
class KeylessError(AmadouError):
    """A callback without a key used state or timers.

    :param callback: the callback's name
    """

    callback: str

    def _message(self) -> str:
        return (
            f"{self.callback} has no key, so it cannot use state or timers: use state and timers in on_event. "
            f"{self.callback} can only collect values"
        )


@error_class
class RecoverError(AmadouError):
    """A window or join is due, but the handler neither declares it nor recreates it in `on_recover_window`.

    :param handler: the handler's class name
    :param name: the name of the window or join
    :param key: the key for which the window or join is due
    :param why: the mistake in the return value of `on_recover_window`; `None` if the handler did not create a component
    :param noun: ``window`` or ``join``
    """

    handler: str
    name: str
    key: Any
    why: str | None = None
    noun: str = "window"

    def _message(self) -> str:
        lacks = (
            f"{self.handler} neither declares nor creates it"
            if self.why is None
            else f"on_recover_window of {self.handler} {self.why}"
        )
        return (
            f"the {self.noun} {self.name!r} of key {self.key!r} is due, but {lacks}: declare the {self.noun}, or "
            f"create it in on_recover_window(self, name, subject). {self.where_removed(self.name)}. The state is "
            "unchanged"
        )

    @staticmethod
    def where_removed(name: str) -> str:
        """Return the advice for users who removed a window or join from the handler on purpose."""
        return (
            f'If you removed {name!r} on purpose, use Job(retired={{{name!r}: "drop"}}) to drop its stored state, or '
            f'"keep" if you plan to declare {name!r} again'
        )


class SpecError(AmadouError):
    """A spec has invalid settings."""


class CodecError(AmadouError):
    """A type has no codec, or a value cannot be encoded or decoded."""


@error_class
class UnsupportedTypeError(CodecError):
    """amadou has no codec for a type.

    :param type_: the type
    :param why: the reason, and the types to use instead
    :param setting: the spec's setting for a custom codec, such as ``codec``; `None` if a custom codec cannot help
    """

    type: Any = attrs.field(alias="type_")
    why: str
    setting: str | None = None

    def _message(self) -> str:
        instead = "" if self.setting is None else f", or set {self.setting}= on the spec"
        return f"the type {_type_name(self.type)} is not supported: {self.why}{instead}"


@error_class
class EncodeError(CodecError):
    """A value does not fit the type of its spec, port or event.

    :param value: the value
    :param type_: the declared type
    :param why: the reason; empty if the value has the wrong type
    :param spec: the spec or port that the value was written to, or ``None``
    :param key: the subject's key, or ``None``
    """

    value: Any
    type: Any = attrs.field(alias="type_")
    why: str = ""
    spec: str | None = None
    key: Any = None

    def _message(self) -> str:
        where = "" if self.spec is None else f"{self.spec}: "
        reason = f": {self.why}" if self.why else ""
        return (
            f"{where}cannot store {_shown(self.value)} ({type(self.value).__name__}) as {_type_name(self.type)}{reason}"
        )


@error_class
class StateDecodeError(CodecError):
    """Stored state does not fit its spec. The state is unchanged (`semantics.md` 17).

    This error always ends the run, even with `on_error="dead_letter"`: the next version of the code may be able to read
    the state.

    :param stored: the stored state, in its encoded form
    :param type_: the type that the spec expects
    :param why: the reason; empty if the state has the wrong type
    :param spec: the spec's name
    :param key: the subject's key
    :param advice: the way to fix the mismatch, as an imperative that starts with a lower-case letter
    """

    stored: Any
    type: Any = attrs.field(alias="type_")
    why: str = ""
    spec: str | None = None
    key: Any = None
    advice: str = "use a type or a migrate= that can read the state"

    @property
    def mismatch(self) -> str:
        """The stored and the expected type."""
        reason = f": {self.why}" if self.why else ""
        return f"found {_shown(self.stored)}, expected {_type_name(self.type)}{reason}"

    def _message(self) -> str:
        where = "" if self.spec is None else f"state {self.spec!r} of key {shown_value(self.key)}: "
        return f"{where}{self.mismatch}. The state is unchanged. To continue, {self.advice}"


@error_class
class PortError(AmadouError):
    """A port has no sink, or does not exist.

    :param port: the port's name
    :param ports: the names of the ports that have a sink
    """

    port: str
    ports: tuple[str, ...]

    def _message(self) -> str:
        known = ", ".join(self.ports) or "none"
        return f"no sink for the port {self.port!r} (ports with a sink: {known}): correct the name, or add a sink"


class SourceError(AmadouError):
    """A source has an invalid setting, or cannot be read."""


class SinkError(AmadouError):
    """A sink has an invalid setting, or cannot be written to."""


@error_class
class PluginError(AmadouError):
    """A plugin cannot be loaded, or failed.

    :param plugin: the plugin's name
    :param why: the cause, and how to fix it
    :param hook: the hook that failed; `None` if the plugin cannot be loaded
    """

    plugin: str
    why: str
    hook: str | None = None

    def _message(self) -> str:
        outcome = "cannot be loaded" if self.hook is None else f"failed in {self.hook}"
        return f"the plugin {self.plugin} {outcome}: {self.why}"


@error_class
class CheckpointError(AmadouError):
    """A checkpoint cannot be used for this job.

    :param checkpoint: the checkpoint's directory
    :param message: the mistake, and how to fix it
    """

    checkpoint: str
    message: str

    def _message(self) -> str:
        return f"checkpoint {self.checkpoint}: {self.message}"


@error_class
class SavepointError(AmadouError):
    """A savepoint cannot be read or written, or cannot be used for this job.

    :param savepoint: the savepoint's directory
    :param message: the mistake, and how to fix it
    """

    savepoint: str
    message: str

    def _message(self) -> str:
        return f"savepoint {self.savepoint}: {self.message}"


class ProjectError(AmadouError):
    """A project cannot be created or packaged."""


class PlatformError(AmadouError):
    """Spark cannot start, or lacks what a job needs; for example, a required Python package is missing, Java is missing
    or not a supported version, or the version of Spark is too old.
    """


@error_class
class TooManyDeadLettersError(AmadouError):
    """More callbacks failed than the job's `max_dead_letters` allows. The batch is not committed.

    :param letters: number of failures since the checkpoint was created
    :param bound: the job's `max_dead_letters`
    :param failures: descriptions of the most frequent kinds of failures, one string per kind
    :param callback: the callback whose failure rate exceeds the bound; `None` if the bound is a number of failures
    :param failed: number of the callback's failures
    :param calls: number of the callback's calls
    """

    letters: int
    bound: float
    failures: tuple[str, ...]
    callback: str | None = None
    failed: int = 0
    calls: int = 0

    def _message(self) -> str:
        message = (
            f"dead letters: {self.letters:,}, more than max_dead_letters={self.bound:,}"
            if self.callback is None
            else f"{self.failed:,} of {self.calls:,} calls of {self.callback} failed, more than "
            f"max_dead_letters={self.bound}"
        )
        lines = "".join(f"\n  {failure}" for failure in self.failures)
        return (
            f"{message}. This batch is not committed: fix the failures and run the job again, or increase "
            f"max_dead_letters. The most frequent failures:{lines}"
        )


@error_class
class TooManyHeldError(AmadouError):
    """More events are held while a source is down than `DependsOn(max_held=…)` allows. The batch is not committed.

    :param source: the source whose events are held
    :param on: the source that is down
    :param held: number of held events
    :param max_held: the maximum number of held events
    """

    source: str
    on: str
    held: int
    max_held: int

    def _message(self) -> str:
        return (
            f"{self.held:,} events from source {self.source!r} are held, more than max_held={self.max_held:,} in "
            f"DependsOn({self.source!r}, on={self.on!r}). No event is lost. Increase max_held, and run the job again "
            f"with the same checkpoint. The held events are processed when {self.on!r} has caught up"
        )


@error_class
class EngineDifferenceError(AmadouError):
    """A test run on both engines had different results.

    :param what: the result that differs, such as `trace` or `state`; `outcome` if at least one engine failed
    :param embedded: the embedded engine's result at the first difference, shortened
    :param spark: Spark's result at the same position, shortened
    :param where: the position of the first entry that differs, and the number of entries on each engine
    """

    what: str
    embedded: str
    spark: str
    where: str = ""

    def _message(self) -> str:
        return (
            f"the engines differ in the {self.what} of a batch{self.where}:\n  embedded  {self.embedded}\n  spark     "
            f"{self.spark}\nCheck that the handler is deterministic: it must not read the clock, use randomness or "
            "depend on set order"
        )


@error_class
class VectorizedPathError(AmadouError):
    """In a test run, the vectorised and the per-event path of a component or of `key_event` had different results for a
    batch. The per-event path is the reference. This is a bug in amadou or in the component.

    :param name: the component's name, or ``key_event``
    :param what: the result that differs, such as `outputs` or `state`; `outcome` if only one path failed
    :param vectorized: the vectorised path's result at the first difference, shortened
    :param per_event: the per-event path's result at the same position, shortened
    :param where: the position of the first entry that differs, and the number of entries on each path; the traceback if
        only the vectorised path failed
    """

    name: str
    what: str
    vectorized: str
    per_event: str
    where: str = ""

    def _message(self) -> str:
        return (
            f"the vectorised path of {self.name}, used when the job runs, and the per-event path differ in the "
            f"{self.what} of a batch{self.where}:\n  vectorised  {self.vectorized}\n  per event   "
            f"{self.per_event}\nThis is a bug in amadou or in the component: please report it"
        )


class RunError(AmadouError):
    """A run failed for a reason that no other error describes, such as a failure in Spark."""


def _type_name(type_: Any) -> str:
    return type_.__name__ if isinstance(type_, type) and not hasattr(type_, "__args__") else str(type_)
