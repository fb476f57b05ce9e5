"""Small files of /proc and /sys, which may be missing, unreadable or of any content."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_LARGEST = 8 << 20
"""/proc/cpuinfo of a machine with a thousand CPUs is some 2 MB."""


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
    if text is None or not text.lstrip("-").isascii() or not text.lstrip("-").isdigit():
        return None
    return int(text)


def list_of(text: str) -> frozenset[int]:
    """The numbers of a kernel list such as ``0-3,8``.

    Raises:
        ValueError: it is no such list.
    """
    numbers: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        numbers.update(range(int(first), int(last or first) + 1))
    return frozenset(numbers)
