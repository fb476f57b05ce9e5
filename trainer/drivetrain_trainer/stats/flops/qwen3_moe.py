"""Qwen3 mixture-of-experts models, such as Qwen3-30B-A3B."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from drivetrain_trainer.stats.flops.config import FlopsConfigError, natural, positive, text_config
from drivetrain_trainer.stats.flops.transformer import (
    attention_projections,
    gated_mlp,
    training_flops,
)

if TYPE_CHECKING:
    from collections.abc import Callable


def qwen3_moe(config: Any) -> Callable[[int], float]:  # noqa: ANN401 - a foreign object
    """Estimator of a ``qwen3_moe`` configuration.

    Counted: attention with its projections, the router and the experts that it chooses, dense
    layers where the configuration has some, the language-model head.

    Raises:
        FlopsConfigError: A figure is missing.
    """
    text = text_config(config)
    hidden = positive(text, "hidden_size")
    layers = positive(text, "num_hidden_layers")
    heads = positive(text, "num_attention_heads")
    head_dim = positive(text, "head_dim", hidden // heads)
    projections = attention_projections(
        hidden,
        heads=heads,
        key_value_heads=positive(text, "num_key_value_heads", heads),
        head_dim=head_dim,
    )
    sparse = sum(_is_sparse(text, layer) for layer in range(layers))
    feed_forward = sparse * _experts(text, hidden) if sparse else 0
    if sparse < layers:
        feed_forward += (layers - sparse) * gated_mlp(hidden, positive(text, "intermediate_size"))
    head = hidden * positive(text, "vocab_size")
    return training_flops(
        layers * projections + feed_forward + head, attention_width=layers * heads * head_dim
    )


def _experts(text: object, hidden: int) -> int:
    chosen = positive(text, "num_experts_per_tok")
    router = hidden * positive(text, "num_experts")
    return router + chosen * gated_mlp(hidden, positive(text, "moe_intermediate_size"))


def _is_sparse(text: object, layer: int) -> bool:
    dense = getattr(text, "mlp_only_layers", None) or ()
    if not isinstance(dense, list | tuple):
        raise FlopsConfigError(f"model configuration: mlp_only_layers is {dense!r}, must be a list")
    step = positive(text, "decoder_sparse_step", 1)
    return layer not in dense and natural(text, "num_experts", 0) > 0 and (layer + 1) % step == 0
