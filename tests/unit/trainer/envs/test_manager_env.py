from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import pytest
import torch

from drivetrain_trainer.envs.definition import (
    EnvDefinition,
    ObservationTerm,
    ResetTerm,
    RewardTerm,
    TerminationTerm,
)
from drivetrain_trainer.envs.errors import EnvClosedError, EnvError, NonFiniteResetError
from drivetrain_trainer.envs.manager_env import ManagerEnv
from drivetrain_trainer.envs.terms import observations, rewards
from drivetrain_trainer.envs.vector_env import ActiveTerm, ManagerKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from drivetrain_trainer.envs.state import TermState

    MakeRail = Callable[..., ManagerEnv]

STILL = torch.full((3, 1), -0.5)  # maps onto 0 of [-1, 3]


def put(env: ManagerEnv, world: int, x: float, velocity: float = 0.0) -> None:
    env._state.qpos[world, 0] = x
    env._state.qvel[world, 0] = velocity


def test_actions_map_affinely_onto_the_actuators_and_are_not_clamped(make_rail: MakeRail) -> None:
    env = make_rail(num_envs=4)
    assert (env.action_low.tolist(), env.action_high.tolist()) == ([-1.0], [3.0])
    env.reset()
    env.step(torch.tensor([[-1.0], [1.0], [0.0], [1.5]]))
    assert env._state.action.squeeze(1).tolist() == [-1.0, 3.0, 1.0, 4.0]
    assert env._state.ctrl.squeeze(1).tolist() == [-1.0, 3.0, 1.0, 4.0]


def test_rewards_are_weighted_sums_and_the_log_has_each_terms_mean(make_rail: MakeRail) -> None:
    env = make_rail()
    env.reset()
    for world, velocity in enumerate((1.0, 2.0, 3.0)):
        put(env, world, 0.0, velocity)
    outcome = env.step(torch.tensor([[-0.5], [-0.5], [0.0]]))
    speeds = env._state.qpos[:, 0] / 0.02  # over the two substeps, from 0
    expected = 2.0 * speeds - 0.5 * torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64)
    torch.testing.assert_close(outcome.reward, expected.float())
    assert set(env.log) == {"reward/forward", "reward/ctrl"}
    torch.testing.assert_close(env.log["reward/forward"], 2.0 * speeds.mean())
    torch.testing.assert_close(env.log["reward/ctrl"], torch.tensor(-0.5 / 3).double())
    assert all(value.ndim == 0 for value in env.log.values())


def test_the_last_row_of_an_episode_keeps_its_terminal_observation(make_rail: MakeRail) -> None:
    env = make_rail()
    env.reset()
    put(env, 1, 1.5, 0.25)
    outcome = env.step(STILL)
    assert outcome.terminated.tolist() == [False, True, False]
    assert outcome.truncated.tolist() == [False, False, False]
    terminal = outcome.next_observation[1].tolist()
    assert terminal == pytest.approx([1.505, 0.25])
    fresh = outcome.observation[1]
    assert fresh[0].abs() <= 0.1  # a new episode is under way
    torch.testing.assert_close(fresh.double(), torch.cat((env._state.qpos[1], env._state.qvel[1])))
    assert torch.equal(outcome.observation[[0, 2]], outcome.next_observation[[0, 2]])


def test_episodes_are_truncated_by_their_length_each_by_its_own_count(make_rail: MakeRail) -> None:
    env = make_rail()
    env.reset()
    truncated = []
    for step in range(1, 11):
        if step == 3:
            put(env, 0, 2.0)  # world 0 starts over here, and so ends three steps later
        outcome = env.step(STILL)
        truncated.append(outcome.truncated.tolist())
        assert not (outcome.truncated & outcome.terminated).any()
    ends = [[step + 1 for step, row in enumerate(truncated) if row[world]] for world in range(3)]
    assert ends == [[8], [5, 10], [5, 10]]


def test_a_terminal_state_on_the_last_step_is_no_truncation(make_rail: MakeRail) -> None:
    env = make_rail(episode_length=1)
    env.reset()
    put(env, 2, 1.5)
    outcome = env.step(STILL)
    assert outcome.terminated.tolist() == [False, False, True]
    assert outcome.truncated.tolist() == [True, True, False]
    assert env.log["Episode_Termination/far"] == 1
    assert env.log["Episode_Termination/time_out"] == 2


