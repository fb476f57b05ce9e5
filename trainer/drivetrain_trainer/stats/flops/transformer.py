"""Multiply-adds that the presets have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

FLOPS_PER_MULTIPLY_ADD: Final = 2
TRAINING_PER_FORWARD: Final = 3
"""Forward, and a backward pass of about twice its work."""
GATED_PROJECTIONS: Final = 3
"""Matrices of a gated feed-forward layer: gate, up, down."""


def gated_mlp(hidden: int, intermediate: int) -> int:
    """Multiply-adds a position of a gated feed-forward layer."""
    return GATED_PROJECTIONS * hidden * intermediate


def attention_projections(
    hidden: int, *, heads: int, key_value_heads: int, head_dim: int, query_factor: int = 1
) -> int:
    """Multiply-adds a position of query, key, value and output projections.

    Args:
        hidden: Columns of the residual stream.
        heads: Query heads.
        key_value_heads: Heads of keys and of values.
        head_dim: Columns of a head.
        query_factor: 2 where the query projection also makes an output gate.
    """
    query = query_factor * hidden * heads * head_dim
    return query + 2 * hidden * key_value_heads * head_dim + heads * head_dim * hidden


def training_flops(per_position: int, *, attention_width: int) -> Callable[[int], float]:
    """An estimator.

    Causal attention is, forward and a layer, ``2 * heads * head_dim * L * (L + 1)``: scores and
    weighted values, a multiply-add a pair of positions each, over L (L + 1) / 2 pairs.

    Args:
        per_position: Multiply-adds a position, of all layers and the head, linear in L.
        attention_width: Query heads times head columns, summed over the full-attention layers.
    """

    def estimate(length: int) -> float:
        if length < 0:
            raise ValueError(f"sequence of {length} positions: at least 0")
        linear = FLOPS_PER_MULTIPLY_ADD * per_position * length
        attention = 2 * attention_width * length * (length + 1)
        return float(TRAINING_PER_FORWARD * (linear + attention))

    return estimate
