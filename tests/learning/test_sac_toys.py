"""SAC on tasks whose optimum is known, each within seconds: one claim of the algorithm each.

Acting, replay and learning follow the learner's order in one process, without a collector.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import pytest
import torch
from torch import Tensor

from drivetrain_api.algorithms import Activation, CriticKind, Precision, SacConfig
from drivetrain_trainer.algorithms.sac.agent import SacAgent
from drivetrain_trainer.runtime.replay_layout import RowLayout

NUM_ENVS = 16
SEEDS = (0, 1, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(2, 8)))
CPU = torch.device("cpu")
CRITICS = tuple(CriticKind)


class Step(NamedTuple):
    observation: Tensor
    """(N, o) after the reset of ended episodes."""
    next_observation: Tensor
    """(N, o) before it."""
    reward: Tensor
    terminated: Tensor
    truncated: Tensor


class Toy(Protocol):
    observation_dim: int
    action_dim: int

    def reset(self, generator: torch.Generator) -> Tensor: ...

    def step(self, action: Tensor) -> Step: ...


class Bandit:
    """One step: the best action is a known function of the observation."""

    observation_dim = 2
    action_dim = 2

    def __init__(self, *, scale: float = 1.0, offset: float = 0.0) -> None:
        self._scale, self._offset = scale, offset

    def best(self, context: Tensor) -> Tensor:
        return torch.stack([0.6 * context[:, 0], -0.5 * context[:, 0] * context[:, 1]], dim=-1)

    def observe(self, context: Tensor) -> Tensor:
        return context * self._scale + self._offset

    def reset(self, generator: torch.Generator) -> Tensor:
        self._generator = generator
        self._context = torch.rand(NUM_ENVS, 2, generator=generator) * 2 - 1
        return self.observe(self._context)

    def step(self, action: Tensor) -> Step:
        reward = -(action - self.best(self._context)).square().sum(-1)
        seen = self.observe(self._context)
        ended = torch.ones(NUM_ENVS, dtype=torch.bool)
        return Step(self.reset(self._generator), seen, reward, ended, ~ended)


class Chain:
    """Cells in a row, a reward of 1 at the far end alone: nothing but the value leads there."""

    observation_dim = 6
    action_dim = 1
    length = 6
    limit = 24

    def reset(self, generator: torch.Generator) -> Tensor:
        self._cell = torch.randint(self.length, (NUM_ENVS,), generator=generator)
        self._age = torch.zeros(NUM_ENVS, dtype=torch.long)
        return self._observe()

    def _observe(self) -> Tensor:
        return torch.eye(self.length)[self._cell.clamp(max=self.length - 1)]

    def step(self, action: Tensor) -> Step:
        move = torch.where(action[:, 0] > 0, 1, -1)
        self._cell = (self._cell + move).clamp(min=0)
        self._age += 1
        terminated = self._cell >= self.length
        truncated = (self._age >= self.limit) & ~terminated
        seen = self._observe()
        ended = terminated | truncated
        self._cell[ended] = 0
        self._age[ended] = 0
        return Step(self._observe(), seen, terminated.float(), terminated, truncated)


class Annuity:
    """A reward of 1 each step, for a fixed number of steps: they are cut there, or end there.

    The observation is the age, which only an ending makes worth anything.
    """

    observation_dim = 5
    action_dim = 1
    steps = 5

    def __init__(self, *, ends: bool) -> None:
        self._ends = ends

    def reset(self, generator: torch.Generator) -> Tensor:
        self._age = torch.randint(self.steps, (NUM_ENVS,), generator=generator)
        return torch.eye(self.steps)[self._age]

    def step(self, action: Tensor) -> Step:
        del action
        self._age += 1
        over = self._age >= self.steps
        seen = torch.eye(self.steps)[self._age.clamp(max=self.steps - 1)]
        self._age[over] = 0
        never = torch.zeros_like(over)
        terminated, truncated = (over, never) if self._ends else (never, over)
        reward = torch.ones(NUM_ENVS)
        return Step(torch.eye(self.steps)[self._age], seen, reward, terminated, truncated)


class Point:
    """A point on a line: x += 0.3 a, costs x^2 + 0.1 a^2; episodes are cut after 20 steps."""

    observation_dim = 1
    action_dim = 1
    limit = 20

    def reset(self, generator: torch.Generator) -> Tensor:
        self._generator = generator
        self._position = self._start()
        self._age = torch.randint(self.limit, (NUM_ENVS,), generator=generator)
        return self._position.unsqueeze(-1)

    def _start(self) -> Tensor:
        return torch.rand(NUM_ENVS, generator=self._generator) * 2 - 1

    def step(self, action: Tensor) -> Step:
        reward = -(self._position.square() + 0.1 * action[:, 0].square())
        seen = self._position + 0.3 * action[:, 0]
        self._age += 1
        over = self._age >= self.limit
        self._position = torch.where(over, self._start(), seen)
        self._age[over] = 0
        return Step(
            self._position.unsqueeze(-1),
            seen.unsqueeze(-1),
            reward,
            torch.zeros_like(over),
            over,
        )


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def make_agent(toy: Toy, seed: int, **changes: Any) -> SacAgent:
    small: dict[str, Any] = {
        "actor_hidden": (64, 64),
        "critic_hidden": (64, 64),
        "activation": Activation.SILU,
        "layer_norm": False,
        "policy_frequency": 1,
        "actor_learning_rate": 1e-3,
        "critic_learning_rate": 1e-3,
        "alpha_learning_rate": 1e-3,
        "adam_betas": (0.9, 0.999),
        "weight_decay": 0.0,
        "gamma": 0.9,
        "tau": 0.02,
        "alpha_init": 0.1,
        "num_atoms": 51,
        "v_min": -15.0,
        "v_max": 15.0,
        "observation_normalization": False,
        "precision": Precision.FP32,
    }
    return SacAgent(
        SacConfig(**{**small, **changes}),
        observation_dim=toy.observation_dim,
        action_dim=toy.action_dim,
        device=CPU,
        seed=seed,
    )


def train(
    toy: Toy, agent: SacAgent, *, seed: int, iterations: int, warm_up: int = 32, batch: int = 128
) -> None:
    """One tick of all envs and two updates an iteration."""
    generator = torch.Generator().manual_seed(seed)
    layout = RowLayout(toy.observation_dim, toy.action_dim)
    ring = torch.full((iterations * NUM_ENVS, layout.width), float("nan"))
    observation = toy.reset(generator)
    for iteration in range(iterations):
        agent.observe(observation)
        if iteration < warm_up:
            action = agent.random_action(NUM_ENVS, tick=iteration)
        else:
            action = agent.act(observation, tick=iteration)
        step = toy.step(action)
        layout.pack(
            ring[iteration * NUM_ENVS : (iteration + 1) * NUM_ENVS],
            observation=observation,
            action=action,
            reward=step.reward,
            terminated=step.terminated,
            truncated=step.truncated,
            next_observation=step.next_observation,
        )
        observation = step.observation
        if iteration < warm_up:
            agent.sync(stop_requested=False)
            continue
        rows = torch.randint((iteration + 1) * NUM_ENVS, (2, batch), generator=generator)
        agent.update(layout.view(ring[rows]), iteration=iteration, stop_requested=False)


def values(agent: SacAgent, observation: Tensor, action: Tensor) -> Tensor:
    """What the actor climbs at these observations and actions."""
    update = agent._update
    with torch.no_grad():
        outputs = update.critic.compute(torch.cat([observation, action], dim=-1))
        return update._objective.policy_value(outputs)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("bandit", "settings"),
    [
        (Bandit(), {"critic": CriticKind.TWIN_Q}),
        (Bandit(), {"critic": CriticKind.C51, "v_min": -5.0, "v_max": 1.0}),
        (Bandit(), {"critic": CriticKind.TWIN_Q, "precision": Precision.BF16}),
        (
            Bandit(scale=300.0, offset=5000.0),
            {"critic": CriticKind.TWIN_Q, "observation_normalization": True},
        ),
    ],
    ids=["twin_q", "c51", "bf16", "normalised"],
)
def test_the_best_action_of_one_step_is_found(
    bandit: Bandit, settings: dict[str, Any], seed: int
) -> None:
    rates = {"actor_learning_rate": 3e-3, "critic_learning_rate": 3e-3, "tau": 0.05}
    agent = make_agent(bandit, seed, **rates, **settings)
    train(bandit, agent, seed=seed, iterations=300)
    context = torch.rand(512, 2, generator=torch.Generator().manual_seed(99)) * 2 - 1
    with torch.no_grad():
        action = agent.policy(bandit.observe(context))
    error = (action - bandit.best(context)).abs()
    assert float(error.mean()) < 0.08
    # Doing nothing would be off by 0.3 and 0.125 on average.


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("critic", CRITICS)
def test_a_delayed_reward_is_walked_to(critic: CriticKind, seed: int) -> None:
    chain = Chain()
    agent = make_agent(chain, seed, critic=critic, v_min=-1.0, v_max=3.0, alpha_init=0.02)
    train(chain, agent, seed=seed, iterations=300)
    cells = torch.eye(chain.length)
    with torch.no_grad():
        action = agent.policy(cells)
    assert bool((action > 0).all()), action
    # The undiscounted reward of 1 lies `length - cell` steps away.
    expected = 0.9 ** torch.arange(chain.length - 1, -1, -1.0)
    torch.testing.assert_close(values(agent, cells, action), expected, atol=0.2, rtol=0)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("critic", CRITICS)
@pytest.mark.parametrize("ends", [False, True])
def test_a_cut_episode_is_worth_its_future_and_an_ended_one_is_not(
    critic: CriticKind, seed: int, *, ends: bool
) -> None:
    annuity = Annuity(ends=ends)
    agent = make_agent(annuity, seed, critic=critic, alpha_autotune=False, alpha_init=1e-6, tau=0.1)
    train(annuity, agent, seed=seed, iterations=250)
    ages = torch.arange(annuity.steps)
    left = (annuity.steps - ages).float()
    expected = (1 - 0.9**left) / 0.1 if ends else torch.full((annuity.steps,), 1 / 0.1)
    found = values(agent, torch.eye(annuity.steps), torch.zeros(annuity.steps, 1))
    torch.testing.assert_close(found, expected, atol=0.5, rtol=0)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_policys_entropy_meets_its_target(seed: int) -> None:
    bandit = Bandit()
    agent = make_agent(
        bandit, seed, critic=CriticKind.TWIN_Q, alpha_learning_rate=5e-3, target_entropy_scale=0.5
    )
    train(bandit, agent, seed=seed, iterations=250)
    agent.metrics()
    train(bandit, agent, seed=seed, iterations=60)
    assert agent.metrics()["Loss/entropy"] == pytest.approx(-0.5 * bandit.action_dim, abs=0.3)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("critic", CRITICS)
def test_a_point_is_steered_nearly_as_well_as_can_be(critic: CriticKind, seed: int) -> None:
    point = Point()
    agent = make_agent(point, seed, critic=critic, v_min=-12.0, v_max=1.0)
    train(point, agent, seed=seed, iterations=300)
    start = torch.linspace(-1, 1, 21).unsqueeze(-1)
    learnt = rollout(start, agent.policy)
    # The discounted linear-quadratic regulator's gain for these costs, clipped to the bounds.
    best = rollout(start, lambda position: (-1.9 * position).clamp(-1, 1))
    idle = rollout(start, torch.zeros_like)
    assert (learnt - idle) / (best - idle) > 0.9


def rollout(position: Tensor, policy: Any) -> float:
    total = 0.0
    with torch.no_grad():
        for _ in range(Point.limit):
            action = policy(position)
            total -= float((position.square() + 0.1 * action.square()).mean())
            position = position + 0.3 * action
    return total
