"""/proc/cpuinfo: one entry for each CPU that the system shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from drivetrain_trainer.hardware.files import text_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_NAMES: Final = ("model name", "cpu model", "cpu")
"""Keys of the processor's name on x86 and newer ARM, MIPS, POWER."""


@dataclass(frozen=True)
class Processor:
    """One entry."""

    index: int
    name: str | None
    flags: frozenset[str]
    khz: int | None
    """`cpu MHz`, as a whole number of kHz."""
    core: tuple[str, str] | None
    """Physical package and core in it."""


def processors(root: Path) -> list[Processor]:
    """All entries; none where the file cannot be read.

    Args:
        root: Where ``proc`` lies.
    """
    found = []
    for block in (text_of(root / "proc/cpuinfo") or "").split("\n\n"):
        pairs = (line.partition(":") for line in block.splitlines())
        entry = {key.strip(): value.strip() for key, _, value in pairs}
        if entry.get("processor", "").isdecimal():
            found.append(_processor(entry))
    return found


def _processor(entry: Mapping[str, str]) -> Processor:
    package, core = entry.get("physical id"), entry.get("core id")
    return Processor(
        index=int(entry["processor"]),
        name=next((entry[key] for key in _NAMES if entry.get(key)), None),
        flags=frozenset(entry.get("flags", entry.get("Features", "")).split()),
        khz=_khz(entry.get("cpu MHz")),
        core=None if package is None or core is None else (package, core),
    )


def _khz(text: str | None) -> int | None:
    try:
        megahertz = float(text or "")
    except ValueError:
        return None
    return round(megahertz * 1000) if 0 < megahertz < 1e6 else None  # noqa: PLR2004 - also refuses NaN and infinity
