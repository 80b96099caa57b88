"""Tests of `high_score.py`."""

import json
from pathlib import Path

from high_score import HighScore, HighScores, job

from amadou_runtime import TestRun


def score(user: str, points: int, minute: int = 0) -> bytes:
    return json.dumps({"user": user, "score": points, "timestamp": f"2024-01-01T00:{minute:02}:00Z"}).encode()


def test_a_record_is_emitted_when_a_score_beats_the_best_of_its_user() -> None:
    run = TestRun(job)
    scores = [("user-1", 100), ("user-1", 50), ("user-1", 150), ("user-2", 75), ("user-2", 80), ("user-1", 200)]
    run.add_records(score(user, points, minute) for minute, (user, points) in enumerate(scores, start=1))

    assert run.run().records("records") == [
        HighScore("user-1", 100, 0),
        HighScore("user-1", 150, 100),
        HighScore("user-2", 75, 0),
        HighScore("user-2", 80, 75),
        HighScore("user-1", 200, 150),
    ]


def test_a_best_score_is_remembered_from_batch_to_batch() -> None:
    run = TestRun(job).add_record(score("ada", 100)).end_batch()
    run.add_record(score("ada", 100)).end_batch()
    run.add_record(score("ada", 101))

    result = run.run()

    assert result.records("records") == [HighScore("ada", 100, 0), HighScore("ada", 101, 100)]
    assert result.state(HighScores.best, "ada") == 101


def test_the_sample_scores() -> None:
    lines = Path(__file__).with_name("scores.jsonl").read_bytes().splitlines()
    best: dict[str, int] = {}
    expected = []
    for result in map(json.loads, lines):
        user, points = result["user"], result["score"]
        if points > best.get(user, 0):
            expected.append(HighScore(user, points, best.get(user, 0)))
            best[user] = points

    assert TestRun(job).add_records(lines).run().records("records") == expected
