from __future__ import annotations

import io
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from drivetrain_trainer.telemetry.facts import EvaluationFigures, SystemFacts
from drivetrain_trainer.telemetry.record import Record
from drivetrain_trainer.telemetry.terminal.plain import (
    PLAIN_INTERVAL_S,
    PlainTerminal,
    evaluation_line,
    opening_line,
)
from drivetrain_trainer.telemetry.terminal.state import TerminalState

MakeRecord = Callable[..., Record]


class WatchedStream(io.StringIO):
    """Tells when a line that contains some text was written."""

    def __init__(self, awaited: str) -> None:
        super().__init__()
        self.awaited = awaited
        self.seen = threading.Event()

    def write(self, text: str) -> int:
        written = super().write(text)
        if self.awaited in text:
            self.seen.set()
        return written


def test_a_line_every_five_seconds() -> None:
    assert PLAIN_INTERVAL_S == 5.0


def test_lines_say_what_is_trained_and_where_it_stands(
    facts: SystemFacts, make_record: MakeRecord
) -> None:
    stream = WatchedStream("53.1 %")
    terminal = PlainTerminal(TerminalState(facts), stream, interval_s=0.01)
    terminal.start()
    terminal.update(make_record())
    assert stream.seen.wait(10)
    terminal.close()
    opening, progress = stream.getvalue().splitlines()
    assert opening == (
        "training sac on half_cheetah (mujoco), run 2026-03-09_18-30-00_mujoco: "
        "1 rank, 64 envs, batch 256 a rank, GPUs 0"
    )
    assert progress == ("step 531,200/1,000,000  53.1 %  8,142 steps/s  reward 5,123.2  eta -")
    assert stream.getvalue().isascii()


def test_without_a_new_report_there_is_no_new_line(
    facts: SystemFacts, make_record: MakeRecord
) -> None:
    stream = io.StringIO()
    terminal = PlainTerminal(TerminalState(facts), stream, interval_s=60)
    terminal.update(make_record())
    assert terminal._tick()
    assert terminal._tick()
    assert len(stream.getvalue().splitlines()) == 1


def test_a_short_run_still_gets_its_last_line(facts: SystemFacts, make_record: MakeRecord) -> None:
    stream = io.StringIO()
    terminal = PlainTerminal(TerminalState(facts), stream, interval_s=60)
    terminal.start()
    terminal.update(make_record(1_000_000))
    terminal.close()
    assert "100.0 %" in stream.getvalue().splitlines()[-1]


@pytest.mark.parametrize(
    ("best_step", "ending"),
    [(500_000, "over 10 episodes (best so far)"), (400_000, "(best 5,301.1 at step 400,000)")],
)
def test_an_evaluation_has_a_line_of_its_own(
    facts: SystemFacts, best_step: int, ending: str
) -> None:
    stream = io.StringIO()
    terminal = PlainTerminal(TerminalState(facts), stream)
    terminal.evaluated(EvaluationFigures(500_000, 5230.1, 101.2, 10, 5301.1, best_step))
    line = stream.getvalue()
    assert line.startswith("evaluation at step 500,000: 5,230.1 +/- 101.20 over 10 episodes")
    assert line.rstrip().endswith(ending)


def test_a_run_by_iterations_counts_them(facts: SystemFacts, make_record: MakeRecord) -> None:
    counted = replace(facts, target_env_steps=None, target_iterations=16_600, ranks=2)
    assert "2 ranks, 128 envs" in opening_line(counted)
    stream = io.StringIO()
    terminal = PlainTerminal(TerminalState(counted), stream, interval_s=60)
    terminal.update(make_record())
    terminal._tick()
    assert stream.getvalue().startswith("iteration 8,300/16,600  50.0 %")


def test_a_closed_stream_ends_the_lines_and_not_training(
    facts: SystemFacts, make_record: MakeRecord
) -> None:
    stream = io.StringIO()
    terminal = PlainTerminal(TerminalState(facts), stream, interval_s=60)
    stream.close()
    with capture_logs() as logs:
        terminal.update(make_record())
        assert not terminal._tick()
        terminal.update(make_record())
        terminal.evaluated(EvaluationFigures(1, 1.0, 0.0, 1, 1.0, 1))
        terminal.close()
    assert [entry["event"] for entry in logs] == ["terminal output ended; training goes on"]


def test_the_line_of_an_evaluation_without_a_deviation() -> None:
    line = evaluation_line(EvaluationFigures(1, 2.0, float("nan"), 1, 2.0, 1))
    assert "2.0000 over 1 episode (" in line
