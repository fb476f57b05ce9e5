"""The last look at rows before they are published: what is not sound is named and left out.

One product over a tick's packed rows says that all is well. Only where it does not is the
element looked for.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from drivetrain_trainer.envs.soundness import (
    UnsoundElement,
    all_sound,
    sound_rows,
    unsound_positions,
)
from drivetrain_trainer.envs.vector_env import ManagerKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from drivetrain_trainer.envs.vector_env import ActiveTerm, StepOutcome
    from drivetrain_trainer.runtime.replay_layout import RowLayout

WINDOW_ROWS: Final = 10_000
"""The bound is on the latest so many transitions of a rank, and the rest of their tick."""


class InvalidRowsError(Exception):
    """More rows were left out than `training.max_invalid_row_share` allows."""


@dataclass(frozen=True)
class Sighting:
    """An unsound element, and when it was seen."""

    tick: int
    element: UnsoundElement
    """Its environment is numbered among all of the rank."""

    def __str__(self) -> str:
        return f"tick {self.tick}, {self.element}"


class RowNames:
    """Columns of packed rows in words, by the terms that an environment is made of."""

    def __init__(self, layout: RowLayout, terms: Sequence[ActiveTerm] = ()) -> None:
        """Name the columns of `layout`; by number where the sizes of `terms` do not add up."""
        observation = _columns(terms, ManagerKind.OBSERVATION, layout.observation_dim)
        action = _columns(terms, ManagerKind.ACTION, layout.action_dim)
        self.inputs = layout.observation_dim + layout.action_dim
        """Columns that a step is made of; the ones after them are its results."""
        self._names = (
            *observation,
            *action,
            "reward",
            "done",
            "truncated",
            *(f"next {name}" for name in observation),
        )

    def __getitem__(self, column: int) -> str:
        return self._names[column]


class RowGuard:
    """Says which rows of a step to leave out, and counts them against the bound."""

    def __init__(self, *, num_envs: int, share: float) -> None:
        """Guard the rows of a rank.

        Args:
            num_envs: Environments of the rank.
            share: `training.max_invalid_row_share`.
        """
        self.invalid_rows = 0
        """Rows left out."""
        self.unreported_rows = 0
        """Those of them that the environments themselves took for valid."""
        self.first: Sighting | None = None
        self._newest: Sighting | None = None
        self._share = share
        self._window_ticks = math.ceil(WINDOW_ROWS / num_envs)
        self._window_rows = self._window_ticks * num_envs
        self._latest: deque[tuple[int, int]] = deque()
        """Ticks with rows that were left out, and how many."""

    @property
    def allowed(self) -> int:
        """Rows of the window that may be left out."""
        return int(self._share * self._window_rows + 1e-9)  # 0.29 of 100 is 28.999...

    def examine(
        self, rows: Tensor, outcome: StepOutcome, names: RowNames, *, tick: int, first_env: int = 0
    ) -> Tensor | None:
        """Look at the packed rows of a step.

        Args:
            rows: (n, W) float32, contiguous.
            outcome: Of the step.
            names: Of the columns.
            tick: Of the step.
            first_env: Number of the first of the n environments among those of the rank.

        Returns:
            (n,) bool, the rows to leave out; None where all are sound.
        """
        sound = all_sound(rows)
        invalid = outcome.invalid
        if sound and not invalid.any():
            return None
        elements = outcome.unsound
        if not sound:
            bad = ~sound_rows(rows)
            self.unreported_rows += int((bad & ~invalid).sum())
            invalid = invalid | bad
            elements = _with_found(rows, names, elements)
        count = int(invalid.sum())
        if not count:  # many large numbers, each of them sound
            return None
        self.invalid_rows += count
        self._latest.append((tick, count))
        untold = UnsoundElement(int(invalid.nonzero()[0]), "the environment calls it invalid")
        element = elements[0] if elements else untold
        self._newest = Sighting(tick, replace(element, env=first_env + element.env))
        self.first = self.first or self._newest
        return invalid

    def end_tick(self, tick: int) -> None:
        """Hold what was left out against the bound.

        Raises:
            InvalidRowsError: it is too much; names the first and the newest unsound element.
        """
        latest = self._latest
        while latest and latest[0][0] <= tick - self._window_ticks:
            latest.popleft()
        count = sum(rows for _, rows in latest)
        if count <= self.allowed:
            return
        raise InvalidRowsError(
            f"{count} of the latest {self._window_rows} rows could not be trained on, and"
            f" training.max_invalid_row_share {self._share:g} allows {self.allowed}; the first:"
            f" {self.first}; the newest: {self._newest}"
        )


def _with_found(
    rows: Tensor, names: RowNames, told: tuple[UnsoundElement, ...]
) -> tuple[UnsoundElement, ...]:
    """What is wrong in `rows`: inputs of the step, what the environment told, the results."""
    found = [
        (column, UnsoundElement(row, names[column], float(rows[row, column])))
        for row, column in unsound_positions(rows)
    ]
    inputs = [element for column, element in found if column < names.inputs]
    results = [element for column, element in found if column >= names.inputs]
    return (*inputs, *told, *results)


def _columns(terms: Sequence[ActiveTerm], kind: ManagerKind, size: int) -> list[str]:
    """The columns of an observation or an action, by their terms."""
    own = [term for term in terms if term.manager is kind]
    if kind is ManagerKind.OBSERVATION and sum(term.size or 0 for term in own) == size:
        return [
            f"observation term {term.name!r} column {column}"
            for term in own
            for column in range(term.size or 0)
        ]
    return [f"{kind.value} column {column}" for column in range(size)]
