"""Seeds of the streams of a run, derived from one by name so that none repeats another."""

from __future__ import annotations

import hashlib


def derive_seed(seed: int, *stream: str | int) -> int:
    """A 32-bit seed for a named stream; the same arguments give the same seed anywhere.

    Args:
        seed: The seed that the user set.
        stream: Names and indices, such as ``"collector", rank``.
    """
    text = "/".join([str(seed), *(str(part) for part in stream)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "little")
