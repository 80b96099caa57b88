"""Reports when a user beats their previous best score: a handler with one state value per user."""

from datetime import datetime

import orjson
from attrs import frozen

from amadou import Handler, Job, KeyedEvent, Param, SinkSpec, Subject, ValueSpec
from amadou_plugins.connectors import JsonLinesSink, LinesSource
from amadou_runtime import main


@frozen
class HighScore:
    user: str
    new: int
    old: int


class HighScores(Handler[str]):
    """Emits each score that beats the user's previous best."""

    best = ValueSpec(int, default=0)
    records = SinkSpec(HighScore)

    def key_event(self, record: bytes) -> KeyedEvent[int]:
        result = orjson.loads(record)
        return KeyedEvent(result["user"], datetime.fromisoformat(result["timestamp"]), result["score"])

    def on_event(self, subject: Subject[str], event: KeyedEvent[int]) -> None:
        best = self.best.state_for(subject)
        if event.value > best.value:
            self.records.collect(subject, HighScore(subject.key, event.value, best.value))
            best.value = event.value


job = Job(
    "high-score",
    handler=HighScores(),
    sources={"scores": LinesSource(Param("SCORES", default="scores.jsonl"))},
    sinks={"records": JsonLinesSink(Param("RECORDS", default="records/"))},
)

if __name__ == "__main__":
    main(job)
