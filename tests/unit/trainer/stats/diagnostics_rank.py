"""One rank of a gloo group of two; run by test_diagnostics_ranks.py, prints what it exported."""

from __future__ import annotations

import json
import math
import sys
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from moe_model import MoeModel, TopKRouter, chosen_by_hand, supported

from drivetrain_trainer.stats import StatsTracker
from drivetrain_trainer.stats.log_probs import record_log_probs
from drivetrain_trainer.stats.moe_balance import MoeBalance, MoeBalanceError
from drivetrain_trainer.stats.staleness import record_staleness
from drivetrain_trainer.stats.throughput import HostStopwatch, ThroughputMeter

CPU = torch.device("cpu")


def exported(tracker: StatsTracker) -> dict[str, Any]:
    return {
        key: "nan" if math.isnan(value) else value
        for key, value in tracker.export(dist.group.WORLD).items()
    }


def log_probs(rank: int) -> dict[str, Any]:
    """Rank 0 has one valid position with d = 2, rank 1 three with d = 0."""
    tracker = StatsTracker()
    behaviour = torch.zeros(3)
    learner, mask = (
        (torch.tensor([2.0, math.nan, 9.0]), torch.tensor([True, False, False]))
        if rank == 0
        else (torch.zeros(3), torch.ones(3, dtype=torch.bool))
    )
    record_log_probs(tracker, learner=learner, behaviour=behaviour, mask=mask)
    return exported(tracker)


def broken_log_probs(rank: int) -> dict[str, Any]:
    """A NaN on rank 1 alone."""
    tracker = StatsTracker()
    learner = torch.tensor([2.0, math.nan if rank else 0.0])
    record_log_probs(
        tracker,
        learner=learner,
        behaviour=torch.zeros(2),
        mask=torch.ones(2, dtype=torch.bool),
    )
    return exported(tracker)


def staleness(rank: int) -> dict[str, Any]:
    """Rank 0 sees ages 1, 1, 1, 5; rank 1 sees -2 alone, and nothing valid in a second call."""
    tracker = StatsTracker()
    versions = [[9, 9, 9, 5], [12]][rank]
    record_staleness(tracker, behaviour_version=torch.tensor(versions), published_version=10)
    if rank:
        record_staleness(tracker, behaviour_version=torch.tensor([-1]), published_version=11)
    return exported(tracker)


def throughput(rank: int) -> dict[str, Any]:
    """Rank 0 trains on 10 tokens in 2 s, rank 1 on 30 in 4 s; FLOPs are the squares."""
    return _throughput(rank, estimated=True)


def throughput_of_a_replica(rank: int) -> dict[str, Any]:
    """Rank 1 repeats rank 0's tokens (tensor parallel), and is slower."""
    return _throughput(rank, estimated=rank == 0, counts=rank == 0)


def throughput_unregistered_on_one(rank: int) -> dict[str, Any]:
    return _throughput(rank, estimated=rank == 0)


def _throughput(rank: int, *, estimated: bool, counts: bool = True) -> dict[str, Any]:
    now = 0

    def clock() -> int:
        return now

    meter = ThroughputMeter(
        CPU,
        estimator=(lambda length: float(length**2)) if estimated else None,
        group=dist.group.WORLD,
        counts_tokens=counts,
        stopwatch=HostStopwatch(clock),
    )
    with meter.measure([[10], [10, 20]][rank]):
        now += [2, 4][rank] * 10**9
    return meter.export()


def moe_balance(rank: int) -> dict[str, Any]:
    """The same model, different data: counts add up over ranks before they are compared."""
    torch.manual_seed(0)
    model = MoeModel(layers=1)
    inputs = torch.randn(8, 4, generator=torch.Generator().manual_seed(rank))
    balance = MoeBalance(dist.group.WORLD)
    balance.attach_all(model, {TopKRouter: supported})
    with balance.training_forward():
        model(inputs)
    loads = balance.export()
    return {
        "own": chosen_by_hand(model, inputs),
        "counts": [list(load.counts) for load in loads.layers],
        "scalars": loads.scalars(),
    }


def moe_stages(rank: int) -> dict[str, Any]:
    """Each rank holds another layer; that of rank 1 saw nothing."""
    balance = MoeBalance(dist.group.WORLD)
    balance.declare(rank, experts=2 + rank)
    if rank == 0:
        balance.add(0, torch.tensor([3, 1]))
    return {"rows": balance.export().rows()}


def moe_contradiction(rank: int) -> dict[str, Any]:
    balance = MoeBalance(dist.group.WORLD)
    balance.declare(4, experts=2 + rank)
    try:
        balance.export()
    except MoeBalanceError as error:
        return {"error": str(error)}
    return {}


CASES = (
    log_probs,
    broken_log_probs,
    staleness,
    throughput,
    throughput_of_a_replica,
    throughput_unregistered_on_one,
    moe_balance,
    moe_stages,
    moe_contradiction,
)


def main() -> None:
    store, rank = sys.argv[1], int(sys.argv[2])
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{store}",
        rank=rank,
        world_size=2,
        timeout=timedelta(seconds=60),
    )
    print(json.dumps({case.__name__: case(rank) for case in CASES}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
