"""Reads the stored moments."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from drivetrain_trainer.telemetry.facts import EvaluationFigures, MpsStatus, SystemFacts
from drivetrain_trainer.telemetry.terminal.model import Snapshot

NAMES: Final = ("off_policy", "appo", "ppo")


def stored_snapshot(name: str) -> Snapshot:
    """The stored moment of a run of that kind."""
    text = Path(__file__).with_name(f"{name}.json").read_text(encoding="utf-8")
    fields: dict[str, Any] = json.loads(text)
    facts: dict[str, Any] = fields.pop("facts")
    mps = MpsStatus(facts.pop("mps", MpsStatus.OFF))
    evaluation = fields.pop("evaluation", None)
    return Snapshot(
        facts=SystemFacts(mps=mps, **facts),
        evaluation=EvaluationFigures(**evaluation) if evaluation else None,
        **fields,
    )
