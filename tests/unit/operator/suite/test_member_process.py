"""What an ended ``drivetrain run`` means for its member."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from drivetrain_api.artifacts.suite_record import MemberState
from drivetrain_api.compose import parse_run
from drivetrain_api.status import Phase, TrainingRunStatus
from drivetrain_api.trainingrun import TrainingRun
from drivetrain_operator.suite.member_process import Outcome, outcome

ENDED = "its command ended with exit code"
C, S, F = MemberState.COMPLETE, MemberState.SUSPENDED, MemberState.FAILED


def run(phase: Phase | None) -> TrainingRun | None:
    if phase is None:
        return None
    document: dict[str, Any] = {
        "metadata": {"name": "a"},
        "spec": {"algo": {"name": "sac"}, "task": {"name": "hopper"}},
    }
    status = TrainingRunStatus(phase=phase, message="the status' words")
    return parse_run(document).model_copy(update={"status": status})


@pytest.mark.parametrize(
    ("code", "phase", "log", "expected"),
    [
        (0, Phase.COMPLETE, "", Outcome(C)),
        (1, Phase.FAILED, "", Outcome(F, "the status' words")),
        (130, Phase.SUSPENDED, "", Outcome(S)),
        (130, Phase.RUNNING, "", Outcome(S, "killed before a checkpoint")),
        (-9, Phase.RUNNING, "", Outcome(S, "its command was killed by SIGKILL")),
        (-9, Phase.SUSPENDED, "", Outcome(S, "its command was killed by SIGKILL")),
        (2, None, "error: a\nerror: b\nhint\n", Outcome(F, "refused: a; b")),
        (2, Phase.SUSPENDED, "error: x\n", Outcome(F, "refused: x")),
        (1, None, "Traceback\nKeyError: 1\n", Outcome(F, f"{ENDED} 1: KeyError: 1")),
    ],
)  # fmt: skip
def test_outcomes(
    tmp_path: Path, code: int, phase: Phase | None, log: str, expected: Outcome
) -> None:
    path = tmp_path / "log"
    path.write_text(log)
    assert outcome(code, run(phase), path) == expected
