"""An attempt to claim run directories with."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from drivetrain_api.attempt import AttemptSpec

CREATED = datetime(2026, 3, 9, 18, 30, 0, tzinfo=UTC)

MakeAttempt = Callable[..., AttemptSpec]


@pytest.fixture
def make_attempt() -> MakeAttempt:
    def make(
        attempt: int = 1, uid: str = "uid-1", training: dict[str, Any] | None = None, **spec: Any
    ) -> AttemptSpec:
        return AttemptSpec.model_validate(
            {
                "name": "cheetah",
                "namespace": "default",
                "uid": uid,
                "attempt": attempt,
                "created": CREATED,
                "spec": {
                    "algo": {"name": "sac"},
                    "task": {"name": "half_cheetah"},
                    "training": training or {},
                    **spec,
                },
            }
        )

    return make
