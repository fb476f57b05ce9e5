"""Durations, sizes, figures and bars, at widths for a terminal."""

from __future__ import annotations

from typing import Final

_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))
_FINE: Final = 10
"""Below this many of its unit, a duration or a size shows one more place."""
_PREFIXES: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_KIB: Final = 1024
NOTHING: Final = "-"
"""Stands where a figure is not known."""


def duration(seconds: float) -> str:
    """Seconds as `2d3h`, `45m`, `9m30s`: the largest unit, and the next where that is small."""
    left = max(int(seconds), 0)
    for place, (size, unit) in enumerate(_UNITS):
        whole, rest = divmod(left, size)
        if not whole:
            continue
        below = _UNITS[place + 1] if place + 1 < len(_UNITS) else None
        finer = rest // below[0] if below is not None else 0
        return (
            f"{whole}{unit}{finer}{below[1]}"
            if below and finer and whole < _FINE
            else (f"{whole}{unit}")
        )
    return "0s"


def size(count: int) -> str:
    """Bytes as `1.4 MiB`."""
    value = float(count)
    for prefix in _PREFIXES:
        if value < _KIB or prefix == _PREFIXES[-1]:
            break
        value /= _KIB
    places = 1 if prefix != "B" and value < _FINE else 0
    return f"{value:.{places}f} {prefix}"


def figure(decimal: str | None) -> str:
    """A decimal of a status with five digits."""
    if decimal is None:
        return NOTHING
    value = float(decimal)
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.5g}"  # noqa: PLR2004 - five digits


def number(value: int) -> str:
    """An integer with its thousands apart."""
    return f"{value:,}"


def bar(percent: int, width: int = 30) -> str:
    """How far something is: `[######--------]`."""
    full = width * min(max(percent, 0), 100) // 100
    return f"[{'#' * full}{'-' * (width - full)}]"
