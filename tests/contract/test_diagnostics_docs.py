"""The Vega specifications and Python examples that the diagnostics' pages offer for pasting."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.unit.trainer.stats.moe_model import MoeModel, TopKRouter

from drivetrain_trainer.stats.flops import registry
from drivetrain_trainer.stats.moe_balance import COLUMNS

DOCS = Path(__file__).parents[2] / "docs"
MOE = (DOCS / "guide" / "moe.md").read_text()
REFERENCE = (DOCS / "reference" / "diagnostics.md").read_text()


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


SPECS = [json.loads(block) for block in blocks(MOE, "json")]


def encodings(spec: dict[str, Any]) -> list[dict[str, Any]]:
    return [part["encoding"] for part in spec.get("layer", [spec])]


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec["description"])
def test_specifications_read_the_panels_data_by_columns_that_are_there(
    spec: dict[str, Any],
) -> None:
    assert spec["$schema"] == "https://vega.github.io/schema/vega-lite/v5.json"
    assert spec["data"] == {"name": "wandb"}
    assert all("mark" in part for part in spec.get("layer", [spec]))
    placeholders = set(re.findall(r"\$\{field:(\w+)\}", json.dumps(spec)))
    assert placeholders
    assert placeholders <= {*COLUMNS, "_step"}
    made = set(re.findall(r'"as": "(\w+)"', json.dumps(spec)))
    made |= {name for step in spec.get("transform", []) for name in step.get("fold", ())}
    for names in re.findall(r'"as": \[([^\]]*)\]', json.dumps(spec)):
        made |= set(re.findall(r"\w+", names))
    for encoding in encodings(spec):
        for channel in encoding.values():
            for one in channel if isinstance(channel, list) else [channel]:
                field = one["field"]
                assert field in made or re.fullmatch(r"\$\{field:\w+\}", field), field


def test_there_is_a_panel_for_every_question() -> None:
    assert len(SPECS) == 5
    text = json.dumps(SPECS)
    assert '"domainMid": 1' in text
    assert "100 / datum.experts" in text


def test_the_example_of_counting_counts() -> None:
    names: dict[str, Any] = {}
    exec(blocks(MOE, "python")[0], names)
    torch.manual_seed(0)
    model = MoeModel()
    balance = names["attach"](model, TopKRouter, None)
    names["train_microbatch"](model, balance, torch.randn(6, 4), torch.sum)
    committed: list[tuple[Any, ...]] = []

    def commit(*arguments: Any, tables: Any) -> None:
        committed.append((*arguments, tables))

    names["report"](balance, SimpleNamespace(commit=commit), 7, 700)
    ((epoch, iteration, env_steps, scalars, tables),) = committed
    assert (epoch, iteration, env_steps) == (0, 7, 700)
    assert set(scalars) == {f"moe_balance/layer_{layer}/max_over_ideal" for layer in (0, 1)}
    table = tables["moe_balance/expert_loads"]
    assert table.columns == ("layer", "expert", "tokens", "load_percent")
    assert sum(row[2] for row in table.rows) == 2 * 6 * 2
    expanded = dict(table.scalars("moe_balance/expert_loads"))
    assert "moe_balance/layer_1/expert_3/load_percent" in expanded


def test_the_example_of_merging_keeps_the_step(tmp_path: Path) -> None:
    names: dict[str, Any] = {}
    exec(blocks(MOE, "python")[1], names)

    class Run:
        def scan_history(self, keys: list[str]) -> list[dict[str, Any]]:
            return [{"_step": step, keys[1]: {"path": f"{step}.json"}} for step in (10, 20)]

        def file(self, path: str) -> Any:
            stored = tmp_path / path
            stored.write_text(json.dumps({"data": [[0, 0, 5, 100.0], [1, 0, 5, 100.0]]}))
            return SimpleNamespace(
                download=lambda root, replace: SimpleNamespace(name=str(stored))  # noqa: ARG005 - as wandb calls it
            )

    assert names["merged_loads"](Run(), layers=[1]) == [(10, 1, 0, 5, 100.0), (20, 1, 0, 5, 100.0)]


def test_the_example_of_an_estimator_estimates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_FACTORIES", dict(registry._FACTORIES))
    names: dict[str, Any] = {}
    exec(blocks(REFERENCE, "python")[0], names)
    figures = {
        "model_type": "my_model_type",
        "num_attention_heads": 1,
        "head_dim": 2,
        "num_hidden_layers": 3,
        "active_parameters": 10,
    }
    (tmp_path / "config.json").write_text(json.dumps(figures))
    # 60 * L + 36 * L * (L + 1) for L = 1 and 2: 132 + 336.
    assert names["flops_of_batch"](tmp_path, [1, 2]) == 468.0
