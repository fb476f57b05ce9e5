from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from drivetrain_api.algorithms import CriticKind, Precision, SacConfig
from drivetrain_api.metrics import METRICS, Owner
from drivetrain_trainer.algorithms.sac.agent import NonFiniteTrainingError, SacAgent
from drivetrain_trainer.algorithms.sac.networks import squash
from drivetrain_trainer.runtime.replay_layout import Batch

MakeAgent = Callable[..., SacAgent]
MakeBatch = Callable[..., Batch]
VARIANTS: list[dict[str, Any]] = [
    {"critic": CriticKind.TWIN_Q},
    {"critic": CriticKind.C51, "layer_norm": True, "observation_normalization": True},
    {"critic": CriticKind.TWIN_Q, "precision": Precision.BF16, "max_grad_norm": 0.5},
    {"critic": CriticKind.C51, "precision": Precision.BF16, "observation_normalization": True},
]


def _learn(agent: SacAgent, make_batch: MakeBatch, iterations: range, updates: int = 1) -> None:
    for iteration in iterations:
        agent.observe(torch.randn(3, 5, generator=torch.Generator().manual_seed(iteration)))
        agent.update(
            make_batch(seed=iteration, updates=updates), iteration=iteration, stop_requested=False
        )


def _poison(batch: Batch, updates: slice = slice(None)) -> Batch:
    batch.reward[updates, 3] = math.nan
    return batch


@pytest.mark.parametrize("variant", VARIANTS)
def test_actions_are_bounded_and_depend_on_the_tick_alone(
    make_agent: MakeAgent, variant: dict[str, Any]
) -> None:
    agent, other = make_agent(**variant), make_agent(**variant)
    observation = torch.randn(64, 5)
    other.act(observation, tick=0)
    action = agent.act(observation, tick=7)
    assert action.shape == (64, 2)
    assert action.dtype == torch.float32
    assert action.abs().max() <= 1.0
    assert not action.requires_grad
    assert torch.equal(action, other.act(observation, tick=7))
    assert not torch.equal(action, agent.act(observation, tick=8))


def test_actions_follow_the_policys_gaussian(make_agent: MakeAgent) -> None:
    agent = make_agent()
    observation = torch.randn(1, 5)
    mean, log_std = agent.policy.actor(observation)
    actions = agent.act(observation.expand(20_000, 5), tick=0)
    unsquashed = torch.atanh(actions)
    torch.testing.assert_close(unsquashed.mean(0), mean[0], atol=0.03, rtol=0)
    torch.testing.assert_close(unsquashed.std(0), log_std[0].exp(), atol=0.03, rtol=0)


def test_warm_up_actions_are_uniform(make_agent: MakeAgent) -> None:
    agent = make_agent()
    action = agent.random_action(5000, tick=3)
    assert torch.equal(action, agent.random_action(5000, tick=3))
    assert float(action.min()) >= -1.0
    assert float(action.max()) <= 1.0
    torch.testing.assert_close(action.mean(0), torch.zeros(2), atol=0.03, rtol=0)
    torch.testing.assert_close(action.var(0), torch.full((2,), 1 / 3), atol=0.02, rtol=0)


def test_critic_targets_bootstrap_truncations_and_not_terminations(
    make_agent: MakeAgent, make_batch: MakeBatch
) -> None:
    """One update by hand: what both twins regress to, and the loss that is reported."""
    agent, untouched = make_agent(gamma=0.9), make_agent(gamma=0.9)
    batch = make_batch(batch=4)
    batch.done[0] = torch.tensor([0.0, 1.0, 1.0, 0.0])
    batch.truncated[0] = torch.tensor([0.0, 0.0, 1.0, 0.0])
    agent.update(batch, iteration=5, stop_requested=False)
    update = untouched._update
    noise = untouched._prepare(batch, 5).noise[0, 0]
    with torch.no_grad():
        mean, log_std = update.actor.compute(batch.next_observation[0])
        sample = squash(mean, log_std, noise)
        twins = update.target.compute(torch.cat([batch.next_observation[0], sample.action], -1))
        after = torch.minimum(twins[0], twins[1]) - sample.log_prob * untouched._config.alpha_init
        expected = batch.reward[0] + 0.9 * torch.tensor([1.0, 0.0, 1.0, 1.0]) * after
        values = update.critic.compute(torch.cat([batch.observation[0], batch.action[0]], -1))
        loss = (values - expected).square().mean(-1).sum()
    metrics = agent.metrics()
    assert metrics["Loss/critic"] == pytest.approx(float(loss), rel=1e-5)
    assert metrics["Train/target_q_max"] == pytest.approx(float(expected.max()), rel=1e-5)
    assert metrics["Train/target_q_min"] == pytest.approx(float(expected.min()), rel=1e-5)


