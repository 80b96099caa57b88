"""The stores of state, as parameters of tests."""

import pytest

LOG = pytest.param("log", marks=pytest.mark.needs_spark(4))
STORES = ["groups", LOG]
MAINLY_LOG = [LOG, pytest.param("groups", marks=pytest.mark.qualify)]
"""Only the store *log*; `scripts/qualify` has both stores."""
