"""Which stage a run is in, after whatever stop; and how long its training took."""

from __future__ import annotations

from typing import Any

import pytest

from drivetrain_api.artifacts.stages import RunStages, StageEvaluation
from drivetrain_trainer.training.stages import StagePlan, Stages, resumed

PLAN = StagePlan(target_env_steps=100, episodes=5, threshold=10.0, continuation_env_steps=25)
LONGER = StagePlan(target_env_steps=120, episodes=5, threshold=10.0, continuation_env_steps=25)


def found(env_steps: int, mean: float = 4.0) -> StageEvaluation:
    return StageEvaluation(env_steps=env_steps, episodes=5, mean_return=mean, threshold=10.0)


def state(**fields: Any) -> RunStages:
    return RunStages.model_validate({"target_env_steps": 100, **fields})


TRAINING = state(train_seconds=3.0)
TRAINED = state(train_seconds=5.0, training_over=True)
EVALUATED = TRAINED.model_copy(update={"evaluation": found(100)})
CONTINUING = EVALUATED.model_copy(
    update={"continued": True, "training_over": False, "target_env_steps": 125}
)
CONTINUED = CONTINUING.model_copy(update={"training_over": True, "train_auto_resume_seconds": 2.0})
ENDED = CONTINUED.model_copy(update={"evaluation_auto_resume": found(125)})


@pytest.mark.parametrize(
    ("env_steps", "kept", "told", "expected"),
    [
        pytest.param(0, None, None, state(), id="a first start"),
        pytest.param(0, None, ENDED, state(), id="from scratch, whatever was before"),
        pytest.param(40, TRAINING, TRAINING, TRAINING, id="stopped in training"),
        pytest.param(100, TRAINED, TRAINED, TRAINED, id="killed before the evaluation"),
        pytest.param(100, TRAINED, None, TRAINED, id="no summary to be read"),
        pytest.param(100, TRAINED, EVALUATED, EVALUATED, id="killed before the decision"),
        pytest.param(100, TRAINED, CONTINUING, CONTINUING, id="killed once it was decided"),
        pytest.param(110, CONTINUING, CONTINUING, CONTINUING, id="stopped in the continuation"),
        pytest.param(
            100,
            TRAINED,
            ENDED,
            CONTINUING,
            id="the continuation's checkpoints are lost: it is trained again from its start",
        ),
        pytest.param(40, TRAINING, ENDED, TRAINING, id="all of it lost: evaluated anew"),
        pytest.param(125, CONTINUED, CONTINUED, CONTINUED, id="killed before the second one"),
        pytest.param(125, CONTINUED, ENDED, ENDED, id="killed after the end"),
        pytest.param(
            125,
            CONTINUED,
            EVALUATED,
            CONTINUED,
            id="a summary older than the checkpoint",
        ),
    ],
)
def test_where_a_run_goes_on(
    env_steps: int, kept: RunStages | None, told: RunStages | None, expected: RunStages
) -> None:
    assert resumed(PLAN, env_steps=env_steps, kept=kept, told=told) == expected


@pytest.mark.parametrize(
    ("env_steps", "kept", "expected"),
    [
        (40, TRAINING, TRAINING.model_copy(update={"target_env_steps": 120})),
        (100, TRAINED, state(train_seconds=5.0, target_env_steps=120)),
        (100, EVALUATED, state(train_seconds=5.0, target_env_steps=120)),
        (110, CONTINUING, CONTINUING),
        (125, ENDED, ENDED),
    ],
)
def test_a_run_that_was_made_longer_trains_on(
    env_steps: int, kept: RunStages, expected: RunStages
) -> None:
    assert resumed(LONGER, env_steps=env_steps, kept=kept, told=None) == expected


def test_a_run_made_longer_than_its_continuation_trains_on_in_it() -> None:
    plan = StagePlan(target_env_steps=200, episodes=5, threshold=10.0)
    after = resumed(plan, env_steps=125, kept=ENDED, told=ENDED)
    assert (after.continued, after.training_over, after.target_env_steps) == (True, False, 200)
    assert after.evaluation == ENDED.evaluation
    assert after.evaluation_auto_resume is None


def test_a_failure_to_write_timings_is_of_its_attempt() -> None:
    failed = TRAINING.model_copy(update={"timings_error": "no space"})
    assert resumed(PLAN, env_steps=40, kept=failed, told=None) == TRAINING


class Clock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_seconds_of_earlier_attempts_count_and_those_of_the_continuation_apart() -> None:
    clock = Clock()
    stages = Stages(PLAN, TRAINING, clock=clock)
    clock.now += 50.0  # start-up
    with stages.training():
        clock.now += 4.0
        assert stages.state_dict()["train_seconds"] == 7.0
        clock.now += 1.0
    clock.now += 50.0  # evaluation
    assert (stages.seconds, stages.seconds_here) == (8.0, 5.0)
    stages.training_ended()
    stages.evaluated(100, 4.0, 5)
    assert stages.continues
    assert stages.continue_from(100) == 125
    with stages.training():
        clock.now += 2.0
    assert (stages.seconds, stages.seconds_here) == (2.0, 7.0)
    assert stages.state.train_seconds == 8.0


def test_a_clock_that_is_set_back_takes_no_time_away() -> None:
    clock = Clock()
    stages = Stages(PLAN, TRAINING, clock=clock)
    with stages.training():
        clock.now -= 30.0
        assert stages.state.train_seconds == 3.0
    assert stages.state.train_seconds == 3.0


@pytest.mark.parametrize(
    ("mean", "continues"), [(9.99, True), (10.0, False), (11.0, False), (-1e9, True)]
)
def test_a_missed_threshold_continues_once(mean: float, *, continues: bool) -> None:
    stages = Stages(PLAN, TRAINED)
    assert not stages.continues
    stages.evaluated(100, mean, 5)
    assert stages.continues is continues
    if continues:
        stages.continue_from(100)
        stages.training_ended()
        stages.evaluated(125, mean, 5)
        assert stages.state.threshold_missed
    assert not stages.continues
    with pytest.raises(RuntimeError, match="once"):
        stages.continue_from(125)


def test_without_a_threshold_nothing_is_continued() -> None:
    stages = Stages(StagePlan(target_env_steps=100, episodes=5), TRAINED)
    stages.evaluated(100, -1e6, 5)
    assert not stages.continues
    assert stages.state.threshold_missed is None
