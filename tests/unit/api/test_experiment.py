"""`spec.experiment`, the stages of a run by name, and what the evaluator makes of its keys."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from drivetrain_api.algorithms import AlgoName
from drivetrain_api.artifacts.stages import RunStages, StageEvaluation
from drivetrain_api.experiment import ExperimentConfig, RunStage, stage_name
from drivetrain_api.training import EvaluatorConfig

MEMBER = {"suite": "seeds", "runIdx": 0, "invocation": "2026-11-30-1"}


@pytest.mark.parametrize(
    ("stage", "algo", "continued", "name"),
    [
        (RunStage.TRAIN, AlgoName.SAC, False, "sac_train"),
        (RunStage.TRAIN, AlgoName.FLASHSAC, False, "flashsac_train"),
        (RunStage.TRAIN, AlgoName.APPO, False, "appo_train"),
        (RunStage.TRAIN, AlgoName.PPO, False, "ppo_train"),
        (RunStage.CHECKPOINT_SAVE, AlgoName.SAC, False, "checkpoint_save"),
        (RunStage.EVALUATION, AlgoName.SAC, False, "evaluation"),
        (RunStage.TRAIN, AlgoName.SAC, True, "sac_train_auto_resume"),
        (RunStage.CHECKPOINT_SAVE, AlgoName.SAC, True, "checkpoint_save_auto_resume"),
        (RunStage.EVALUATION, AlgoName.SAC, True, "evaluation_auto_resume"),
    ],
)
def test_stages_have_the_names_of_their_algorithm_and_continuation(
    stage: RunStage, algo: AlgoName, *, continued: bool, name: str
) -> None:
    assert stage_name(stage, algo, continued=continued) == name


@pytest.mark.parametrize(
    "change",
    [
        {"runIdx": -1},
        {"runIdx": True},
        {"suite": ""},
        {"invocation": ""},
        {"invocation": "x" * 129},
        {"seed": 1},
    ],
    ids=str,
)
def test_a_member_is_bounded(change: dict[str, Any]) -> None:
    assert ExperimentConfig.model_validate(MEMBER).run_idx == 0
    with pytest.raises(ValidationError):
        ExperimentConfig.model_validate(MEMBER | change)


@pytest.mark.parametrize("key", sorted(MEMBER))
def test_a_member_needs_all_of_its_keys(key: str) -> None:
    with pytest.raises(ValidationError, match=key):
        ExperimentConfig.model_validate({k: v for k, v in MEMBER.items() if k != key})


@pytest.mark.parametrize(
    ("keys", "episodes"),
    [
        ({}, None),
        ({"final_episodes": 30}, 30),
        ({"threshold": 5.0}, 10),
        ({"threshold": 5.0, "episodes": 4}, 4),
        ({"threshold": 5.0, "final_episodes": 30}, 30),
        ({"continuation_steps": 100}, None),
    ],
    ids=str,
)
def test_a_threshold_brings_an_evaluation_after_training(
    keys: dict[str, Any], episodes: int | None
) -> None:
    assert EvaluatorConfig.model_validate(keys).stage_episodes == episodes


def verdict(mean: float, threshold: float | None) -> StageEvaluation:
    return StageEvaluation(env_steps=1, episodes=1, mean_return=mean, threshold=threshold)


@pytest.mark.parametrize(
    ("first", "second", "missed"),
    [
        (None, None, None),
        (verdict(4.0, None), None, None),
        (verdict(4.0, 5.0), None, True),
        (verdict(5.0, 5.0), None, False),
        (verdict(4.0, 5.0), verdict(6.0, 5.0), False),
        (verdict(4.0, 5.0), verdict(4.9, 5.0), True),
    ],
)
def test_the_latest_evaluation_tells_whether_the_threshold_was_missed(
    first: StageEvaluation | None, second: StageEvaluation | None, missed: bool | None
) -> None:
    stages = RunStages(target_env_steps=1, evaluation=first, evaluation_auto_resume=second)
    assert stages.threshold_missed is missed
    assert RunStages.from_json(stages.to_json()) == stages
