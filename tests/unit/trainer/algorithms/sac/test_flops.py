from __future__ import annotations

from collections.abc import Callable

import pytest
from torch.utils.flop_counter import FlopCounterMode

from drivetrain_api.algorithms import CriticKind
from drivetrain_trainer.algorithms.sac.agent import SacAgent
from drivetrain_trainer.algorithms.sac.flops import sac_flops
from drivetrain_trainer.runtime.replay_layout import Batch


def test_an_update_by_hand(make_config: Callable[..., object]) -> None:
    config = make_config(actor_hidden=(7, 3), critic_hidden=(11,), policy_frequency=2)
    estimator = sac_flops(config, observation_dim=5, action_dim=2, critic_outputs=1)
    assert estimator is not None
    # Actor 5*7 + 7*3 + 3*4 = 68. Twin critics 2 * (7*11 + 11*1) = 176.
    # Critic step 68 + 176 + 3 * 176 = 772; actor step 3 * 68 + 2 * 176 = 556, every second time.
    # 2 * (772 + 278) = 2100 a row.
    assert estimator(1) == 2100.0
    assert estimator(256) == 256 * 2100.0


@pytest.mark.parametrize("policy_frequency", [1, 2])
def test_the_estimate_is_close_to_what_torch_counts(
    make_agent: Callable[..., SacAgent],
    make_batch: Callable[..., Batch],
    policy_frequency: int,
) -> None:
    agent = make_agent(
        actor_hidden=(64, 64),
        critic_hidden=(96, 96),
        critic=CriticKind.C51,
        num_atoms=51,
        policy_frequency=policy_frequency,
    )
    with FlopCounterMode(display=False) as counter:
        agent.update(make_batch(updates=2, batch=32), iteration=0, stop_requested=False)
    estimated = agent.throughput.export()["train_perf/estimated_flops"]
    # The rule takes a first layer's backward pass for two products; its input needs none.
    assert 1.0 <= estimated / counter.get_total_flops() < 1.06


def test_throughput_counts_rows_and_a_new_agent_begins_at_zero(
    make_agent: Callable[..., SacAgent], make_batch: Callable[..., Batch]
) -> None:
    agent = make_agent()
    for iteration in range(3):
        agent.update(make_batch(updates=2, batch=8), iteration=iteration, stop_requested=False)
    figures = agent.throughput.export()
    assert figures["train_perf/tokens"] == 48.0
    assert figures["train_perf/total_tokens"] == 48.0
    assert figures["train_perf/seconds"] > 0.0
    resumed = make_agent()
    resumed.load_state_dict(agent.state_dict())
    resumed.update(make_batch(updates=1, batch=8), iteration=3, stop_requested=False)
    assert resumed.throughput.export()["train_perf/total_tokens"] == 8.0
