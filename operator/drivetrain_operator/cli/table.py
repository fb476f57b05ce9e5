"""Plain tables: columns as wide as what they hold, nothing drawn around them."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

GAP: Final = "   "
_NARROWEST: Final = 24
"""Characters that a wrapped last column keeps, however narrow the terminal."""


def table(
    header: Sequence[str], rows: Iterable[Sequence[str]], *, right: Iterable[str] = ()
) -> list[str]:
    """Lines of a table.

    Args:
        header: Names of the columns.
        rows: Cells, as many each as there are columns.
        right: Columns whose cells stand to the right: numbers.
    """
    lines = [tuple(header), *(tuple(row) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    flushed = {index for index, name in enumerate(header) if name in set(right)}

    def cell(index: int, text: str) -> str:
        width = widths[index]
        return text.rjust(width) if index in flushed else text.ljust(width)

    return [
        GAP.join(cell(index, text) for index, text in enumerate(line)).rstrip() for line in lines
    ]


def wrapped(
    header: Sequence[str], rows: Iterable[Sequence[str]], width: int, *, right: Iterable[str] = ()
) -> list[str]:
    """Lines of a table whose last column, prose, is wrapped below itself to `width`."""
    held = [tuple(row) for row in rows]
    front = table(header[:-1], [row[:-1] for row in held], right=right)
    indent = max(map(len, front)) + len(GAP)
    room = max(width - indent, _NARROWEST)
    lines = []
    for start, prose in zip(front, (header[-1], *(row[-1] for row in held)), strict=True):
        pieces = textwrap.wrap(prose, room, break_on_hyphens=False) or [""]
        lines.append(f"{start.ljust(indent)}{pieces[0]}".rstrip())
        lines.extend(f"{' ' * indent}{piece}" for piece in pieces[1:])
    return lines


def pairs(items: Iterable[tuple[str, str]], indent: int = 0) -> list[str]:
    """Lines of names and values, the values below one another; empty values are left out."""
    held = [(f"{name}:", value) for name, value in items if value]
    widest = max((len(name) for name, _ in held), default=0)
    return [f"{' ' * indent}{name.ljust(widest)}  {value}" for name, value in held]
