"""The stats tracker: an export of 1,000 keys over two ranks, and what a record costs.

The reference of the export reduces key by key, as a loop over a dictionary would: one sum of
(sum, count) and one maximum of (greatest, -least) for each. The reference of a record is what the
sum, count, least and greatest of one batch cost without a tracker.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from tests.bench.result import Result, against

from drivetrain_trainer.stats import StatsTracker

RANKS, KEYS, FEW_KEYS, ROUNDS = 2, 1000, 10, 7
CALLS = 2000
BATCH = 256
"""Elements of a recorded batch: the rows of an update at CPU presets."""
RECORD_TARGETS = {"scalar": 0.35, "timing": 0.35, "compact": 3.5}
"""Greatest multiples of what the figures of one batch cost without a tracker."""


def measure() -> list[Result]:
    """Exports by two processes in turn with the reference; records in this one."""
    return [*_exports(), *_records()]


def _exports() -> list[Result]:
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "store"
        processes = [
            subprocess.Popen(
                [sys.executable, "-m", "tests.bench.bench_stats", str(store), str(rank)],
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank in range(RANKS)
        ]
        outputs = [process.communicate(timeout=300)[0] for process in processes]
    if any(process.returncode for process in processes):
        raise RuntimeError(f"a rank failed: {[process.returncode for process in processes]}")
    found = json.loads(outputs[0].splitlines()[-1])
    return [
        against(
            "stats_export_collectives",
            f"collectives of export_all with {KEYS} keys on {RANKS} ranks",
            found["collectives"],
            found["collectives_few"],
            reference_name=f"with {FEW_KEYS} keys",
            target=1.0,
            better="lower",
        ),
        against(
            "stats_export_time",
            f"ms of export_all with {KEYS} keys on {RANKS} ranks",
            found["ours"],
            found["reference"],
            reference_name="two all-reduces a key",
            target=0.2,
            better="lower",
        ),
    ]


def _records() -> list[Result]:
    tracker = StatsTracker()
    mask, value = torch.rand(BATCH) > 0.5, torch.randn(BATCH)
    calls: dict[str, Callable[[], object]] = {
        "scalar": lambda: tracker.scalar(x=1.0),
        "timing": lambda: _timed(tracker),
        "compact": lambda: tracker.stat_compact("n", y=value),
        "figures": lambda: _bare_figures(value, mask),
    }
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        tracker.drain()
        tracker.denominator(n=mask)
        for name, call in calls.items():
            taken[name].append(_microseconds(call))
    return [
        against(
            f"stats_record_{name}",
            f"us of a recorded {name}",
            taken[name],
            taken["figures"],
            reference_name=f"the figures of {BATCH} elements alone",
            target=target,
            better="lower",
        )
        for name, target in RECORD_TARGETS.items()
    ]


def _timed(tracker: StatsTracker) -> None:
    with tracker.record_timing("t"):
        pass


def _bare_figures(value: torch.Tensor, mask: torch.Tensor) -> list[torch.Tensor]:
    return [
        torch.where(mask, value, 0.0).sum(dtype=torch.float64),
        mask.sum(),
        torch.where(mask, value, torch.inf).amin(),
        torch.where(mask, value, -torch.inf).amax(),
    ]


def _microseconds(call: Callable[[], object]) -> float:
    started = time.perf_counter_ns()
    for _ in range(CALLS):
        call()
    return (time.perf_counter_ns() - started) / CALLS / 1e3


def _rank(store: str, rank: int) -> None:
    """One of the two processes; rank 0 prints what it measured."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS)
    counted = _count_collectives()
    tracker = StatsTracker()
    found: dict[str, list[float]] = {
        name: [] for name in ("ours", "reference", "collectives", "collectives_few")
    }
    for number in range(ROUNDS + 1):
        _fill(tracker, FEW_KEYS)
        tracker.export(dist.group.WORLD)
        few = len(counted)
        figures = _fill(tracker, KEYS)
        counted.clear()
        ours = _milliseconds(lambda: tracker.export(dist.group.WORLD))
        collectives = len(counted)
        reference = _milliseconds(partial(_key_by_key, figures))
        counted.clear()
        if number:  # the first one warms up
            for name, value in (
                ("ours", ours),
                ("reference", reference),
                ("collectives", collectives),
                ("collectives_few", few),
            ):
                found[name].append(value)
    if rank == 0:
        print(json.dumps(found), flush=True)
    dist.destroy_process_group()


def _fill(tracker: StatsTracker, keys: int) -> list[torch.Tensor]:
    """Record `keys` keys; the same figures for the reference, each float64 (4,)."""
    mask = torch.ones(8, dtype=torch.bool)
    tracker.denominator(n=mask)
    for key in range(keys):
        tracker.stat_compact("n", **{f"part/{key}": torch.randn(8)})
    return [torch.randn(4, dtype=torch.float64) for _ in range(keys)]


def _key_by_key(figures: list[torch.Tensor]) -> list[float]:
    for one in figures:
        dist.all_reduce(one[:2])
        dist.all_reduce(one[2:], op=dist.ReduceOp.MAX)
    return [one[0].item() / one[1].item() for one in figures]


def _milliseconds(call: Callable[[], object]) -> float:
    dist.barrier()
    started = time.perf_counter_ns()
    call()
    return (time.perf_counter_ns() - started) / 1e6


def _count_collectives() -> list[str]:
    calls: list[str] = []
    for name in ("all_reduce", "all_gather"):
        setattr(dist, name, _counting(getattr(dist, name), name, calls))
    return calls


def _counting(function: Any, name: str, calls: list[str]) -> Any:
    def noted(*args: Any, **kwargs: Any) -> Any:
        calls.append(name)
        return function(*args, **kwargs)

    return noted


def main() -> None:
    """Be a rank, or measure and print the table's rows."""
    if len(sys.argv) > 1:
        _rank(sys.argv[1], int(sys.argv[2]))
        return
    for result in measure():
        print(result.row())


if __name__ == "__main__":
    main()
