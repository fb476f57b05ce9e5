"""One report after validation and cross-rank reduction."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


Cell = str | int | float
"""One field of a table."""


@dataclass(frozen=True)
class Table:
    """Rows for a backend that can hold them, such as a load of each expert of each layer."""

    columns: tuple[str, ...]
    """Names of the columns."""
    rows: tuple[tuple[Cell, ...], ...]
    """One cell a column in each."""
    index: tuple[str, ...] = ()
    """Leading columns that name a row, such as layer and expert; a backend without tables gets
    the others as scalars by them, if it takes that many."""

    def __post_init__(self) -> None:
        ragged = next((row for row in self.rows if len(row) != len(self.columns)), None)
        if ragged is not None:
            raise ValueError(f"a row of {len(ragged)} cells in a table of {self.columns}")
        if self.columns[: len(self.index)] != self.index:
            raise ValueError(f"index {self.index} does not lead the columns {self.columns}")

    def scalars(self, name: str) -> Iterator[tuple[str, float]]:
        """Tag and value of each number beyond the index; nothing without an index.

        ``moe_balance/expert_loads`` with index (layer, expert) and column tokens becomes
        ``moe_balance/layer_0/expert_3/tokens``.
        """
        width = len(self.index)
        prefix = name.rpartition("/")[0]
        for row in self.rows if width else ():
            places = "/".join(f"{of}_{at}" for of, at in zip(self.index, row, strict=False))
            for column, cell in zip(self.columns[width:], row[width:], strict=True):
                if not isinstance(cell, str):
                    yield f"{prefix}/{places}/{column}", float(cell)


@dataclass(frozen=True)
class Record:
    """What backend and terminal of rank 0 receive for one report.

    `values` and `tables` are persisted; the other figures only the terminal shows.
    """

    env_steps: int
    """Environment steps over all ranks: the step axis."""
    iteration: int
    """Learner iterations done."""
    wall_time: float
    """Seconds since the epoch at submission."""
    values: Mapping[str, float]
    """Tag -> value reduced over the ranks."""
    learner_rows_per_second: float | None = None
    """Replay rows learnt from a second, summed over the ranks."""
    buffer_rows: int | None = None
    """Transitions in the replay ring of rank 0."""
    tables: Mapping[str, Table] = field(default_factory=lambda: MappingProxyType({}))
    """Name -> table, of rank 0."""
