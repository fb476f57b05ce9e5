"""The algorithm of runs that are there to start and end, not to learn."""

from __future__ import annotations

from typing import Any, Final

TINY_SAC: Final[dict[str, Any]] = {
    "name": "sac",
    "numEnvs": 2,
    "batchSize": 16,
    "updatesPerStep": 2,
    "learningStarts": 8,
    "actorHidden": [16],
    "criticHidden": [16],
    "replayRows": 1000,
}