@pytest.mark.parametrize("frequency", [1, 3])
def test_actor_and_temperature_learn_on_every_nth_update(
    make_agent: MakeAgent, make_batch: MakeBatch, frequency: int
) -> None:
    agent = make_agent(policy_frequency=frequency)
    changes = []
    for iteration in range(6):
        actor, critic = agent._update.actor.values.clone(), agent._update.critic.values.clone()
        alpha = float(agent._update.temperature.log_alpha)
        _learn(agent, make_batch, range(iteration, iteration + 1))
        assert not torch.equal(critic, agent._update.critic.values)
        changed = not torch.equal(actor, agent._update.actor.values)
        assert changed == (alpha != float(agent._update.temperature.log_alpha))
        changes.append(changed)
    assert changes == [(number % frequency) == 0 for number in range(1, 7)]


def test_targets_follow_by_tau(make_agent: MakeAgent, make_batch: MakeBatch) -> None:
    agent = make_agent(tau=0.2)
    before = agent._update.target.values.clone()
    _learn(agent, make_batch, range(1))
    expected = before + 0.2 * (agent._update.critic.values - before)
    torch.testing.assert_close(agent._update.target.values, expected)


def test_learning_the_actor_leaves_no_gradient_in_the_critics(
    make_agent: MakeAgent, make_batch: MakeBatch
) -> None:
    """Deleting the actor's step must not change the critics of a first update."""
    both, critics_only = make_agent(), make_agent(policy_frequency=2)
    for agent in (both, critics_only):
        _learn(agent, make_batch, range(1))
    assert torch.equal(both._update.critic.values, critics_only._update.critic.values)


def test_gradients_are_clipped_to_the_bound(make_agent: MakeAgent, make_batch: MakeBatch) -> None:
    plain, clipped, within = (make_agent(max_grad_norm=bound) for bound in (0.0, 1e-4, 1e4))
    for agent in (plain, clipped, within):
        _learn(agent, make_batch, range(1))
    norm = plain.metrics()["Train/critic_gradient_norm"]
    assert clipped.metrics()["Train/critic_gradient_norm"] == pytest.approx(norm)
    # The kernel leaves the scaled gradient behind.
    left = torch.linalg.vector_norm(clipped._update.critic_reducer.gradient)
    assert float(left) == pytest.approx(1e-4, rel=1e-3)
    assert within.parameter_hash() == plain.parameter_hash()


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_same_seed_gives_the_same_parameters(
    make_agent: MakeAgent, make_batch: MakeBatch, variant: dict[str, Any]
) -> None:
    hashes = set()
    for seed in (1, 1, 2):
        agent = make_agent(seed=seed, **variant)
        start = agent.parameter_hash()
        _learn(agent, make_batch, range(5), updates=2)
        assert agent.parameter_hash() != start
        hashes.add((seed, agent.parameter_hash()))
    assert len(hashes) == 2


@pytest.fixture
def busy_machine() -> Iterator[None]:
    """Twice as many busy processes as CPUs."""
    burners = [
        subprocess.Popen([sys.executable, "-c", "while True: sum(range(10_000))"])
        for _ in range(2 * len(os.sched_getaffinity(0)))
    ]
    yield
    for burner in burners:
        burner.kill()
        burner.wait()


@pytest.mark.parametrize("precision", [Precision.FP32, Precision.BF16])
def test_load_does_not_change_a_bit(
    make_agent: MakeAgent,
    make_batch: MakeBatch,
    request: pytest.FixtureRequest,
    precision: Precision,
) -> None:
    hashes = []
    for _ in range(2):
        agent = make_agent(
            precision=precision, actor_hidden=(128, 128), critic_hidden=(128, 128), layer_norm=True
        )
        for iteration in range(10):
            batch = make_batch(seed=iteration, batch=256)
            agent.update(batch, iteration=iteration, stop_requested=False)
        hashes.append(agent.parameter_hash())
        request.getfixturevalue("busy_machine")  # from the second run on
    assert hashes[0] == hashes[1]


