"""Qwen3.5 mixture-of-experts models, such as Qwen3.5-35B-A3B: hybrid attention."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from drivetrain_trainer.stats.flops.config import FlopsConfigError, natural, positive, text_config
from drivetrain_trainer.stats.flops.transformer import (
    attention_projections,
    gated_mlp,
    training_flops,
)

if TYPE_CHECKING:
    from collections.abc import Callable

_FULL: Final = "full_attention"
_LINEAR: Final = "linear_attention"
_STATE_PRODUCTS: Final = 3
"""Of a delta rule's recurrence a position: the prediction, the update, the readout."""


def qwen3_5_moe(config: Any) -> Callable[[int], float]:  # noqa: ANN401 - a foreign object
    """Estimator of a ``qwen3_5_moe`` configuration, or of its text part alone.

    Counted: full and linear attention by layer, the router, the experts that it chooses, the
    shared expert and its gate, the language-model head. Not the vision encoder, nor layers of
    multi-token prediction.

    Raises:
        FlopsConfigError: A figure is missing, or a layer is of no known type.
    """
    text = text_config(config)
    hidden = positive(text, "hidden_size")
    heads = positive(text, "num_attention_heads")
    head_dim = positive(text, "head_dim", 256)
    types = _layer_types(text)
    full = types.count(_FULL)
    projections = attention_projections(
        hidden,
        heads=heads,
        key_value_heads=positive(text, "num_key_value_heads"),
        head_dim=head_dim,
        query_factor=2 if getattr(text, "attn_output_gate", True) else 1,
    )
    per_position = full * projections + len(types) * _experts(text, hidden)
    if full < len(types):
        per_position += (len(types) - full) * _gated_delta_net(text, hidden)
    per_position += hidden * positive(text, "vocab_size")
    return training_flops(per_position, attention_width=full * heads * head_dim)


def _experts(text: object, hidden: int) -> int:
    chosen = positive(text, "num_experts_per_tok")
    router = hidden * positive(text, "num_experts")
    routed = chosen * gated_mlp(hidden, positive(text, "moe_intermediate_size"))
    shared = natural(text, "shared_expert_intermediate_size", 0)
    gate = hidden if shared else 0
    return router + routed + gated_mlp(hidden, shared) + gate


def _gated_delta_net(text: object, hidden: int) -> int:
    """Multiply-adds a position: projections, depthwise convolution, the state's recurrence.

    The recurrence is counted as its mathematics states it, per value head three products of a
    key and a value dimension, whatever a chunked kernel does beyond that: linear in the length.
    """
    key_heads = positive(text, "linear_num_key_heads")
    value_heads = positive(text, "linear_num_value_heads")
    key_dim = positive(text, "linear_key_head_dim")
    value_dim = positive(text, "linear_value_head_dim")
    keys, values = key_heads * key_dim, value_heads * value_dim
    mixed = 2 * keys + values
    inputs = hidden * (mixed + values + 2 * value_heads)
    convolution = mixed * positive(text, "linear_conv_kernel_dim")
    state = _STATE_PRODUCTS * value_heads * key_dim * value_dim
    return inputs + convolution + state + values * hidden


def _layer_types(text: object) -> list[str]:
    layers = positive(text, "num_hidden_layers")
    types = getattr(text, "layer_types", None)
    if types is None:
        interval = positive(text, "full_attention_interval", 4)
        return [_LINEAR if (layer + 1) % interval else _FULL for layer in range(layers)]
    if not isinstance(types, list | tuple) or len(types) != layers:
        raise FlopsConfigError(f"model configuration: layer_types must name {layers} layers")
    unknown = sorted({str(kind) for kind in types} - {_FULL, _LINEAR})
    if unknown:
        raise FlopsConfigError(
            f"model configuration: layer_types holds {', '.join(unknown)}; "
            f"known are {_FULL} and {_LINEAR}"
        )
    return list(types)
