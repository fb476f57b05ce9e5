"""What a rank tells at its end, whatever its collector left."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from drivetrain_trainer.runtime import sequence_lock
from drivetrain_trainer.runtime.metrics_board import MetricsBoard
from drivetrain_trainer.training.record import RankRecord


def test_a_report_that_a_killed_collector_left_half_written_holds_up_no_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sequence_lock, "PATIENCE_S", 3600.0)
    board = MetricsBoard.create()
    board.publish(3, {"x": 1.0})
    board._report._header[0] += 1  # killed within the next one
    told: list[dict[str, Any]] = []
    manifest: Any = SimpleNamespace(note=lambda **fields: told.append(fields))
    transport: Any = SimpleNamespace(board=board)
    RankRecord()._note_soundness(manifest, transport)
    assert told == []
    board.close()