def test_terminations_are_logged_only_when_episodes_end(make_rail: MakeRail) -> None:
    env = make_rail()
    env.reset()
    assert env.log == {}
    env.step(STILL)
    assert not any(tag.startswith("Episode_Termination/") for tag in env.log)
    put(env, 0, 2.0)
    put(env, 1, 3.0)
    env.step(STILL)
    assert env.log["Episode_Termination/far"] == 2
    assert env.log["Episode_Termination/time_out"] == 0
    assert set(env.log) == set(env.log_tags)


@pytest.mark.parametrize(
    ("break_it", "reason"),
    [
        (lambda env: put(env, 1, torch.inf), "BADQPOS"),
        (lambda env: put(env, 1, 0.0, torch.inf), "BADQVEL"),
        (lambda env: put(env, 1, 0.0, 1e11), "BADQVEL"),
    ],
)
def test_an_unstable_world_is_named_counted_reset_and_never_trained_on(
    make_rail: MakeRail, break_it: Callable[[ManagerEnv], None], reason: str
) -> None:
    env = make_rail()
    env.reset()
    before = dict(env.instability)
    assert before[reason] == 0
    for times in (1, 2):
        break_it(env)
        outcome = env.step(STILL)
        assert outcome.invalid.tolist() == [False, True, False]
        assert not outcome.terminated.any()
        assert not outcome.truncated.any()
        assert outcome.reward[1] == 0
        assert torch.isfinite(outcome.next_observation).all()
        assert torch.equal(outcome.next_observation[1], outcome.observation[1])
        assert env._state.qpos[1, 0].abs() <= 0.1
        assert env.instability[reason] == times
        assert sum(env.instability.values()) == times
        assert env.instability["nonfinite"] == 0
        assert all(torch.isfinite(value) for value in env.log.values())
        assert not any(tag.startswith("Episode_Termination/") for tag in env.log)
    env.step(STILL)
    assert not outcome.invalid.any()


def test_an_action_that_is_not_a_number_voids_its_world_alone(make_rail: MakeRail) -> None:
    env = make_rail()
    env.reset()
    outcome = env.step(torch.tensor([[0.0], [0.0], [torch.nan]]))
    assert outcome.invalid.tolist() == [False, False, True]
    assert env.instability["BADCTRL"] == 1
    assert torch.isfinite(outcome.reward).all()


@pytest.mark.parametrize("value", [torch.nan, torch.inf, 1e12])
def test_what_the_simulator_does_not_report_is_found(make_rail: MakeRail, value: float) -> None:
    poisoned: list[int] = []

    def reward(state: TermState) -> torch.Tensor:
        raw = torch.ones(state.num_envs, dtype=torch.float64)
        raw[poisoned] = value
        return raw

    def observe(state: TermState) -> torch.Tensor:
        raw = state.qpos.clone()
        raw[poisoned[1:]] = value
        return raw

    env = make_rail(
        rewards=(RewardTerm("odd", reward),), observations=(ObservationTerm("odd", observe),)
    )
    env.reset()
    poisoned[:] = [0]
    outcome = env.step(STILL)
    assert outcome.invalid.tolist() == [True, False, False]
    assert outcome.reward.tolist() == [0.0, 1.0, 1.0]
    assert env.log["reward/odd"] == pytest.approx(2 / 3)
    assert env.instability["nonfinite"] == 1
    # a reset cannot mend an observation that is bad of itself
    poisoned[:] = [0, 2]
    with pytest.raises(NonFiniteResetError, match="world 2 has observations that are not finite"):
        env.step(STILL)


def test_a_step_may_truncate_one_world_and_void_another(make_rail: MakeRail) -> None:
    env = make_rail(episode_length=1)
    env.reset()
    put(env, 0, torch.nan)
    outcome = env.step(STILL)
    assert outcome.invalid.tolist() == [True, False, False]
    assert outcome.truncated.tolist() == [False, True, True]
    assert env.log["Episode_Termination/time_out"] == 2


def rollout(env: ManagerEnv, steps: int = 40) -> torch.Tensor:
    """Everything that a policy would see, stacked."""
    generator = torch.Generator().manual_seed(1)
    rows = [env.reset().clone()]
    for _ in range(steps):
        action = torch.rand(env.num_envs, env.action_dim, generator=generator) * 2 - 1
        outcome = env.step(action)
        rows += [
            outcome.observation.clone(),
            outcome.next_observation.clone(),
            torch.stack((outcome.reward, outcome.terminated, outcome.truncated), 1),
        ]
    return torch.cat([row.flatten() for row in rows])


