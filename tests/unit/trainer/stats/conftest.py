"""Every test begins and ends with empty trackers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from drivetrain_trainer import stats


@pytest.fixture(autouse=True)
def _empty_trackers() -> Iterator[None]:
    stats.forget_all()
    yield
    stats.forget_all()
