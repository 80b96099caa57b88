"""Reads the log of an SSH server, and raises an alarm when five logins from the same address fail within a minute.

The exact rules:

- A failure is a line from sshd with ``Failed password for … from ADDRESS port …``. If syslog summarises repetitions as
  ``message repeated N times: [ Failed password for … ]``, the line counts as N failures at the time of the line.
- A failure raises an alarm if it follows four other failures of the same address within 60 seconds. Exactly 60 seconds
  still count, and so do failures in the same second.
- After an alarm, no other alarm is raised for the address until it has had no failure for more than 60 seconds.

The log's times have neither a year nor a time zone. They are parsed as UTC, in the year of the parameter YEAR. If the
lines are in time order, as in a real log, the alarms are the same however the log is split into batches.
"""

import re
from datetime import datetime, timedelta, timezone

from attrs import frozen

from amadou import Handler, Job, KeyedEvent, Param, SinkSpec, Subject, ValueSpec
from amadou_plugins.connectors import JsonLinesSink, LinesSource
from amadou_runtime import main

FAILURES = 5
MINUTE = timedelta(minutes=1)
FAILURE = re.compile(
    rb"(\w{3} [ \d]\d \d\d:\d\d:\d\d) \S+ sshd\[\d+\]: (?:message repeated (\d+) times: \[ )?"
    # A user name can be any string, even " from 10.0.0.1 port 22". Only the end of the line is certainly from sshd.
    rb"Failed password for .* from ([\w.:%-]+) port \d+(?: ssh2)?\]?\s*$"
)


@frozen
class Alarm:
    """Five failures within a minute: `timestamp` is the time of the fifth failure, `since` the time of the first."""

    address: str
    timestamp: datetime
    since: datetime


@frozen
class Burst:
    """The latest failures of an address: at most five, each at most a minute after the previous one."""

    times: tuple[datetime, ...] = ()
    alarmed: bool = False


class FailedLogins(Handler[str]):
    """Raises an alarm for five failed logins from one address within a minute.

    :param year: year of the log's times
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
        timestamp = datetime.strptime(f"{self.year} {time.decode()}", "%Y %b %d %H:%M:%S").replace(tzinfo=timezone.utc)
        # More than five failures at the same time raise the same alarm as five.
        return [KeyedEvent(address.decode(), timestamp)] * min(int(repeated or 1), FAILURES)

    def on_event(self, subject: Subject[str], event: KeyedEvent) -> None:
        state = self.burst.state_for(subject)
        burst = state.value
        if burst.times:
            subject.delete_timer(forgotten_at(burst))
            if event.timestamp - burst.times[-1] > MINUTE:
                burst = Burst()  # the old burst's timer may not have fired yet
        times = sorted([*burst.times, event.timestamp])[-FAILURES:]
        alarmed = burst.alarmed
        if not alarmed and len(times) == FAILURES and times[-1] - times[0] <= MINUTE:
            self.alarms.collect(subject, Alarm(subject.key, times[-1], times[0]))
            alarmed = True
        state.value = Burst(tuple(times), alarmed)
        if not subject.set_timer(forgotten_at(state.value)):
            state.clear()
            subject.drop(event)  # it is late: the watermark is more than a minute past the last failure

    def on_timer_expired(self, subject: Subject[str], timestamp: datetime) -> None:
        self.burst.state_for(subject).clear()


def forgotten_at(burst: Burst) -> datetime:
    """Return the earliest time at which another failure would start a new burst."""
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
