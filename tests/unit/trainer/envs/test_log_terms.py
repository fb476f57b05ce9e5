"""An environment's own metrics: taken before worlds are reset, refused where they are wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from drivetrain_api.metrics import Family, Owner, Unit
from drivetrain_trainer.envs.definition import LogTerm, RewardTerm
from drivetrain_trainer.envs.errors import EnvError
from drivetrain_trainer.envs.manager_env import ManagerEnv
from drivetrain_trainer.envs.state import TermState

MakeRail = Callable[..., ManagerEnv]

RAIL = Family("rail/", Unit.NONE, Owner.ENVIRONMENT)
CROSSINGS = Family("rail_count/", Unit.EPISODES, Owner.ENVIRONMENT, counted=True)


def position(state: TermState) -> torch.Tensor:
    return state.qpos[:, 0]


def beyond(state: TermState) -> torch.Tensor:
    return state.qpos[:, 0] > 1.0


OWN = {
    "log": (LogTerm("rail/position", position), LogTerm("rail_count/beyond", beyond)),
    "log_families": (RAIL, CROSSINGS),
}


def test_values_are_of_the_step_and_not_of_the_reset_after_it(
    make_rail: MakeRail,
) -> None:
    env = make_rail(num_envs=4, **OWN)
    env.reset()
    assert env.log == {}
    env._state.qpos[:, 0] = torch.tensor([0.25, 0.5, 1.25, 2.0]).double()
    env._state.qvel.zero_()
    outcome = env.step(torch.full((4, 1), -0.5))  # the middle of the range -1 to 3 is 1: no force
    assert outcome.terminated.tolist() == [False, False, True, True]
    assert env.log["rail/position"] == pytest.approx((0.25 + 0.5 + 1.25 + 2.0) / 4)
    assert env.log["rail_count/beyond"] == 2
    assert env._state.qpos[2:, 0].abs().max() < 0.2, "the worlds were reset"
    assert set(OWN_TAGS) <= set(env.log_tags)
    assert env.log_families == (RAIL, CROSSINGS)
    assert all(value.ndim == 0 for value in env.log.values())


OWN_TAGS = ("rail/position", "rail_count/beyond")


def test_worlds_that_diverged_are_left_out(make_rail: MakeRail) -> None:
    env = make_rail(num_envs=3, **OWN)
    env.reset()
    env._state.qpos[:, 0] = torch.tensor([0.5, 1.5, float("nan")]).double()
    env._state.qvel.zero_()
    outcome = env.step(torch.full((3, 1), -0.5))
    assert outcome.invalid.tolist() == [False, False, True]
    assert env.log["rail/position"] == pytest.approx(1.0)
    assert env.log["rail_count/beyond"] == 1


def test_a_mean_over_no_world_is_left_out(make_rail: MakeRail) -> None:
    env = make_rail(num_envs=1, **OWN)
    env.reset()
    env._state.qpos[:, 0] = float("nan")
    env.step(torch.zeros(1, 1))
    assert "rail/position" not in env.log
    assert env.log["rail_count/beyond"] == 0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"log_families": ()}, "'rail/position' is of no family"),
        ({"log": (LogTerm("position", position),)}, "'position' is of no family"),
        ({"log": (LogTerm("reward/bonus", position),)}, "reward/ is not the environment's"),
        ({"log": (LogTerm("rail/", position),)}, "names no member"),
        ({"log": (LogTerm("rail/a", position),) * 2}, "2 log terms are named 'rail/a'"),
        ({"log": (LogTerm("rail/a", beyond),)}, "'rail/a' must give (3,) numbers"),
        ({"log": (LogTerm("rail_count/a", position),)}, "must give (3,) bool"),
        ({"log": (LogTerm("rail/a", lambda state: state.qpos),)}, "gave (3, 1)"),
        ({"log_families": (RAIL, RAIL)}, "overlaps 'rail/'"),
        ({"log_families": (Family("Perf/", Unit.NONE, Owner.ENVIRONMENT),)}, "overlaps 'Perf/'"),
        ({"log_families": (Family("rail", Unit.NONE, Owner.ENVIRONMENT),)}, "final slash"),
        ({"log_families": (Family("rail/", Unit.NONE, Owner.LEARNER),)}, "of owner environment"),
    ],
)
def test_a_wrong_declaration_is_refused(
    make_rail: MakeRail, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(EnvError) as caught:
        make_rail(**(OWN | changes))
    assert words in str(caught.value)


def test_a_reward_is_logged_before_the_steps_duration(make_rail: MakeRail) -> None:
    """The mean over worlds of raw times weight; 0.02 s a step are no factor."""
    env = make_rail(
        num_envs=3, rewards=(RewardTerm("where", lambda state: state.qpos[:, 0], weight=-2.0),)
    )
    env.reset()
    env._state.qpos[:, 0] = torch.tensor([0.1, 0.2, 0.6]).double()
    env._state.qvel.zero_()
    env.step(torch.full((3, 1), -0.5))
    assert env.step_seconds == pytest.approx(0.02)
    assert env.log["reward/where"] == pytest.approx(-2.0 * 0.3)
    assert not any(tag.startswith("Episode_Reward/") for tag in (*env.log, *env.log_tags))
