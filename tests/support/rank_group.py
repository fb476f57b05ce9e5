"""Scripts run as the ranks of a gloo group, and their collectives counted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

TIMEOUT = 120.0


def run_ranks(script: Path, folder: Path, size: int = 2) -> list[Any]:
    """Run `script STORE RANK SIZE` as each rank; what each prints last, as JSON."""
    store = folder / "store"
    path = os.pathsep.join((str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")))
    processes = [
        subprocess.Popen(
            [sys.executable, str(script), str(store), str(rank), str(size)],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": path.rstrip(os.pathsep)},
        )
        for rank in range(size)
    ]
    results = [process.communicate(timeout=TIMEOUT)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * size
    return [json.loads(result.splitlines()[-1]) for result in results]


def count_collectives() -> list[str]:
    """The names of the collectives that this process calls from now on, as it calls them."""
    import torch.distributed as dist  # noqa: PLC0415 - the parent of ranks has no use for torch

    calls: list[str] = []
    for name in ("all_reduce", "all_gather", "all_gather_object", "broadcast", "barrier"):
        setattr(dist, name, _counting(getattr(dist, name), name, calls))
    return calls


def _counting(function: Any, name: str, calls: list[str]) -> Any:
    def counted(*args: Any, **kwargs: Any) -> Any:
        calls.append(name)
        return function(*args, **kwargs)

    return counted