def test_building_an_agent_leaves_the_global_generator_alone(make_agent: MakeAgent) -> None:
    torch.manual_seed(11)
    expected = torch.rand(3)
    torch.manual_seed(11)
    make_agent(seed=4)
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_resumed_agent_goes_on_to_the_bit(
    make_agent: MakeAgent, make_batch: MakeBatch, variant: dict[str, Any]
) -> None:
    agent = make_agent(**variant, policy_frequency=2)
    _learn(agent, make_batch, range(3))
    agent.observe(torch.ones(2, 5))  # pending when the checkpoint is taken
    state = agent.state_dict()
    resumed = make_agent(seed=0, **variant, policy_frequency=2)
    resumed.load_state_dict(state)
    assert resumed.parameter_hash() == agent.parameter_hash()
    for going_on in (agent, resumed):
        _learn(going_on, make_batch, range(3, 6))
    assert resumed.parameter_hash() == agent.parameter_hash()
    observation = torch.randn(4, 5)
    assert torch.equal(agent.act(observation, tick=9), resumed.act(observation, tick=9))


def test_a_state_is_a_copy(make_agent: MakeAgent, make_batch: MakeBatch) -> None:
    agent = make_agent(observation_normalization=True)
    state = agent.state_dict()
    hashed = agent.parameter_hash()
    _learn(agent, make_batch, range(2))
    fresh = make_agent(observation_normalization=True)
    fresh.load_state_dict(state)
    assert fresh.parameter_hash() == hashed


def test_a_state_of_other_sizes_is_refused(make_agent: MakeAgent) -> None:
    with pytest.raises(RuntimeError, match="size mismatch"):
        make_agent().load_state_dict(make_agent(actor_hidden=(8, 8)).state_dict())


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_policy_comes_out_of_a_checkpoint(
    make_agent: MakeAgent,
    make_batch: MakeBatch,
    make_config: Callable[..., SacConfig],
    variant: dict[str, Any],
) -> None:
    agent = make_agent(**variant)
    _learn(agent, make_batch, range(4))
    policy = SacAgent.policy_from_checkpoint(make_config(**variant), 5, 2, agent.state_dict())
    observation = torch.randn(6, 5)
    assert torch.equal(policy(observation), agent.policy(observation))
    with pytest.raises(KeyError):
        SacAgent.policy_from_checkpoint(make_config(**variant), 5, 2, {})


def test_metrics_are_the_learners_own_and_start_anew(
    make_agent: MakeAgent, make_batch: MakeBatch
) -> None:
    agent = make_agent(policy_frequency=2)
    _learn(agent, make_batch, range(2))
    metrics = agent.metrics()
    assert set(metrics) == {
        "Loss/actor",
        "Loss/critic",
        "Loss/temperature",
        "Loss/entropy",
        "Loss/learning_rate",
        "Policy/temperature",
        "Policy/mean_std",
        "Train/actor_gradient_norm",
        "Train/critic_gradient_norm",
        "Train/global_gradient_norm",
        "Train/target_q_max",
        "Train/target_q_min",
    }
    for tag, value in metrics.items():
        assert METRICS[tag].owner is Owner.LEARNER, tag
        assert math.isfinite(value), tag
    assert metrics["Loss/learning_rate"] == 3e-4
    assert agent.metrics() == {}
    _learn(agent, make_batch, range(2, 3))
    assert "Loss/actor" not in agent.metrics()


def test_a_fixed_temperature_reports_no_loss(make_agent: MakeAgent, make_batch: MakeBatch) -> None:
    agent = make_agent(alpha_autotune=False, alpha_init=0.25)
    _learn(agent, make_batch, range(3))
    metrics = agent.metrics()
    assert "Loss/temperature" not in metrics
    assert metrics["Policy/temperature"] == pytest.approx(0.25)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_poisoned_update_changes_nothing_and_is_counted(
    make_agent: MakeAgent, make_batch: MakeBatch, variant: dict[str, Any]
) -> None:
    agent, reference = make_agent(**variant), make_agent(**variant)
    for agent_ in (agent, reference):
        _learn(agent_, make_batch, range(2))
    agent.metrics()
    before = agent.state_dict()
    poisoned = _poison(make_batch(seed=2))
    assert not agent.update(poisoned, iteration=2, stop_requested=False)
    assert agent.skipped_updates == 1
    assert agent.metrics() == {}
    after = agent.state_dict()
    for part in ("modules", "optimizers"):
        for name, tensors in before[part].items():
            for key, tensor in tensors.items():
                assert torch.equal(after[part][name][key], tensor), (name, key)
    assert torch.equal(before["log_alpha"], after["log_alpha"])
    # It recovers with the next sound batch, as if nothing had been.
    for agent_ in (agent, reference):
        agent_.update(make_batch(seed=3), iteration=3, stop_requested=False)
    assert agent.parameter_hash() == reference.parameter_hash()


