"""Fresh episodes start from the same distribution as Gymnasium's."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from drivetrain_trainer.envs.manager_env import ManagerEnv

SAMPLES = 2000
FALSE_ALARM = 1e-7
"""Chance of a wrong alarm of one comparison; some 400 are made."""

UNIFORM_POSITION = {
    "ant": 0.1,
    "half_cheetah": 0.1,
    "hopper": 5e-3,
    "humanoid": 0.01,
    "humanoid_standup": 0.01,
    "inverted_double_pendulum": 0.1,
    "inverted_pendulum": 0.01,
    "swimmer": 0.1,
    "walker2d": 5e-3,
}
UNIFORM_VELOCITY = {
    "hopper": 5e-3,
    "humanoid": 0.01,
    "humanoid_standup": 0.01,
    "inverted_pendulum": 0.01,
    "swimmer": 0.1,
    "walker2d": 5e-3,
}
"""Half widths, exact; the other tasks' velocities are normal."""


def our_resets(env: ManagerEnv) -> tuple[Any, Any]:
    env.reset()
    initial = env._state.model.initial_qpos.numpy()
    return env._state.qpos.numpy() - initial, env._state.qvel.numpy().copy()


def their_resets(reference: Any, initial: Any) -> tuple[Any, Any]:
    positions, velocities = [], []
    for index in range(SAMPLES):
        reference.env.unwrapped.reset(seed=index)
        positions.append(reference.base.data.qpos - initial)
        velocities.append(reference.base.data.qvel.copy())
    return np.stack(positions), np.stack(velocities)


def distance_of_distributions(first: Any, second: Any) -> float:
    """Kolmogorov and Smirnov's statistic of two samples."""
    values = np.concatenate((first, second))
    return float(
        np.abs(
            np.searchsorted(np.sort(first), values, side="right") / len(first)
            - np.searchsorted(np.sort(second), values, side="right") / len(second)
        ).max()
    )


def test_distribution_equals_gymnasium(make_ours: Any, make_reference: Any) -> None:
    env: ManagerEnv = make_ours(SAMPLES)
    ours = our_resets(env)
    theirs = their_resets(make_reference(), env._state.model.initial_qpos.numpy())
    limit = math.sqrt(-math.log(FALSE_ALARM / 2) / SAMPLES)
    for mine, reference in zip(ours, theirs, strict=True):
        for column in range(mine.shape[1]):
            found = distance_of_distributions(mine[:, column], reference[:, column])
            assert found < limit, f"column {column}: {found:.3f} >= {limit:.3f}"


def test_bounds_are_exact(case: Any, make_ours: Any) -> None:
    env: ManagerEnv = make_ours(SAMPLES)
    qpos, qvel = our_resets(env)
    if case.task in UNIFORM_POSITION:
        assert_fills(qpos, UNIFORM_POSITION[case.task])
    if case.task in UNIFORM_VELOCITY:
        assert_fills(qvel, UNIFORM_VELOCITY[case.task])
    if case.task == "reacher":
        assert_fills(qpos[:, :2], 0.1)
        assert_fills(qvel[:, :2], 0.005)
        target = env._state.qpos[:, 2:].numpy()
        assert np.linalg.norm(target, axis=1).max() < 0.2
        assert not qvel[:, 2:].any()
    if case.task == "pusher":
        assert not qpos[:, :7].any()
        assert_fills(qvel[:, :7], 0.005)
        cylinder, goal = env._state.qpos[:, 7:].numpy().reshape(SAMPLES, 2, 2).swapaxes(0, 1)
        assert np.linalg.norm(cylinder, axis=1).min() > 0.17
        assert -0.3 <= cylinder[:, 0].min() <= cylinder[:, 0].max() < 0
        assert np.abs(cylinder[:, 1]).max() <= 0.2
        assert not goal.any()
        assert not qvel[:, 7:].any()


def assert_fills(values: Any, half_width: float) -> None:
    """Each column lies within +-half_width (up to rounding), and reaches 98 % of it."""
    rounding = 1e-12
    assert np.abs(values).max() <= half_width + rounding
    assert values.max(0).min() > 0.98 * half_width
    assert values.min(0).max() < -0.98 * half_width


def test_coordinates_are_drawn_independently(case: Any, make_ours: Any) -> None:
    env: ManagerEnv = make_ours(SAMPLES)
    values = np.concatenate(our_resets(env), axis=1)
    values = values[:, values.std(0) > 0]
    correlation = np.corrcoef(values, rowvar=False) - np.eye(values.shape[1])
    if case.task == "pusher":  # the goal's clearance ties the cylinder's coordinates
        correlation[:2, :2] = 0
    assert np.abs(correlation).max() < 6 / math.sqrt(SAMPLES)
