"""The order of a run's stages, with parts that only note what they were asked for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from drivetrain_api.artifacts.stages import RunStages
from drivetrain_api.experiment import RunStage
from drivetrain_trainer.training.course import Course
from drivetrain_trainer.training.ranks import Ranks
from drivetrain_trainer.training.schedule import Cursor
from drivetrain_trainer.training.stages import StagePlan, Stages
from drivetrain_trainer.training.stop import StopReason

PLAN = StagePlan(target_env_steps=100, episodes=5, threshold=10.0, continuation_env_steps=25)


class Parts:
    """Trainer, checkpoints, evaluator, recorder and supervisor in one."""

    def __init__(
        self,
        cursor: Cursor,
        ends: list[tuple[int, StopReason]],
        means: list[float | None],
        *,
        time_is_up: bool = False,
        lacking: frozenset[RunStage] = frozenset(),
    ) -> None:
        self.notes: list[str] = []
        self.saved_env_steps: int | None = None
        self._cursor = cursor
        self._ends = ends
        self._means = means
        self._time_is_up = time_is_up
        self._lacking = lacking

    def train(self) -> StopReason:
        self._cursor.env_steps, reason = self._ends.pop(0)
        self.notes.append(f"train to {self._cursor.env_steps}")
        return reason

    def retarget(self, env_steps: int) -> None:
        self.notes.append(f"retarget {env_steps}")

    def out_of_time(self) -> bool:
        return self._time_is_up

    def report(self) -> None:
        pass

    def save(self, cursor: Cursor, *, evaluated_return: float | None = None) -> None:
        self.notes.append(f"save {cursor.env_steps} {evaluated_return}")

    def evaluated(self, cursor: Cursor, mean: float, *, best: bool) -> None:
        self.notes.append(f"{mean} at {cursor.env_steps}{' is best' if best else ''}")

    def run(self, cursor: Cursor) -> float | None:
        self.notes.append(f"evaluate {cursor.env_steps}")
        return self._means.pop(0)

    def record(self, stage: RunStage, seconds: float, *, continued: bool) -> None:
        assert seconds >= 0.0
        self.notes.append(f"record {stage}{' again' if continued else ''}")

    def lacks(self, stage: RunStage, *, continued: bool) -> bool:
        assert not continued
        return stage in self._lacking

    def take(self, mean: float) -> bool:
        return mean > 7.0

    def best_at(self, env_steps: int) -> float | None:
        return 6.5 if env_steps == 100 else None

    @property
    def evaluation(self) -> Parts:
        return self

    def enter_finish(self) -> None:
        pass

    @contextmanager
    def during(self, _: object) -> Iterator[None]:
        yield


def follow(
    state: RunStages, *, plan: StagePlan = PLAN, at: int = 0, **more: Any
) -> tuple[StopReason, list[str], RunStages]:
    """Why the run ended, what was done for it, and its stages then."""
    cursor = Cursor(env_steps=at)
    parts: Any = Parts(cursor, more.pop("ends", []), more.pop("means", []), **more)
    stages = Stages(plan, state)
    course = Course(
        stages=stages,
        trainer=parts,
        boundary=parts,
        checkpoints=parts,
        evaluator=parts if plan.episodes is not None else None,
        recorder=parts,
        ranks=Ranks(),
        life=parts,
        cursor=cursor,
    )
    return course.run(), parts.notes, stages.state


START = RunStages(target_env_steps=100)
TRAINED = RunStages(target_env_steps=100, training_over=True)
FIRST = ["train to 100", "record train", "save 100 6.5", "record checkpoint_save"]
FIRST_VERDICT = ["evaluate 100", "record evaluation", "4.0 at 100", "retarget 125"]
SECOND = ["train to 125", "record train again", "save 125 None", "record checkpoint_save again"]


@pytest.mark.parametrize("last", [StopReason.DONE, StopReason.TARGET])
def test_all_of_it(last: StopReason) -> None:
    reason, notes, state = follow(
        START, ends=[(100, StopReason.DONE), (125, last)], means=[4.0, 8.0]
    )
    assert reason is last
    verdict = ["evaluate 125", "record evaluation again", "8.0 at 125 is best"]
    assert notes == [*FIRST, *FIRST_VERDICT, *SECOND, *verdict]
    assert state.threshold_missed
    assert (state.continued, state.training_over, state.target_env_steps) == (True, True, 125)


def test_without_an_evaluation_after_training() -> None:
    plan = StagePlan(target_env_steps=100)
    reason, notes, _ = follow(START, plan=plan, ends=[(100, StopReason.DONE)])
    assert (reason, notes) == (StopReason.DONE, FIRST)


def test_a_stop_in_training_is_saved_and_no_stage_of_its() -> None:
    reason, notes, state = follow(START, ends=[(40, StopReason.SIGNAL)])
    assert (reason, notes) == (StopReason.SIGNAL, ["train to 40", "save 40 None"])
    assert not state.training_over


def test_a_stop_in_the_evaluation_decides_nothing() -> None:
    reason, notes, state = follow(TRAINED, at=100, means=[None])
    assert (reason, notes) == (StopReason.SIGNAL, ["evaluate 100"])
    assert state == TRAINED


def test_a_soak_that_is_over_continues_nothing() -> None:
    reason, notes, state = follow(TRAINED, at=100, means=[4.0], time_is_up=True)
    assert reason.complete
    assert notes == FIRST_VERDICT[:3]
    assert (state.continued, state.threshold_missed) == (False, True)


@pytest.mark.parametrize(
    ("lacking", "made_up_for"),
    [
        (set(), []),
        ({RunStage.TRAIN}, ["record train"]),
        ({RunStage.CHECKPOINT_SAVE}, ["save 100 6.5", "record checkpoint_save"]),
    ],
)
def test_records_that_an_attempt_had_no_time_for(
    lacking: set[RunStage], made_up_for: list[str]
) -> None:
    _, notes, _ = follow(TRAINED, at=100, means=[12.0], lacking=frozenset(lacking))
    assert notes == [*made_up_for, "evaluate 100", "record evaluation", "12.0 at 100 is best"]


def test_a_run_that_had_ended_does_nothing_more() -> None:
    _, _, ended = follow(TRAINED, at=100, means=[12.0])
    reason, notes, state = follow(ended, at=100)
    assert (reason, notes, state) == (StopReason.DONE, [], ended)