def test_a_seed_gives_one_stream_whatever_the_threads(make_rail: MakeRail) -> None:
    streams = [rollout(make_rail(num_envs=7, seed=5, num_threads=n)) for n in (1, 2, 3)]
    assert torch.equal(streams[0], streams[1])
    assert torch.equal(streams[0], streams[2])
    assert not torch.equal(streams[0], rollout(make_rail(num_envs=7, seed=6)))


def test_a_restored_generator_goes_on_with_the_same_resets(make_rail: MakeRail) -> None:
    env = make_rail()
    rollout(env, steps=13)
    state = env.rng_state()
    assert (state.dtype, state.device.type) == (torch.uint8, "cpu")
    expected = rollout(env)
    other = make_rail(seed=99)
    other.set_rng_state(state)
    assert torch.equal(rollout(other), expected)


def test_a_closed_environment_says_so(make_rail: MakeRail) -> None:
    env = make_rail()
    env.reset()
    env.close()
    env.close()
    calls: tuple[Callable[[], object], ...] = (
        env.reset,
        lambda: env.step(STILL),
        env.render_state,
    )
    for call in calls:
        with pytest.raises(EnvClosedError, match="closed"):
            call()


def test_the_first_step_needs_a_reset(make_rail: MakeRail) -> None:
    with pytest.raises(EnvError, match=r"reset\(\) before the first step"):
        make_rail().step(STILL)


@pytest.mark.parametrize(
    ("action", "got"),
    [
        (torch.zeros(2, 1), r"torch\.float32 \(2, 1\)"),
        (torch.zeros(3), r"torch\.float32 \(3,\)"),
        (torch.zeros(3, 1, dtype=torch.float64), r"torch\.float64 \(3, 1\)"),
        (torch.zeros(3, 1, device="meta"), "on meta"),
    ],
)
def test_an_action_of_another_kind_is_refused(
    make_rail: MakeRail, action: torch.Tensor, got: str
) -> None:
    env = make_rail()
    env.reset()
    with pytest.raises(EnvError, match=rf"action must be torch\.float32 \(3, 1\) on cpu, .*{got}"):
        env.step(action)


def test_phases_are_timed(make_rail: MakeRail) -> None:
    env = make_rail(num_envs=64, num_threads=1)
    env.reset()
    env.step(torch.zeros(64, 1))
    timings = env.timings
    parts = (
        timings.action_validate,
        timings.apply_action,
        timings.backend,
        timings.update_state,
        timings.reset_done,
    )
    assert all(part > 0 for part in parts)
    assert timings.action_backend == timings.apply_action + timings.backend


def test_the_table_of_terms_names_each_manager(make_rail: MakeRail) -> None:
    assert make_rail().terms == (
        ActiveTerm(ManagerKind.ACTION, "control", size=1),
        ActiveTerm(ManagerKind.OBSERVATION, "position", size=1),
        ActiveTerm(ManagerKind.OBSERVATION, "velocity", size=1),
        ActiveTerm(ManagerKind.REWARD, "forward", weight=2.0),
        ActiveTerm(ManagerKind.REWARD, "ctrl", weight=-0.5),
        ActiveTerm(ManagerKind.TERMINATION, "far"),
        ActiveTerm(ManagerKind.TERMINATION, "time_out"),
        ActiveTerm(ManagerKind.EVENT, "position"),
        ActiveTerm(ManagerKind.EVENT, "velocity"),
    )


def test_the_first_world_is_drawn(make_rail: MakeRail) -> None:
    env = make_rail()
    env.reset()
    put(env, 0, 0.75)
    state = env.render_state()
    assert state.qpos.tolist() == [0.75]
    assert state.model.nq == 1


def test_an_environment_is_not_pickled(make_rail: MakeRail) -> None:
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(make_rail())


def wrong_shape(state: TermState) -> torch.Tensor:
    return state.qpos[:, 0]


def right_shape(state: TermState) -> torch.Tensor:
    return state.qpos


