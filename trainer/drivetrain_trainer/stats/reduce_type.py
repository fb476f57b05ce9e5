"""How the values of a key become figures, and what those are called."""

from __future__ import annotations

from enum import StrEnum

COUNT_SUFFIX = "__count"
"""A scalar's count travels beside its mean under its key with this suffix."""


class ReduceType(StrEnum):
    """What an export makes of a key; over all batches and ranks."""

    AVG_MIN_MAX = "avg_min_max"
    """``key/avg``, ``key/min``, ``key/max`` of the valid elements; the default of `stat`."""
    AVG = "avg"
    """``key``: the mean, each valid element with the same weight."""
    SUM = "sum"
    """``key``: the sum of the valid elements; 0 where there are none."""
    MIN = "min"
    """``key``: the least valid element."""
    MAX = "max"
    """``key``: the greatest valid element."""
    SCALAR = "scalar"
    """``key``, the mean, and ``key__count``; what `scalar` and `record_timing` record."""

    def outputs(self, key: str) -> tuple[str, ...]:
        """The names under which an export gives the figures of `key`."""
        if self is ReduceType.AVG_MIN_MAX:
            return (f"{key}/avg", f"{key}/min", f"{key}/max")
        if self is ReduceType.SCALAR:
            return (key, f"{key}{COUNT_SUFFIX}")
        return (key,)


class StatsError(ValueError):
    """A record that contradicts itself or an earlier one; the message names the key."""


class ReduceTypeConflictError(StatsError):
    """One key with two reduce types, or two keys with one output name."""


class UnknownDenominatorError(StatsError):
    """A stat whose denominator was not recorded before it."""
