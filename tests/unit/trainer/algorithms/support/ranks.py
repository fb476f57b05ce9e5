"""One rank of the two-rank tests: runs every scenario, writes what it saw as JSON.

Usage: ranks.py RANK WORLD_SIZE RENDEZVOUS_FILE RESULT_FILE
"""

from __future__ import annotations

import json
import math
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from drivetrain_api.algorithms import Activation, CriticKind, Precision, SacConfig
from drivetrain_trainer.algorithms.distributed import GradientReducer
from drivetrain_trainer.algorithms.sac.agent import NonFiniteTrainingError, SacAgent
from drivetrain_trainer.runtime.replay_layout import Batch, RowLayout

OBSERVATIONS, ACTIONS = 5, 2
CPU = torch.device("cpu")


def make_agent(*, seed: int = 0, **changes: Any) -> SacAgent:
    small: dict[str, Any] = {
        "actor_hidden": (16, 16),
        "critic_hidden": (16, 16),
        "activation": Activation.RELU,
        "layer_norm": False,
        "critic": CriticKind.TWIN_Q,
        "policy_frequency": 2,
        "precision": Precision.FP32,
    }
    return SacAgent(
        SacConfig(**{**small, **changes}),
        observation_dim=OBSERVATIONS,
        action_dim=ACTIONS,
        device=CPU,
        seed=seed,
        group=dist.group.WORLD,
    )


def rows(seed: int, updates: int = 1) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    layout = RowLayout(OBSERVATIONS, ACTIONS)
    packed = torch.randn(updates, 16, layout.width, generator=generator)
    views = layout.view(packed)
    views.done.zero_()
    views.truncated.zero_()
    return views


def learning(rank: int) -> dict[str, object]:
    """50 updates on different data a rank: in step to the bit, normalisers as well."""
    result: dict[str, object] = {}
    variants: dict[str, dict[str, Any]] = {
        "twin_q": {},
        "c51_bf16_clipped": {
            "critic": CriticKind.C51,
            "precision": Precision.BF16,
            "max_grad_norm": 0.1,
        },
    }
    for name, variant in variants.items():
        agent = make_agent(**variant)
        start = agent.parameter_hash()
        for iteration in range(25):
            offset = 1000 * rank + iteration
            agent.observe(torch.randn(3, OBSERVATIONS) * (1 + rank) + 10 * rank)
            agent.update(rows(offset, updates=2), iteration=iteration, stop_requested=False)
        result[name] = {
            "start": start,
            "end": agent.parameter_hash(),
            "count": float(agent.policy.normalizer.get_buffer("count")),
            "metrics": agent.metrics(),
        }
    return result


def mean_gradient(rank: int) -> dict[str, object]:
    """Ranks with halves of a batch learn what one rank learns from the whole."""
    agent = make_agent(policy_frequency=1000, observation_normalization=False)
    halves = rows(5, updates=1)
    half = slice(8 * rank, 8 * (rank + 1))
    agent.update(
        Batch(
            observation=halves.observation[:, half],
            action=halves.action[:, half],
            reward=halves.reward[:, half],
            done=torch.ones(1, 8),
            truncated=torch.zeros(1, 8),
            next_observation=halves.next_observation[:, half],
        ),
        iteration=0,
        stop_requested=False,
    )
    return {
        "critic": agent._update.critic.values.tolist(),
        "gradient": agent._update.critic_reducer.gradient.tolist(),
        "norm": agent.metrics()["Train/critic_gradient_norm"],
    }


def poison(rank: int) -> dict[str, object]:
    """A NaN on rank 1 alone: both skip, both give up together, both name it; both could go on."""
    agent = make_agent(max_nonfinite_updates=2)
    start = agent.parameter_hash()
    batch = rows(rank)
    if rank == 1:
        batch.reward[0, 2] = math.nan
    agent.update(batch, iteration=0, stop_requested=False)
    skipped = agent.parameter_hash() == start and agent.skipped_updates == 1
    message = ""
    try:
        agent.update(batch, iteration=1, stop_requested=False)
    except NonFiniteTrainingError as error:
        message = str(error)
    agent.update(rows(2), iteration=2, stop_requested=False)
    recovered = agent.parameter_hash() != start and agent.skipped_updates == 2
    return {"skipped": skipped, "message": message, "recovered": recovered}


def stopping(rank: int) -> dict[str, object]:
    """The flag of one rank reaches both, through updates and through warm-up alike."""
    agent = make_agent()
    wanted = [(False, False), (True, False), (False, True), (True, True), (False, False)]
    updates, syncs = [], []
    for iteration, flags in enumerate(wanted):
        agent.observe(torch.full((2, OBSERVATIONS), float(rank)))
        syncs.append(agent.sync(stop_requested=flags[rank]))
        updates.append(agent.update(rows(rank, 2), iteration=iteration, stop_requested=flags[rank]))
    return {
        "updates": updates,
        "syncs": syncs,
        "mean": agent.policy.normalizer.get_buffer("mean").tolist(),
        "hash": agent.parameter_hash(),
    }


def starting(rank: int) -> dict[str, object]:
    """Ranks start from the first one's parameters even if seeds differ; noise is their own."""
    agent = make_agent(seed=rank, observation_normalization=False)
    same = make_agent(seed=3)
    return {
        "hash": agent.parameter_hash(),
        "action": same.act(torch.zeros(1, OBSERVATIONS), tick=0).tolist(),
    }


def statistics(rank: int) -> dict[str, object]:
    """Float64 statistics arrive at the other rank with 48 bits, and own ones likewise."""
    reducer = GradientReducer(3, device=CPU, group=dist.group.WORLD, statistics=2)
    values = torch.tensor([1 / 3 + rank, 1e9 + 1 / 7], dtype=torch.float64)
    reducer.attach(stop_requested=False, statistics=values)
    reducer.gradient.fill_(1.0 + rank)
    reducer.reduce(torch.tensor(1.0 if rank == 0 else math.inf))
    gathered = reducer.statistics()
    assert gathered is not None
    return {
        "gathered": gathered.tolist(),
        "gradient": reducer.gradient.tolist(),
        "sentinels": [math.isnan(value) for value in reducer.sentinels.tolist()],
        "norm_finite": bool(reducer.norm().isfinite()),
        "timer_calls": reducer.timer.take()[1],
    }


SCENARIOS = (learning, mean_gradient, poison, stopping, starting, statistics)


def main() -> None:
    rank, world_size = int(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    torch.manual_seed(rank)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{sys.argv[3]}",
        rank=rank,
        world_size=world_size,
        timeout=timedelta(seconds=60),
    )
    results = {scenario.__name__: scenario(rank) for scenario in SCENARIOS}
    Path(sys.argv[4]).write_text(json.dumps(results))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
