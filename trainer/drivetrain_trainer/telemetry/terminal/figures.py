"""Numbers as a person reads them, in a bounded number of columns."""

from __future__ import annotations

import math

_UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_LARGE = 1e6
_SMALL = 1e-3
_WHOLE_RATES = 1e5
_BEYOND_UNITS = 1e15
_MINUTE = 60
_HOUR = 3600
_DAY = 24 * _HOUR


def value(number: float) -> str:
    """Up to five significant digits: ``12,345.6``, ``5.1235``, ``0.00120``, ``3.00e-06``.

    Non-finite numbers read ``nan``, ``inf``, ``-inf``: never hidden.
    """
    if not math.isfinite(number):
        return str(number)
    size = abs(number)
    if size >= _LARGE:
        return compact(number)
    if size >= 1000:  # noqa: PLR2004 - four digits before the point leave one behind it
        return f"{number:,.1f}"
    if size >= 10:  # noqa: PLR2004 - likewise
        return f"{number:.3f}" if size < 100 else f"{number:.2f}"  # noqa: PLR2004
    if size == 0 or size >= 1:
        return f"{number:.4f}" if size else "0"
    return f"{number:.4f}" if size >= _SMALL else f"{number:.2e}"


def compact(number: float, digits: int = 4) -> str:
    """A magnitude with a unit letter and no trailing zeros: ``12.34M``, ``500k``, ``512``."""
    if not math.isfinite(number):
        return str(number)
    if abs(number) >= _BEYOND_UNITS:
        return f"{number:.2e}"
    for size, letter in _UNITS:
        if abs(number) >= size:
            scaled = number / size
            before = len(str(int(abs(scaled))))
            return _trimmed(f"{scaled:.{max(digits - before, 0)}f}") + letter
    if abs(number) >= 1:
        before = len(str(int(abs(number))))
        return _trimmed(f"{number:.{max(digits - before, 0)}f}")
    return f"{number:.{digits}g}"


def rate(number: float | None) -> str:
    """A number a second: whole up to 100,000, with a unit letter from there on."""
    if number is None:
        return "-"
    return f"{number:,.0f}" if abs(number) < _WHOLE_RATES else compact(number)


def gauge(number: float) -> str:
    """A mean of whole numbers: ``2``, ``0.25``, ``1.5M``."""
    if abs(number) >= _LARGE:
        return compact(number)
    return _trimmed(f"{number:,.2f}") if math.isfinite(number) else str(number)


def _trimmed(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text


def milliseconds(number: float) -> str:
    """A duration in ms with three to four significant digits, without its unit."""
    if not math.isfinite(number):
        return str(number)
    if abs(number) >= 1000:  # noqa: PLR2004 - no decimals from four digits on
        return f"{number:,.0f}"
    return f"{number:.1f}" if abs(number) >= 100 else f"{number:.2f}"  # noqa: PLR2004


def percent(share: float) -> str:
    """A share of 1 as ``12.3 %``."""
    return f"{100 * share:.1f} %" if math.isfinite(share) else str(share)


def count(number: int) -> str:
    """A whole number with thousands separated."""
    return f"{number:,}"


def duration(seconds: float | None) -> str:
    """``0:03:07``, ``2d 04:00:00``; ``-`` where it is unknown."""
    if seconds is None or not math.isfinite(seconds):
        return "-"
    whole = max(round(seconds), 0)
    days, rest = divmod(whole, _DAY)
    hours, rest = divmod(rest, _HOUR)
    minutes, left = divmod(rest, _MINUTE)
    if days:
        return f"{days}d {hours:02}:{minutes:02}:{left:02}"
    return f"{hours}:{minutes:02}:{left:02}"
