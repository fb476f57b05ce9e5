"""One rank of a gloo group; run by test_collective.py, prints what each export gave."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from rank_group import count_collectives

from drivetrain_trainer import stats
from drivetrain_trainer.stats import ReduceType, StatsError


def main() -> None:
    store, rank, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size)
    collectives = count_collectives()
    results = {}
    for case in CASES:
        case(rank)
        collectives.clear()
        try:
            outcome: Any = stats.export_all(dist.group.WORLD)
        except StatsError as error:
            outcome = str(error)
        results[case.__name__] = {"outcome": outcome, "collectives": list(collectives)}
    print(json.dumps(results))
    dist.destroy_process_group()


def equal_keys(rank: int) -> None:
    """Rank r has r + 1 valid elements of value r and as many scalars of value r."""
    stats.denominator(n=torch.arange(4) <= rank)
    stats.stat("n", full=torch.full((4,), float(rank)))
    stats.stat_compact("n", compact=torch.full((4,), float(rank)))
    for reduce_type in (ReduceType.AVG, ReduceType.SUM, ReduceType.MIN, ReduceType.MAX):
        stats.stat("n", reduce_type, **{reduce_type.value: torch.full((4,), float(rank))})
    for _ in range(rank + 1):
        stats.scalar(scalar=float(rank))


def different_keys(rank: int) -> None:
    stats.denominator(**{f"n{rank}": torch.tensor([True, False])})
    stats.stat(f"n{rank}", **{f"x{rank}": torch.tensor([float(rank), 9.0])})
    stats.get("rollout" if rank else "eval-rollout").scalar(reward=float(rank), é=1.0)
    if rank == 0:
        stats.scalar(only_first=5.0)
        with stats.record_timing("save"):
            pass


def nan_on_one_rank(rank: int) -> None:
    stats.denominator(n=torch.ones(1, dtype=torch.bool))
    value = torch.tensor([math.nan if rank == 0 else float(rank)])
    stats.stat("n", x=value)
    stats.stat("n", ReduceType.MAX, greatest=value)
    stats.stat("n", ReduceType.MIN, least=value)


def infinities(rank: int) -> None:
    stats.denominator(n=torch.ones(1, dtype=torch.bool))
    stats.stat("n", x=torch.tensor([-math.inf]))
    stats.stat("n", ReduceType.MAX, greatest=torch.tensor([math.inf if rank else 1.0]))


def empty_on_the_first_rank(rank: int) -> None:
    stats.denominator(n=torch.tensor([rank > 0]), none=torch.tensor([False]))
    stats.stat("n", x=torch.tensor([float(rank)]))
    stats.stat("none", y=torch.tensor([float(rank)]))
    stats.stat("none", ReduceType.SUM, z=torch.tensor([float(rank)]))


def denominator_of_one_rank(rank: int) -> None:
    if rank == 1:
        stats.denominator(n=torch.tensor([True, True]))
        stats.stat("n", x=torch.tensor([1.0, 2.0]))


def nothing(rank: int) -> None:
    """Nobody recorded."""


def nothing_on_the_first_rank(rank: int) -> None:
    if rank:
        stats.scalar(x=float(rank))


def unround_sums(rank: int) -> None:
    """Sums whose value depends on the order of addition."""
    stats.denominator(n=torch.ones(3, dtype=torch.bool))
    generator = torch.Generator().manual_seed(rank)
    for key in range(40):
        stats.stat_compact("n", **{f"x{key}": torch.randn(3, generator=generator)})


def conflicting_types(rank: int) -> None:
    stats.denominator(n=torch.ones(1, dtype=torch.bool))
    stats.stat("n", ReduceType.SUM if rank else ReduceType.AVG, x=torch.ones(1))


def conflicting_outputs(rank: int) -> None:
    if rank:
        stats.scalar(**{"x/avg": 1.0})
    else:
        stats.denominator(n=torch.ones(1, dtype=torch.bool))
        stats.stat("n", x=torch.ones(1))


def conflict_within_the_last_rank(rank: int) -> None:
    if rank == dist.get_world_size() - 1:
        stats.get("rollout").scalar(x=1.0)
        with stats.scope("rollout"):
            stats.scalar(x=1.0)


def after_conflicts(rank: int) -> None:
    stats.scalar(x=float(rank))


def many_keys(rank: int) -> None:
    stats.denominator(n=torch.ones(1, dtype=torch.bool))
    for key in range(1000):
        stats.stat_compact("n", **{f"a/{key}": torch.tensor([float(rank)])})


def many_different_keys(rank: int) -> None:
    stats.denominator(n=torch.ones(1, dtype=torch.bool))
    for key in range(1000):
        stats.stat_compact("n", **{f"{rank}/{key}": torch.tensor([float(rank)])})


CASES: tuple[Callable[[int], None], ...] = (
    equal_keys,
    different_keys,
    nan_on_one_rank,
    infinities,
    empty_on_the_first_rank,
    denominator_of_one_rank,
    nothing,
    nothing_on_the_first_rank,
    unround_sums,
    conflicting_types,
    conflicting_outputs,
    conflict_within_the_last_rank,
    after_conflicts,
    many_keys,
    many_different_keys,
)


if __name__ == "__main__":
    main()
