from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from drivetrain_api.compose import parse_run
from drivetrain_api.trainingrun import TrainingRun


def _run(name: str = "walk", **spec: Any) -> TrainingRun:
    return parse_run(
        {
            "apiVersion": "drivetrain.dev/v1alpha1",
            "kind": "TrainingRun",
            "metadata": {
                "name": name,
                "namespace": "lab",
                "uid": "run-uid-1",
                "creationTimestamp": "2026-03-01T12:00:00Z",
            },
            "spec": {"algo": {"name": "sac"}, "task": {"name": "hopper"}} | spec,
        }
    )


@pytest.fixture
def make_run() -> Callable[..., TrainingRun]:
    return _run
