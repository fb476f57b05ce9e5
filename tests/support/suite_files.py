"""A template for suites of tiny runs."""

from __future__ import annotations

from typing import Any

TEMPLATE: dict[str, Any] = {
    "algo": {
        "name": "sac",
        "numEnvs": 2,
        "batchSize": 16,
        "learningStarts": 8,
        "actorHidden": [16],
        "criticHidden": [16],
        "replayRows": 1000,
    },
    "task": {"name": "inverted_pendulum"},
    "training": {"totalEnvSteps": 400, "device": "cpu"},
    "restart": {"maxRestarts": 0},
}
