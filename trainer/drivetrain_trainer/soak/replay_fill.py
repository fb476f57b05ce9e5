"""How much of a run's memory is its replay filling up, which is no leak.

A ring in host memory is allocated whole and becomes resident row by row, for as long as it
takes to fill it. The manifest's budget tells its size; it is an experimental section, so a
run without it is judged without.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from drivetrain_trainer.soak.summary import section

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from drivetrain_trainer.soak.summary import Document


@dataclass(frozen=True)
class ReplayFill:
    """Bytes that the rings of all ranks took since an environment step."""

    row_bytes: float = 0.0
    """Bytes of a transition; 0 where nothing is known, or the ring is on a device."""
    rows: int = 0
    """Transitions that all ranks' rings hold."""
    start: int = 0
    """Environment steps, over all ranks, when the soak first saw the run."""

    def bytes(self, env_steps: int | None) -> float:
        """What the rings have taken by then.

        Args:
            env_steps: Over all ranks; None where the run has not told.
        """
        written = max(0, (env_steps or 0) - self.start)
        return self.row_bytes * min(written, self.rows)


def replay_fill(document: Document | None, start: int) -> ReplayFill:
    """What the last summary says of the replay.

    Args:
        document: run_summary.json.
        start: Environment steps when the soak first saw the run.
    """
    budget = section(document, "runtime_manifest", "tensor_memory_budget")
    sizes = section(budget, "sizes")
    if document is None or budget is None or sizes is None or sizes.get("on_device") is not False:
        return ReplayFill()
    rows, storage = _count(sizes, "replay_rows"), _count(budget, "replay_storage")
    if not rows or not storage:
        return ReplayFill()
    return ReplayFill(storage / rows, rows * _ranks(document, sizes), start)


def _ranks(document: Document, sizes: Mapping[str, Any]) -> int:
    """Ranks, from the steps that an iteration of all of them takes; 1 where that is unknown."""
    sync = section(document, "runtime_manifest", "runtime_limits", "env_steps_per_sync")
    ticks = _count(document, "completed_iterations") * (_count(sync or {}, "effective") or 1)
    one_rank = ticks * _count(sizes, "num_envs")
    return max(1, round(_count(document, "total_env_steps") / one_rank)) if one_rank else 1


def _count(holder: Mapping[str, Any], name: str) -> int:
    value = holder.get(name)
    return value if type(value) is int and value > 0 else 0
