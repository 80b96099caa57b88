"""Warnings about state that is too large for the store *groups*."""

from datetime import datetime, timezone

import pytest
from tests.conformance.handlers import Recorder, job

from amadou.plugins import BatchReport, Counts
from amadou_runtime.runs.large_state_warning import LargeStateWarning

NOON = datetime(2025, 1, 1, 12, tzinfo=timezone.utc)
LARGE = 16 << 20


def warned(caplog: pytest.LogCaptureFixture, store: str, *sizes: int) -> list[str]:
    caplog.clear()
    warning = LargeStateWarning(job(Recorder()))
    for size in sizes:
        warning.look(BatchReport(0, Counts(state_bytes=size), None, 1.0, NOON), store)
    return caplog.messages


def test_one_warning_about_large_state_names_the_setting_for_the_store_log(caplog: pytest.LogCaptureFixture) -> None:
    [message] = warned(caplog, "groups", 0, LARGE, LARGE + (1 << 20), 2 * LARGE)
    assert "state has grown to 17.0 MiB on the store" in message
    assert 'start a new checkpoint with state="log" (or --state log)' in message


def test_no_warning_is_logged_for_small_state_or_the_store_log(caplog: pytest.LogCaptureFixture) -> None:
    assert warned(caplog, "groups", 0, LARGE) == []
    assert warned(caplog, "log", 100 * LARGE) == []
