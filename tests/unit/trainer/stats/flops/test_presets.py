"""Presets against figures worked out by hand from the published configurations."""

from __future__ import annotations

from typing import Any

import pytest

from drivetrain_trainer.stats.flops import FlopsConfigError, flops_estimator

QWEN3_30B_A3B: dict[str, Any] = {
    "model_type": "qwen3_moe",
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "num_hidden_layers": 48,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 768,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "vocab_size": 151936,
}

QWEN3_5_35B_A3B_TEXT: dict[str, Any] = {
    "model_type": "qwen3_5_moe_text",
    "hidden_size": 2048,
    "num_hidden_layers": 40,
    "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 10,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "attn_output_gate": True,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "num_experts": 256,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512,
    "mtp_num_hidden_layers": 1,
    "vocab_size": 248320,
}


def estimate(config: dict[str, Any], length: int) -> float:
    estimator = flops_estimator(config)
    assert estimator is not None
    return estimator(length)


@pytest.mark.parametrize("length", [1, 7, 4096])
def test_qwen3_30b_a3b(length: int) -> None:
    # Multiply-adds a token and layer: q 2048 x 4096, k and v 2048 x 512 each, o 4096 x 2048
    #   = 8,388,608 + 2 * 1,048,576 + 8,388,608                        = 18,874,368
    # router 2048 x 128 = 262,144; 8 experts of 3 * 2048 * 768 each     = 37,748,736
    # 48 layers of the sum, 56,885,248                                  = 2,730,491,904
    # head 2048 x 151,936                                               = 311,164,928
    # together 3,041,656,832: the "A3B" without the embedding. Training: 6 FLOPs each.
    # Causal attention: 3 * 48 * 2 * 32 * 128 * L * (L + 1) = 1,179,648 L (L + 1).
    by_hand = 6 * 3_041_656_832 * length + 1_179_648 * length * (length + 1)
    assert estimate(QWEN3_30B_A3B, length) == by_hand
    assert estimate(QWEN3_30B_A3B, 1) == 18_252_300_288


@pytest.mark.parametrize("length", [1, 7, 4096])
def test_qwen3_5_35b_a3b(length: int) -> None:
    # Full attention: q with its output gate 2048 x 8192 = 16,777,216; k and v 2048 x 512 each
    #   = 2,097,152; o 4096 x 2048 = 8,388,608                          = 27,262,976
    # GatedDeltaNet: keys 16 * 128 = 2048, values 32 * 128 = 4096; q, k, v 2048 x 8192
    #   = 16,777,216; z 2048 x 4096 = 8,388,608; a and b 2 * 2048 * 32 = 131,072;
    #   convolution 8192 * 4 = 32,768; state 3 * 32 * 128 * 128 = 1,572,864;
    #   out 4096 x 2048 = 8,388,608                                     = 35,291,136
    # Experts: router 2048 x 256 = 524,288; 8 * 3 * 2048 * 512 = 25,165,824; the shared one
    #   3 * 2048 * 512 = 3,145,728 and its gate 2048                    = 28,837,888
    # head 2048 x 248,320                                               = 508,559,360
    # 10 * 27,262,976 + 30 * 35,291,136 + 40 * 28,837,888 + head        = 2,993,438,720
    # Causal attention: 3 * 10 * 2 * 16 * 256 * L * (L + 1) = 245,760 L (L + 1).
    by_hand = 6 * 2_993_438_720 * length + 245_760 * length * (length + 1)
    assert estimate(QWEN3_5_35B_A3B_TEXT, length) == by_hand


def test_a_multimodal_configuration_is_read_by_its_text_part() -> None:
    whole = {
        "model_type": "qwen3_5_moe",
        "hidden_size": 1,
        "text_config": QWEN3_5_35B_A3B_TEXT,
        "vision_config": {"hidden_size": 1152},
    }
    assert estimate(whole, 100) == estimate(QWEN3_5_35B_A3B_TEXT, 100)


def test_layers_follow_the_interval_where_they_are_not_listed() -> None:
    config = QWEN3_5_35B_A3B_TEXT | {"full_attention_interval": 4}
    del config["layer_types"]
    assert estimate(config, 100) == estimate(QWEN3_5_35B_A3B_TEXT, 100)


def test_linear_attention_grows_with_the_length_alone() -> None:
    config = QWEN3_5_35B_A3B_TEXT | {
        "num_hidden_layers": 2,
        "layer_types": ["linear_attention"] * 2,
    }
    assert estimate(config, 1000) == 1000 * estimate(config, 1)


def test_dense_layers_of_a_mixture_model() -> None:
    # 4 layers, every second one sparse, of those layer 1 dense by name: only layer 3 is sparse.
    tiny = {
        "model_type": "qwen3_moe",
        "hidden_size": 4,
        "intermediate_size": 5,
        "num_hidden_layers": 4,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 3,
        "num_experts": 6,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 7,
        "decoder_sparse_step": 2,
        "mlp_only_layers": [1],
        "vocab_size": 10,
    }
    # Projections 4 * 6 + 2 * 4 * 3 + 6 * 4 = 72 a layer; dense 3 * 4 * 5 = 60; sparse
    # 4 * 6 + 2 * 3 * 4 * 7 = 192; head 40: 4 * 72 + 3 * 60 + 192 + 40 = 700.
    # Attention at L = 2: 2 * 2 * 3 * 2 * 3 = 72 a layer, 288.
    assert estimate(tiny, 2) == 3 * (2 * 700 * 2 + 288)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_size": None}, "hidden_size is missing"),
        ({"num_experts_per_tok": 0}, "num_experts_per_tok is 0, must be int >= 1"),
        ({"vocab_size": True}, "vocab_size is True"),
        ({"moe_intermediate_size": "768"}, "moe_intermediate_size is '768'"),
        ({"mlp_only_layers": 3}, "mlp_only_layers is 3"),
    ],
)
def test_a_figure_that_is_missing_or_wrong_is_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(FlopsConfigError, match=message):
        flops_estimator(QWEN3_30B_A3B | change)


@pytest.mark.parametrize(
    ("types", "message"),
    [
        (["full_attention"], "must name 40 layers"),
        (["sliding_attention"] * 40, "holds sliding_attention"),
    ],
)
def test_layers_of_no_known_type_are_refused(types: list[str], message: str) -> None:
    with pytest.raises(FlopsConfigError, match=message):
        flops_estimator(QWEN3_5_35B_A3B_TEXT | {"layer_types": types})


def test_a_negative_length_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 0"):
        estimate(QWEN3_30B_A3B, -1)
