"""Tables, lines and summaries of a suite."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from drivetrain_api.artifacts.suite_record import MemberState, SuiteMember
from drivetrain_api.status import Progress, RunSummaryDigest, TrainingRunStatus
from drivetrain_operator.suite.display import Board, Figures, figures_of, lines_of, reasons

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def member(index: int, state: MemberState, **changes: Any) -> SuiteMember:
    values: dict[str, Any] = {
        "name": f"swing-s{index}",
        "variant": "default",
        "seed": index,
        "run_idx": index,
        "algo": "sac",
        "task": "t",
        "state": state,
        "run_directory": f"r{index}",
        **changes,
    }
    return SuiteMember(**values)


MIXED = [
    member(0, MemberState.COMPLETE),
    member(1, MemberState.FAILED, reason="a wheel fell off"),
    member(2, MemberState.RUNNING),
    member(3, MemberState.PENDING),
    member(4, MemberState.PENDING),
]
FIGURES = {
    "swing-s0": Figures(100_000, 100_000, "951.5", 3723.0),
    "swing-s2": Figures(42_000, 100_000, "12.25", 65.0),
}


def test_the_table() -> None:
    assert lines_of(MIXED, FIGURES) == [
        "MEMBER     VARIANT   SEED   STATE               STEPS   RETURN   TIME",
        "swing-s0   default      0   complete          100,000    951.5   1h2m",
        "swing-s1   default      1   failed                  -        -      -",
        "swing-s2   default      2   running    42,000/100,000    12.25   1m5s",
        "swing-s3   default      3   pending                 -        -      -",
        "swing-s4   default      4   pending                 -        -      -",
        "1 complete, 1 running, 1 failed, 2 pending of 5 members",
    ]


def test_where_the_terminal_is_low_the_urgent_rows_are_shown_in_order() -> None:
    shown = lines_of(MIXED, FIGURES, height=6)
    assert [line.split()[0] for line in shown[1:-1]] == ["swing-s1", "swing-s2", "swing-s3"]
    assert shown[-1].startswith("and 2 more; 1 complete")
    assert len(lines_of(MIXED, FIGURES, height=1)) == 3


def test_where_the_terminal_is_narrow_the_variant_is_left_out() -> None:
    assert lines_of(MIXED, FIGURES, width=69) == lines_of(MIXED, FIGURES)
    narrow = lines_of(MIXED, FIGURES, width=68)
    assert narrow[:2] == [
        "MEMBER     SEED   STATE               STEPS   RETURN   TIME",
        "swing-s0      0   complete          100,000    951.5   1h2m",
    ]


def test_reasons_are_told_below() -> None:
    assert reasons(MIXED) == ["MEMBER     REASON", "swing-s1   a wheel fell off"]
    assert reasons([member(0, MemberState.COMPLETE)]) == []


def test_a_threshold_that_was_missed_is_counted_and_told() -> None:
    missed = member(1, MemberState.COMPLETE, reason="ThresholdMissed: below 9")
    both = [member(0, MemberState.COMPLETE), missed]
    assert lines_of(both, {})[-1] == "2 complete (1 below its threshold) of 2 members"
    assert reasons(both) == ["MEMBER     REASON", "swing-s1   ThresholdMissed: below 9"]


def test_figures_of_a_status() -> None:
    began = NOW - timedelta(seconds=90)
    running = TrainingRunStatus(
        started_at=began,
        progress=Progress(env_steps=5, target_env_steps=10, mean_reward="1.5"),
    )
    assert figures_of(running, NOW) == Figures(5, 10, "1.5", 90.0)
    over = running.model_copy(
        update={
            "finished_at": began + timedelta(seconds=30),
            "run_summary": RunSummaryDigest(
                status="completed", total_env_steps=10, evaluated_return="3.5"
            ),
        }
    )
    assert figures_of(over, NOW) == Figures(10, 10, "3.5", 30.0)
    assert figures_of(TrainingRunStatus(), NOW) == Figures()


def test_without_a_terminal_each_change_is_a_line_and_a_long_run_tells_now_and_then(
    capsys: pytest.CaptureFixture[str],
) -> None:
    at = 0.0
    board = Board(live=False, clock=lambda: at)
    for at in (0.0, 30.0, 61.0, 62.0):  # noqa: B007 - the board's clock reads it
        board.show(MIXED, FIGURES)
    assert capsys.readouterr().err.splitlines() == [
        "[2/5] swing-s0 complete at 100,000 steps, return 951.5",
        "[2/5] swing-s1 failed: a wheel fell off",
        "[2/5] swing-s2 running at 42,000 steps, return 12.25",
        "[2/5] swing-s2 running at 42,000 steps, return 12.25",
    ]


def test_on_a_terminal_the_table_is_drawn_over_itself(capsys: pytest.CaptureFixture[str]) -> None:
    board = Board(live=True)
    board.show(MIXED, FIGURES)
    board.show(MIXED, FIGURES)
    board.note("something")
    board.close()
    said = capsys.readouterr().err
    assert said.count("\x1b[7A\x1b[J") == 2, "once for the second table, once for the note"
    assert said.endswith("something\n")
