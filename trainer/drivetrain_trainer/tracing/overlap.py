"""How much of one kind of span ran beside another, of another thread or process."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

_KEPT: Final = 4096
"""Newest spans kept of each kind: device spans are recorded late, but not by thousands."""


@dataclass
class Overlap:
    """Two kinds of spans; those of one kind do not overlap each other."""

    first: str
    second: str
    first_ns: int = 0
    """Time in spans of the first kind."""
    second_ns: int = 0
    both_ns: int = 0
    """Time in spans of both kinds at once."""
    _kept: dict[bool, deque[tuple[int, int]]] = field(
        default_factory=lambda: {side: deque(maxlen=_KEPT) for side in (False, True)}
    )

    def add(self, start_ns: int, end_ns: int, *, second: bool) -> None:
        """Count a span against those of the other kind that came before it."""
        if second:
            self.second_ns += end_ns - start_ns
        else:
            self.first_ns += end_ns - start_ns
        for start, end in reversed(self._kept[not second]):
            if end <= start_ns:
                break  # the kept ones are in the order of their ends
            self.both_ns += max(min(end, end_ns) - max(start, start_ns), 0)
        self._kept[second].append((start_ns, end_ns))

    @property
    def measured(self) -> bool:
        """Whether there were spans of both kinds."""
        return bool(self.first_ns and self.second_ns)
