"""Times, shares and parts as words for a person."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from drivetrain_api.metrics import METRICS

if TYPE_CHECKING:
    from collections.abc import Iterable

LARGE_PART: Final = 0.10
"""Part of a whole from which it is named."""
_SECOND: Final = 1000.0
_MINUTE: Final = 60.0
_HOUR: Final = 3600.0
_TENTH: Final = 0.1


def ms(milliseconds: float) -> str:
    """Milliseconds with three digits, as seconds from a thousand on."""
    if milliseconds >= _SECOND:
        return f"{milliseconds / _SECOND:.3g} s"
    return f"{milliseconds:.3g} ms"


def percent(share: float) -> str:
    """A share as a whole percentage, with a decimal where it is small."""
    value = 100 * share
    if 0 < value < _TENTH:
        return "< 0.1 %"
    return f"{value:.1f} %" if 0 < value < 9.95 else f"{value:.0f} %"  # noqa: PLR2004 - one digit


def span(seconds: float) -> str:
    """A duration as `12 s`, `3 min 20 s` or `2 h 5 min`."""
    whole = round(max(seconds, 0.0))
    if whole < _MINUTE:
        return f"{whole} s"
    if whole < _HOUR:
        return f"{whole // 60} min {whole % 60} s" if whole % 60 else f"{whole // 60} min"
    minutes = whole % 3600 // 60
    return f"{whole // 3600} h {minutes} min" if minutes else f"{whole // 3600} h"


def rate(value: float) -> str:
    """A rate with its thousands apart, or with three digits where it is small."""
    return f"{value:,.0f}" if value >= _SECOND else f"{value:.3g}"


def parts(
    named: Iterable[tuple[str, float]], *, whole: float | None = None, least: float = LARGE_PART
) -> tuple[str, ...]:
    """The large parts of a whole, largest first: `Env Step 11.2 ms (87 %)`.

    Args:
        named: Name and milliseconds of each part.
        whole: What they are parts of; their sum when unset.
        least: Share from which a part is named.
    """
    found = list(named)
    total = sum(spent for _, spent in found) if whole is None else whole
    if total <= 0:
        return ()
    return tuple(
        f"{name} {ms(spent)} ({percent(spent / total)})"
        for name, spent in sorted(found, key=lambda part: -part[1])
        if spent > 0 and spent >= least * total
    )


def label_of(tag: str) -> str:
    """A canonical tag's name in the terminal."""
    return METRICS[tag].label
