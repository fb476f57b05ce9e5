"""For all tests: hypothesis' examples, and a log that no test leaves changed."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import structlog
from hypothesis import settings

# The same examples at every landing, new ones by night.
settings.register_profile("landing", derandomize=True, deadline=None)
settings.register_profile("nightly", deadline=None, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "landing"))


@pytest.fixture(autouse=True)
def log_as_it_was() -> Iterator[None]:
    """A program that a test runs in this process sets up the log for itself alone."""
    configured, before = structlog.is_configured(), structlog.get_config()
    yield
    if configured:
        structlog.configure(**before)
    else:
        structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()
