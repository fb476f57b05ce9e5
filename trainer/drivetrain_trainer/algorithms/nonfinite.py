"""Naming what was not finite when updates had to be skipped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor

    from drivetrain_trainer.runtime.replay_layout import Batch

_FIELDS: Final = ("observation", "action", "reward", "done", "truncated", "next_observation")
_SHOWN: Final = 3


class NonFiniteTrainingError(RuntimeError):
    """Updates stayed non-finite for longer than `algo.max_nonfinite_updates` allows."""


def describe_batch(batch: Batch) -> list[str]:
    """The batch's fields with non-finite rows, and which rows; waits for the device.

    Args:
        batch: With leading dimensions (U, B).
    """
    findings = []
    for name in _FIELDS:
        field: Tensor = getattr(batch, name)
        finite = torch.isfinite(field)
        bad = (~(finite.all(-1) if name.endswith(("observation", "action")) else finite)).nonzero()
        if len(bad):
            rows = ", ".join(f"{row} of update {update}" for update, row in bad[:_SHOWN].tolist())
            more = ", ..." if len(bad) > _SHOWN else ""
            findings.append(f"batch {name} in {len(bad)} rows (row {rows}{more})")
    return findings


def describe_tensors(tensors: Iterable[tuple[str, Tensor]], kind: str = "parameter") -> list[str]:
    """Those of the named tensors that hold non-finite values; waits for the device.

    Args:
        tensors: By name.
        kind: What they are.

    Returns:
        A finding each of the first few: its first such element and how many there are. Of the
        others the number.
    """
    found = [
        f"{kind} {name}{_first(bad, tensor)} ({int(bad.sum())} of {bad.numel()})"
        for name, tensor in tensors
        if bool((bad := ~torch.isfinite(tensor)).any())
    ]
    more = len(found) - _SHOWN
    return [*found[:_SHOWN], *([f"and {more} more of them"] if more > 0 else [])]


def _first(bad: Tensor, tensor: Tensor) -> str:
    """Index and value of the first non-finite element."""
    index = bad.nonzero()[0].tolist()
    return f"{index or ''} is {float(tensor[tuple(index)]):g}"