def test_a_sound_update_between_poisoned_ones_keeps_the_run_alive(
    make_agent: MakeAgent, make_batch: MakeBatch
) -> None:
    agent = make_agent(max_nonfinite_updates=2)
    for iteration in range(6):
        batch = make_batch(seed=iteration, updates=2)
        batch = _poison(batch, slice(0, 1))
        agent.update(batch, iteration=iteration, stop_requested=False)
    assert agent.skipped_updates == 6


@pytest.mark.parametrize("critic", list(CriticKind))
def test_giving_up_names_what_was_not_finite(
    make_agent: MakeAgent, make_batch: MakeBatch, critic: CriticKind
) -> None:
    agent = make_agent(critic=critic, max_nonfinite_updates=3)
    for iteration in range(2):
        batch = _poison(make_batch(seed=iteration))
        agent.update(batch, iteration=iteration, stop_requested=False)
    with pytest.raises(NonFiniteTrainingError) as caught:
        agent.update(_poison(make_batch(seed=2)), iteration=2, stop_requested=False)
    assert str(caught.value) == (
        "3 updates in a row were not finite and skipped (algo.max_nonfinite_updates is 3): "
        "critic loss on rank 0; batch reward in 1 rows (row 3 of update 0) of iteration 2"
    )


def test_giving_up_names_broken_parameters(make_agent: MakeAgent, make_batch: MakeBatch) -> None:
    agent = make_agent(max_nonfinite_updates=1)
    agent._update.actor.values[0] = math.nan
    with pytest.raises(
        NonFiniteTrainingError,
        match=r"parameter actor\.trunk\.0\.weight\[0, 0\] is nan \(1 of \d+\)",
    ):
        agent.update(make_batch(), iteration=0, stop_requested=False)


def test_giving_up_names_the_parameter_whose_gradient_broke(
    make_agent: MakeAgent, make_batch: MakeBatch
) -> None:
    agent = make_agent(max_nonfinite_updates=1, policy_frequency=1)
    backward = agent._update.critic.backward

    def broken(loss: torch.Tensor) -> None:  # as an overflow in a backward pass would
        backward(loss)
        dict(agent._update.critic.named_gradients())["head.weight"].view(-1)[3] = math.inf

    agent._update.critic.backward = broken  # type: ignore[method-assign]  # the injected fault
    with pytest.raises(NonFiniteTrainingError) as caught:
        agent.update(make_batch(), iteration=0, stop_requested=False)
    assert "critic gradient; gradient of critic.head.weight" in str(caught.value)


def test_alone_a_rank_agrees_with_itself(make_agent: MakeAgent, make_batch: MakeBatch) -> None:
    agent = make_agent(observation_normalization=True)
    for wanted in (False, True):
        agent.observe(torch.full((4, 5), 2.0))
        assert agent.sync(stop_requested=wanted) is wanted
        assert agent.update(make_batch(), iteration=0, stop_requested=wanted) is wanted
    torch.testing.assert_close(
        agent.policy.normalizer.shift, torch.full((5,), 2.0), atol=1e-6, rtol=0
    )


def test_an_update_never_makes_the_host_wait(
    make_agent: MakeAgent, make_batch: MakeBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The only values that leave the device are those of the status mirror."""
    agent = make_agent(policy_frequency=1, critic=CriticKind.C51, observation_normalization=True)
    agent.observe(torch.ones(1, 5))
    batch = make_batch(updates=2)

    def refuse(*_: object) -> None:
        raise AssertionError("the update read a tensor on the host")

    names = ("item", "tolist", "numpy", "cpu", "nonzero", "__bool__", "__float__", "__int__")
    with monkeypatch.context() as patch:
        patch.setattr(agent._update._mirror, "read", lambda: [0.0] * 6)
        for name in (*names, "__index__"):
            patch.setattr(torch.Tensor, name, refuse)
        agent.update(batch, iteration=0, stop_requested=False)
