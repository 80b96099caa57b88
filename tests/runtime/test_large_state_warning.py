"""State that is too large for the store *groups* is warned of."""

from datetime import datetime, timezone

import pytest
from tests.conformance.handlers import Recorder, job

from amadou import BatchReport, Counts
from amadou_runtime.core.large_state_warning import LargeStateWarning

NOON = datetime(2025, 1, 1, 12, tzinfo=timezone.utc)
LARGE = 16 << 20


def warned(caplog: pytest.LogCaptureFixture, store: str, *sizes: int) -> list[str]:
    caplog.clear()
    warning = LargeStateWarning(job(Recorder()))
    for size in sizes:
        warning.look(BatchReport(0, Counts(state_bytes=size), None, 1.0, NOON), store)
    return caplog.messages


def test_state_that_has_grown_is_named_once_with_the_setting(caplog: pytest.LogCaptureFixture) -> None:
    [message] = warned(caplog, "groups", 0, LARGE, LARGE + (1 << 20), 2 * LARGE)
    assert "state has grown to 17.0 MiB on the store" in message
    assert 'start a new checkpoint with state="log" (or --state log)' in message


def test_small_state_and_the_log_are_not_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    assert warned(caplog, "groups", 0, LARGE) == []
    assert warned(caplog, "log", 100 * LARGE) == []
