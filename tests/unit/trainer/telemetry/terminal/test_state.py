from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from drivetrain_trainer.telemetry.facts import EvaluationFigures, SystemFacts
from drivetrain_trainer.telemetry.record import Record
from drivetrain_trainer.telemetry.terminal.state import MOST_WAITING, TerminalState

MakeRecord = Callable[..., Record]


class ManualClock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_snapshot_holds_means_peaks_and_progress(
    facts: SystemFacts, make_record: MakeRecord
) -> None:
    clock = ManualClock()
    state = TerminalState(facts, clock=clock)
    for step, reward in [(0, 5.0), (640, 9.0), (1280, 7.0)]:
        state.update(make_record(step, Train__mean_reward=reward, Loss__actor=reward))
        clock.now += 0.9
    shot = state.snapshot()
    assert shot.samples == 2
    assert shot.means["Train/mean_reward"] == 8.0
    assert shot.peaks == {"Train/mean_reward": 9.0}
    assert (shot.env_steps, shot.iteration, shot.buffer_rows) == (1280, 20, 1280)
    assert shot.elapsed_s == pytest.approx(2.7)
    assert shot.pace is not None
    assert round(shot.pace) == round(1280 / 2.7)
    assert shot.rows_per_second == 260_000.0


def test_reports_that_nobody_looks_at_do_not_pile_up(
    facts: SystemFacts, make_record: MakeRecord
) -> None:
    state = TerminalState(facts, clock=lambda: 0.0)
    for step in range(1000):
        state.update(make_record(step, Loss__actor=float(step)))
        assert len(state._waiting) < MOST_WAITING
    shot = state.snapshot()
    assert (shot.samples, shot.env_steps) == (1000, 999)
    assert shot.means["Loss/actor"] == 499.5


def test_a_nan_is_no_peak(facts: SystemFacts, make_record: MakeRecord) -> None:
    state = TerminalState(facts)
    for reward in (1.0, math.nan, 0.5):
        state.update(make_record(1, Train__mean_reward=reward))
    assert state.snapshot().peaks == {"Train/mean_reward": 1.0}


def test_a_resumed_run_starts_where_its_checkpoint_was(facts: SystemFacts) -> None:
    shot = TerminalState(replace(facts, start_env_steps=5000)).snapshot()
    assert shot.env_steps == 5000
    assert shot.samples == 0


def test_the_pace_is_in_iterations_where_those_are_counted(
    facts: SystemFacts, make_record: MakeRecord
) -> None:
    clock = ManualClock()
    counted = replace(facts, target_env_steps=None, target_iterations=1000)
    state = TerminalState(counted, clock=clock)
    state.update(make_record(0, Loss__actor=1.0))
    clock.now += 10.0
    state.update(make_record(6400, Loss__actor=1.0))
    assert state.snapshot().pace == 10.0


def test_the_latest_evaluation_is_kept(facts: SystemFacts) -> None:
    state = TerminalState(facts)
    figures = EvaluationFigures(1, 2.0, 0.0, 1, 2.0, 1)
    state.evaluated(figures)
    assert state.snapshot().evaluation == figures


def test_the_end_of_the_run_may_move(facts: SystemFacts) -> None:
    state = TerminalState(facts)
    state.retarget(12_345)
    assert state.snapshot().facts == replace(facts, target_env_steps=12_345)


def test_phases_are_averaged_over_the_iterations_of_iter_wall(
    facts: SystemFacts, make_record: MakeRecord
) -> None:
    state = TerminalState(facts, clock=lambda: 0.0)
    state.update(make_record(0, Perf__learning_time=9.0))
    wall = {"Perf__iteration_time": 0.1, "Perf__learning_time": 0.05}
    state.update(make_record(1, **wall, Perf__learner_replay_batch_wait_ms=40.0))
    for step in (2, 3, 4):
        state.update(make_record(step, **wall))
    state.update(make_record(5, Perf__learning_time=7.0))
    means = state.snapshot().means
    assert means["Perf/learner_replay_batch_wait_ms"] == 10.0
    assert means["Perf/learning_time"] == pytest.approx(0.05)
    assert means["Perf/iteration_time"] == pytest.approx(0.1)


def test_without_a_measured_iteration_phases_are_shown_as_they_come(
    facts: SystemFacts, make_record: MakeRecord
) -> None:
    state = TerminalState(facts, clock=lambda: 0.0)
    for spent in (1.0, 3.0):
        state.update(make_record(0, Perf__learning_time=spent))
    assert state.snapshot().means["Perf/learning_time"] == 2.0


def test_samples_are_the_learners_reports(facts: SystemFacts, make_record: MakeRecord) -> None:
    state = TerminalState(facts, clock=lambda: 0.0)
    state.update(make_record(0, Loss__actor=1.0))
    state.update(make_record(0, Train__mean_reward=1.0))
    state.update(make_record(0, timeperf__rollout=1.0))
    state.update(make_record(1, Loss__actor=1.0, Train__mean_reward=3.0))
    shot = state.snapshot()
    assert shot.samples == 2
    assert shot.means == {"Loss/actor": 1.0, "Train/mean_reward": 2.0}