UNLIMITED = """
<mujoco>
  <worldbody>
    <body><joint name="x" type="slide"/><geom size="0.1"/></body>
  </worldbody>
  <actuator><motor name="push" joint="x"/></actuator>
</mujoco>
"""


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_envs": 0}, "num_envs must be an int of at least 1, got 0"),
        ({"num_envs": True}, "num_envs must be an int of at least 1, got True"),
        ({"num_threads": 0}, "num_threads must be an int of at least 1, got 0"),
        ({"substeps": 0}, "substeps must be an int of at least 1, got 0"),
        ({"episode_length": 0}, "episode_length must be at least 1, got 0"),
        ({"model": UNLIMITED}, "actuator 'push' has the control range"),
        ({"observations": ()}, "needs an observation term"),
        ({"observations": (ObservationTerm("flat", wrong_shape),)}, r"'flat' must give \(3, k\)"),
        ({"rewards": ()}, "needs a reward term"),
        (
            {"rewards": (RewardTerm("wide", right_shape),)},
            r"'wide' must give \(3,\), gave \(3, 1\)",
        ),
        ({"rewards": (RewardTerm("mean", wrong_shape),)}, "'mean' is reserved"),
        (
            {"rewards": (RewardTerm("a", wrong_shape), RewardTerm("a", wrong_shape))},
            "2 reward terms are named 'a'",
        ),
        (
            {"terminations": (TerminationTerm("float", wrong_shape),)},
            r"'float' must give \(3,\) bool",
        ),
        (
            {"terminations": (TerminationTerm("time_out", lambda s: s.qpos[:, 0] > 0),)},
            "'time_out' is reserved",
        ),
    ],
)
def test_a_definition_that_cannot_work_is_refused(
    make_rail: MakeRail, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(EnvError, match=message):
        make_rail(**changes)


@pytest.mark.parametrize(("field", "named"), [("qpos", "positions"), ("qvel", "velocities")])
@pytest.mark.parametrize("value", [torch.nan, -torch.inf, 1e11])
def test_a_reset_term_that_gives_no_sound_state_is_refused(
    make_rail: MakeRail, field: str, named: str, value: float
) -> None:
    worlds = iter(range(3))

    def spoil(draft: Any, _: Any) -> None:
        assert draft.count == 1
        if next(worlds) == 1:
            getattr(draft, field)[:] = value

    with pytest.raises(NonFiniteResetError, match=rf"world 1 has {named} .* right after"):
        make_rail(resets=(ResetTerm("spoil", spoil),)).reset()


def test_reset_terms_are_applied_in_turn_to_the_reference_state(make_rail: MakeRail) -> None:
    def add_one(draft: Any, _: Any) -> None:
        draft.qpos += 1.0

    def double(draft: Any, _: Any) -> None:
        draft.qpos *= 2.0

    env = make_rail(resets=(ResetTerm("one", add_one), ResetTerm("double", double)))
    assert env.reset()[:, 0].tolist() == [2.0, 2.0, 2.0]
    assert env.reset()[:, 0].tolist() == [2.0, 2.0, 2.0]  # from the reference, not from there


def test_a_reset_term_may_put_other_tensors_into_the_draft(make_rail: MakeRail) -> None:
    def replace(draft: Any, rng: Any) -> None:
        draft.qpos = draft.qpos + 1.0
        draft.qvel = draft.qvel + rng.uniform((1, 1))

    first, second = (make_rail(resets=(ResetTerm("new", replace),)).reset() for _ in range(2))
    assert first[:, 0].tolist() == [1.0, 1.0, 1.0]
    assert torch.equal(first, second)


def test_large_observations_that_are_sound_pass(
    make_rail: MakeRail, definition: EnvDefinition
) -> None:
    def large(state: TermState) -> torch.Tensor:
        return torch.full((state.num_envs, 50), 9e9, dtype=torch.float64)

    env = make_rail(observations=(*definition.observations, ObservationTerm("large", large)))
    env.reset()
    assert not env.step(STILL).invalid.any()
    assert env.instability["nonfinite"] == 0


def test_shared_terms(make_rail: MakeRail) -> None:
    env = make_rail(
        outputs=frozenset({"xpos"}),
        observations=(
            ObservationTerm("body", observations.body_position("point")),
            ObservationTerm("fields", observations.output("xpos", 1, limit=0.05)),
            ObservationTerm("slow", observations.velocities(limit=0.5)),
        ),
        rewards=(
            RewardTerm("true", rewards.while_true(lambda s: s.qpos[:, 0] > 0.5)),
            RewardTerm("false", rewards.while_false(lambda s: s.qpos[:, 0] > 0.5), 10.0),
            RewardTerm("always", rewards.always, 100.0),
            RewardTerm("control", rewards.squared_control, 1000.0),
        ),
        resets=(),
    )
    env.reset()
    put(env, 1, 0.75, -2.0)
    outcome = env.step(torch.tensor([[-0.5], [-0.5], [0.0]]))
    # outputs are those of the last substep, one behind the state
    assert outcome.observation[1].tolist() == pytest.approx([0.73, 0, 0, 0.05, 0, 0, -0.5])
    assert outcome.reward.tolist() == [110.0, 101.0, 1110.0]
