from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from drivetrain_trainer.stats.flops import (
    FlopsConfigError,
    batch_flops,
    flops_estimator,
    load_model_config,
    register_flops_estimator,
    registry,
)


@pytest.fixture(autouse=True)
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_FACTORIES", dict(registry._FACTORIES))


def my_model_factory(config: Any) -> Callable[[int], float]:
    width = config.num_attention_heads * config.head_dim * config.num_hidden_layers

    def total(length: int) -> float:
        return float(6 * config.active_parameters * length + 6 * width * length * (length + 1))

    return total


FIGURES = {
    "model_type": "my_model_type",
    "active_parameters": 100,
    "num_attention_heads": 2,
    "head_dim": 3,
    "num_hidden_layers": 4,
}


@pytest.mark.parametrize("config", [FIGURES, SimpleNamespace(**FIGURES)])
def test_a_factory_reads_attributes_of_mappings_and_objects(config: object) -> None:
    register_flops_estimator("my_model_type", my_model_factory)
    estimator = flops_estimator(config)
    assert estimator is not None
    # 6 * 100 * 10 + 6 * 24 * 10 * 11
    assert estimator(10) == 6000 + 15840


def test_a_known_type_is_replaced_and_an_unknown_one_has_no_estimator() -> None:
    register_flops_estimator("qwen3_moe", lambda _: lambda length: 2.0 * length)
    estimator = flops_estimator({"model_type": "qwen3_moe"})
    assert estimator is not None
    assert estimator(3) == 6.0
    assert flops_estimator({"model_type": "llama"}) is None
    assert flops_estimator({}) is None
    with pytest.raises(ValueError, match="empty"):
        register_flops_estimator("", my_model_factory)


def test_the_type_of_the_text_part_serves_where_the_whole_has_none_registered() -> None:
    register_flops_estimator("inner", lambda _: lambda _length: 1.0)
    estimator = flops_estimator({"model_type": "outer", "text_config": {"model_type": "inner"}})
    assert estimator is not None


def test_a_packed_batch_is_the_sum_over_its_sequences() -> None:
    def square(length: int) -> float:
        return float(length * length)

    # Sequences of 3 and 4: 9 + 16, not 7 * 7.
    assert batch_flops(square, [3, 4]) == 25.0
    assert batch_flops(square, []) == 0.0


def test_a_local_directory_works_whatever_its_name(tmp_path: Path) -> None:
    register_flops_estimator("my_model_type", my_model_factory)
    directory = tmp_path / "checkpoint-17"
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps({"text_config": FIGURES}))
    loaded = load_model_config(directory)
    assert loaded.text_config.head_dim == 3
    assert flops_estimator(loaded) is not None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read: No such file"),
        (b"{", "not JSON"),
        (b"\xff\xfe{}", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[1]", "a JSON list, must be an object"),
        (b" " * (4 * 2**20 + 1), "larger than 4194304 bytes"),
    ],
)
def test_a_file_that_is_no_configuration_is_named(
    tmp_path: Path, content: bytes | None, message: str
) -> None:
    if content is not None:
        (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(FlopsConfigError, match=message) as refused:
        load_model_config(tmp_path)
    assert str(tmp_path / "config.json") in str(refused.value)
