from __future__ import annotations

from collections.abc import Callable

from drivetrain_trainer.evaluation.evaluator import EvaluationResult
from drivetrain_trainer.evaluation.play import describe, evaluate
from drivetrain_trainer.evaluation.policy_loading import load_policy
from drivetrain_trainer.evidence.run_directory import RunDirectory


def test_figures_as_a_person_reads_them(make_run: Callable[..., RunDirectory]) -> None:
    loaded = load_policy(make_run([12_000]).path)
    result = EvaluationResult((9000.0, 9360.5), (990, 1000), 1.0, repeated=2)
    assert describe(loaded, result).splitlines() == [
        "inverted_double_pendulum (mujoco), sac at step 12,000: 2 episodes",
        "  return  9,180.25 ± 254.91   min 9,000.00   max 9,360.50",
        "  length  995.0   min 990   max 1,000",
        "  2 episodes were repeated: their world diverged",
    ]


def test_a_loaded_policy_is_evaluated_under_its_own_parameters(
    make_run: Callable[..., RunDirectory],
) -> None:
    run = make_run(task={"name": "reacher", "overrides": {"episode_length": 7}})
    result = evaluate(load_policy(run.path), episodes=3, seed=0)
    assert result.lengths == (7, 7, 7)
