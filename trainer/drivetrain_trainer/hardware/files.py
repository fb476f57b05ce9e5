"""Small files of /proc and /sys, which may be missing, unreadable or of any content."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_LARGEST = 8 << 20
"""/proc/cpuinfo of a machine with a thousand CPUs is some 2 MB."""
_NUMBER = re.compile(r"-?[0-9]{1,20}")
_LARGEST_NUMBER = (1 << 16) - 1
"""No machine has as many CPUs."""


def text_of(path: Path) -> str | None:
    """The stripped content; None where there is none to be read."""
    try:
        with path.open("rb") as file:
            return file.read(_LARGEST).decode(errors="replace").strip()
    except OSError:
        return None


def number_of(path: Path) -> int | None:
    """The one whole number in it; None for anything else."""
    text = text_of(path)
    return int(text) if text is not None and _NUMBER.fullmatch(text) else None


def list_of(text: str) -> frozenset[int]:
    """The numbers of a kernel list such as ``0-3,8``.

    Raises:
        ValueError: it is no such list, or has larger numbers than any machine.
    """
    numbers: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        found = range(int(first), int(last or first) + 1)
        if not found or found[-1] > _LARGEST_NUMBER:
            raise ValueError(f"{part!r} is no range of numbers up to {_LARGEST_NUMBER}")
        numbers.update(found)
    return frozenset(numbers)
