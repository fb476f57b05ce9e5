"""Our states put into Gymnasium, both stepped for a thousand steps, step by step the same."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

if TYPE_CHECKING:
    from drivetrain_trainer.envs.manager_env import ManagerEnv

NUM_ENVS = 4
STEPS = 1000


def actions(action_dim: int) -> torch.Tensor:
    """(STEPS, 4, a): uniform, saturating at every step, saturating for long, beyond the range."""
    generator = torch.Generator().manual_seed(3)

    def uniform(*shape: int) -> torch.Tensor:
        return torch.rand(shape, generator=generator) * 2 - 1

    held = uniform(STEPS // 20, 1, action_dim).sign().expand(-1, 20, -1)
    return torch.stack(
        (
            uniform(STEPS, action_dim),
            uniform(STEPS, action_dim).sign(),
            held.reshape(STEPS, action_dim),
            uniform(STEPS, action_dim) * 1.5,
        ),
        dim=1,
    )


class Record:
    """What one side gave, step by step; compared once at the end, which is much faster."""

    def __init__(self) -> None:
        self.columns: dict[str, list[Any]] = defaultdict(list)

    def add(self, **values: Any) -> None:
        for name, value in values.items():
            self.columns[name].append(np.asarray(value).copy())

    def __getitem__(self, name: str) -> Any:
        return np.stack(self.columns[name])


def spy_on_states(env: ManagerEnv, record: Record, monkeypatch: Any) -> None:
    """Record the worlds' states right after physics, before a reset hides them."""
    physics = env._physics
    assert physics is not None
    step = physics.step

    def spy(substeps: int) -> Any:
        found = step(substeps)
        record.add(qpos=physics.qpos.numpy(), qvel=physics.qvel.numpy())
        return found

    monkeypatch.setattr(physics, "step", spy)


def step_reference(reference: Any, case: Any, raw: Any, record: Record) -> bool:
    """Advance one reference; whether its episode is over."""
    observation, reward, terminated, truncated, info = reference.env.step(raw)
    record.add(
        qpos=reference.base.data.qpos,
        qvel=reference.base.data.qvel,
        observation=observation.astype(np.float32),
        reward=reward,
        terms=[info[key] if key else 1.0 for key in case.terms.values()],
        terminated=terminated,
        truncated=truncated,
    )
    return bool(terminated or truncated)


@pytest.mark.slow
def test_every_step_equals_gymnasium(
    case: Any, make_ours: Any, make_reference: Any, monkeypatch: Any
) -> None:
    env: ManagerEnv = make_ours(NUM_ENVS)
    references = [make_reference() for _ in range(NUM_ENVS)]
    ours, theirs = Record(), [Record() for _ in references]
    spy_on_states(env, ours, monkeypatch)
    assert env.episode_length == references[0].env.spec.max_episode_steps

    fresh, fresh_theirs = Record(), Record()
    first = env.reset()
    qpos, qvel = env._state.qpos.numpy(), env._state.qvel.numpy()
    order = order_of_terms(env, case)
    for i, reference in enumerate(references):
        fresh.add(observation=first[i])
        fresh_theirs.add(observation=reference.put(qpos[i], qvel[i]))
    for action in actions(env.action_dim):
        outcome = env.step(action)
        ours.add(
            observation=outcome.next_observation,
            reward=outcome.reward,
            terms=env._rewards.values()[order],
            terminated=outcome.terminated,
            truncated=outcome.truncated,
            invalid=outcome.invalid,
            carried_on=(outcome.observation == outcome.next_observation).all(1),
        )
        for i, (reference, record) in enumerate(zip(references, theirs, strict=True)):
            if step_reference(reference, case, env._state.action[i].numpy(), record):
                fresh.add(observation=outcome.observation[i])
                fresh_theirs.add(observation=reference.put(qpos[i], qvel[i]))

    def reference_values(name: str) -> Any:
        return np.stack([record[name] for record in theirs], axis=1)

    terminated = reference_values("terminated")
    # an episode ends for one reason here: at the limit, a terminal state comes first
    truncated = reference_values("truncated") & ~terminated
    assert not ours["invalid"].any()
    np.testing.assert_array_equal(ours["qpos"], reference_values("qpos"))
    np.testing.assert_array_equal(ours["qvel"], reference_values("qvel"))
    np.testing.assert_array_equal(ours["terminated"], terminated)
    np.testing.assert_array_equal(ours["truncated"], truncated)
    np.testing.assert_array_max_ulp(ours["observation"], reference_values("observation"), maxulp=1)
    np.testing.assert_allclose(
        ours["terms"], reference_values("terms").swapaxes(1, 2), rtol=0, atol=1e-6
    )
    np.testing.assert_allclose(ours["reward"], reference_values("reward"), rtol=1e-6, atol=1e-6)
    over = terminated | truncated
    assert over.any(0).all()  # every env ended an episode, by its length at least
    np.testing.assert_array_equal(ours["carried_on"], ~over)
    np.testing.assert_array_max_ulp(
        fresh["observation"], fresh_theirs["observation"].astype(np.float32), maxulp=1
    )


def order_of_terms(env: ManagerEnv, case: Any) -> list[int]:
    """Rows of our terms in the order of the case's, which must be all there are."""
    names = [term.name for term in env.terms if term.manager == "reward"]
    assert set(names) == set(case.terms)
    return [names.index(name) for name in case.terms]


def test_action_range_and_sizes_equal_gymnasium(make_ours: Any, make_reference: Any) -> None:
    env: ManagerEnv = make_ours(1)
    reference = make_reference()
    space = reference.env.action_space
    np.testing.assert_array_equal(env.action_low.numpy(), space.low)
    np.testing.assert_array_equal(env.action_high.numpy(), space.high)
    assert (env.observation_dim,) == reference.env.observation_space.shape
    env.reset()
    env.step(torch.ones(1, env.action_dim))
    np.testing.assert_array_equal(env._state.action[0].numpy(), space.high)
    env.step(-torch.ones(1, env.action_dim))
    np.testing.assert_array_equal(env._state.action[0].numpy(), space.low)
