"""Whether numbers are fit to be simulated and trained on, and which one is not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from drivetrain_trainer.envs.errors import NonFiniteResetError

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

SOUND_LIMIT: Final = 1e10
"""From here on MuJoCo itself calls a state bad, at its next step."""

NONFINITE: Final = "nonfinite"
"""Reason of a row that the simulator did not report: a NaN, an infinity or a huge number in an
observation, an action or a reward."""

NAMED_ELEMENTS: Final = 4
"""Elements of a step that are named; the others are counted."""


@dataclass(frozen=True)
class UnsoundElement:
    """One number that is not fit to be trained on, or what a simulator said of a world."""

    env: int
    """Index of the environment among those that were stepped together."""
    place: str
    """What it is of: ``reward term 'alive'``, ``action column 2``."""
    value: float | None = None
    """Itself; None where the simulator reported the world."""

    def __str__(self) -> str:
        said = "" if self.value is None else f" is {self.value:g}"
        return f"env {self.env}: {self.place}{said}"


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


def unsound_positions(values: Tensor) -> list[tuple[int, int]]:
    """Row and column of the first `NAMED_ELEMENTS` unsound numbers of (n, k), row after row."""
    # Not ">=": NaN compares as false either way, and must be found.
    found = (~(values.abs() < SOUND_LIMIT)).nonzero()[:NAMED_ELEMENTS].tolist()
    return [(row, column) for row, column in found]


def require_sound(
    ids: Tensor, values: Tensor, what: str, place: Callable[[int], str] = "column {}".format
) -> None:
    """Refuse resets that gave rows which are not sound.

    Args:
        ids: (n,) the worlds that were reset.
        values: (n, k) of each.
        what: The rows' name in the message.
        place: Names a column.

    Raises:
        NonFiniteResetError: naming the first such number, with its world and place.
    """
    if values.numel() == 0 or all_sound(values):
        return
    for row, column in unsound_positions(values):
        raise NonFiniteResetError(
            f"world {int(ids[row])} has {what} that are not finite right after its reset:"
            f" {place(column)} is {float(values[row, column]):g}"
        )
