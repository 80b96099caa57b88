"""Raises an alarm for an address from which logins fail five times within a minute, from the log of an SSH server.

What counts, exactly:

- A failure is a line of sshd's with ``Failed password for … from ADDRESS port …``. A line ``message repeated N times:
  [ Failed password for … ]``, with which syslog sums up repetitions, is N failures at the time of that line.
- The alarm is raised at the first failure that has four others of its address at most 60 seconds before it (60 whole
  seconds still count; so do failures of the same second).
- After an alarm there is no other for the address until its failures have paused for more than 60 seconds.

A log's times have neither year nor zone: they are read as UTC, in the year that the parameter YEAR gives. Lines are
taken to come in order of time, as a log has them; then the alarms are the same for every cut of the log into batches.
"""

import re
from datetime import UTC, datetime, timedelta

from attrs import frozen

from amadou import Handler, Job, KeyedEvent, Param, SinkSpec, Subject, ValueSpec
from amadou_plugins.connectors import JsonLinesSink, LinesSource
from amadou_runtime import main

FAILURES = 5
MINUTE = timedelta(minutes=1)
FAILURE = re.compile(
    rb"(\w{3} [ \d]\d \d\d:\d\d:\d\d) \S+ sshd\[\d+\]: (?:message repeated (\d+) times: \[ )?"
    # A user's name may be any text, " from 10.0.0.1 port 22" too: only what stands at the end of the line is sshd's.
    rb"Failed password for .* from ([\w.:%-]+) port \d+(?: ssh2)?\]?\s*$"
)


@frozen
class Alarm:
    """Five failures within a minute: when the fifth was, and the first of the five."""

    address: str
    timestamp: datetime
    since: datetime


@frozen
class Burst:
    """The latest failures of an address, five at most, none more than a minute after the one before it."""

    times: tuple[datetime, ...] = ()
    alarmed: bool = False


class FailedLogins(Handler[str]):
    """Five failed logins from one address within a minute.

    :param year: the year of the log's times
    """

    burst = ValueSpec(Burst, default=Burst())
    alarms = SinkSpec(Alarm)

    def __init__(self, year: int | Param) -> None:
        self.year = year

    def key_event(self, record: bytes) -> list[KeyedEvent]:
        failure = FAILURE.match(record)
        if failure is None:
            return []
        time, repeated, address = failure.groups()
        timestamp = datetime.strptime(f"{self.year} {time.decode()}", "%Y %b %d %H:%M:%S").replace(tzinfo=UTC)
        # More than five at one time raise no other alarm than five.
        return [KeyedEvent(address.decode(), timestamp)] * min(int(repeated or 1), FAILURES)

    def on_event(self, subject: Subject[str], event: KeyedEvent) -> None:
        state = self.burst.state_for(subject)
        burst = state.value
        if burst.times:
            subject.delete_timer(forgotten_at(burst))
            if event.timestamp - burst.times[-1] > MINUTE:
                burst = Burst()  # the timer that forgets it may fire only after this event
        times = sorted([*burst.times, event.timestamp])[-FAILURES:]
        alarmed = burst.alarmed
        if not alarmed and len(times) == FAILURES and times[-1] - times[0] <= MINUTE:
            self.alarms.collect(subject, Alarm(subject.key, event.timestamp, times[0]))
            alarmed = True
        state.value = Burst(tuple(times), alarmed)
        if not subject.set_timer(forgotten_at(state.value)):
            state.clear()  # the line came more than a minute late

    def on_timer_expired(self, subject: Subject[str], timestamp: datetime) -> None:
        self.burst.state_for(subject).clear()


def forgotten_at(burst: Burst) -> datetime:
    """The first moment at which a failure would begin another burst."""
    return burst.times[-1] + MINUTE + timedelta(microseconds=1)


job = Job(
    "failed-logins",
    handler=FailedLogins(Param("YEAR", default=2016, type=int)),
    sources={
        "log": LinesSource(
            Param("LOG", default="auth.log"), max_files_per_batch=Param("FILES_PER_BATCH", default=None, type=int)
        )
    },
    sinks={"alarms": JsonLinesSink(Param("ALARMS", default="alarms/"))},
)

if __name__ == "__main__":
    main(job)
