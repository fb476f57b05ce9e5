"""Whether numbers are fit to be simulated and trained on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivetrain_trainer.envs.errors import NonFiniteResetError

if TYPE_CHECKING:
    from torch import Tensor

SOUND_LIMIT = 1e10
"""From here on MuJoCo itself calls a state bad, at its next step."""


def all_sound(values: Tensor) -> bool:
    """No NaN, no infinity, no huge number in a contiguous tensor; False may be a false alarm.

    One product where a comparison would take several calls: the sum of squares is below the
    squared limit only if every number is below the limit, and it is NaN or infinite as soon
    as one of them is.
    """
    flat = values.view(-1)
    return float(flat.dot(flat)) < SOUND_LIMIT**2


def sound_rows(values: Tensor) -> Tensor:
    """(n,) bool: which rows of (n, k) hold no NaN, no infinity and no huge number."""
    return values.abs().amax(1) < SOUND_LIMIT


def require_sound(ids: Tensor, values: Tensor, what: str) -> None:
    """Refuse resets that gave rows which are not sound.

    Args:
        ids: (n,) the worlds that were reset.
        values: (n, k) of each.
        what: The rows' name in the message.

    Raises:
        NonFiniteResetError: naming the first such world and its values.
    """
    if values.numel() == 0 or all_sound(values):
        return
    for world, row, sound in zip(ids.tolist(), values, sound_rows(values).tolist(), strict=True):
        if not sound:
            raise NonFiniteResetError(
                f"world {world} has {what} that are not finite right after its reset:"
                f" {row.tolist()}"
            )
