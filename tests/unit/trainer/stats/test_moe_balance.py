from __future__ import annotations

import pytest
import torch
from tests.unit.trainer.stats import moe_model as moe
from torch import nn

from drivetrain_trainer.stats.moe_balance import (
    ExpertLoads,
    LayerLoad,
    MoeBalance,
    MoeBalanceError,
    counts_of_indices,
    counts_of_map,
)


def counts_of(loads: ExpertLoads) -> list[list[int]]:
    return [list(load.counts) for load in loads.layers]


def test_a_layers_load_by_hand() -> None:
    # 3 + 1 + 0 + 4 = 8 assignments, ideal 2, largest 4.
    load = LayerLoad(5, (3, 1, 0, 4))
    assert load.max_over_ideal == 2.0
    assert list(load.rows()) == [(5, 0, 3, 37.5), (5, 1, 1, 12.5), (5, 2, 0, 0.0), (5, 3, 4, 50.0)]
    assert LayerLoad(0, (2, 2, 2)).max_over_ideal == 1.0


def test_a_layer_without_assignments_is_zero() -> None:
    load = LayerLoad(0, (0, 0))
    assert load.max_over_ideal == 0.0
    assert list(load.rows()) == [(0, 0, 0, 0.0), (0, 1, 0, 0.0)]


def test_percents_of_a_layer_add_up() -> None:
    shares = [row[3] for row in LayerLoad(0, (1, 1, 1, 4, 0, 2)).rows()]
    assert sum(shares) == pytest.approx(100.0)


def test_microbatches_add_up_before_they_are_set_against_each_other() -> None:
    torch.manual_seed(0)
    model = moe.MoeModel()
    balance = MoeBalance()
    assert balance.attach_all(model, {moe.TopKRouter: moe.supported}) == 2
    expected = [[0] * 4, [0] * 4]
    for _ in range(3):
        inputs = torch.randn(5, 4)
        for layer, counts in enumerate(moe.chosen_by_hand(model, inputs)):
            expected[layer] = [a + b for a, b in zip(expected[layer], counts, strict=True)]
        with balance.training_forward():
            output = model(inputs)
        output.sum().backward()
    loads = balance.export()
    assert counts_of(loads) == expected
    assert [sum(counts) for counts in expected] == [30, 30]  # 3 * 5 positions, 2 experts each
    assert loads.scalars() == {
        f"moe_balance/layer_{layer}/max_over_ideal": pytest.approx(max(counts) / 7.5)
        for layer, counts in enumerate(expected)
    }
    assert len(loads.rows()) == 8
    assert counts_of(balance.export()) == [[0] * 4, [0] * 4]


@pytest.mark.parametrize("recompute", ["none", "reentrant", "without reentry"])
def test_only_the_original_training_forward_counts(recompute: str) -> None:
    torch.manual_seed(0)
    model = moe.MoeModel(recompute=recompute)
    balance = MoeBalance()
    balance.attach_all(model, {moe.TopKRouter: moe.supported})
    inputs = torch.randn(6, 4, requires_grad=True)
    expected = moe.chosen_by_hand(model, inputs)
    with balance.training_forward():
        output = model(inputs)
    output.sum().backward()
    assert counts_of(balance.export()) == expected

    model.recompute = "none"
    model(inputs)  # not announced as a training forward
    with torch.no_grad(), balance.training_forward():
        model(inputs)
    with torch.inference_mode(), balance.training_forward():
        model(inputs)
    model.eval()
    with balance.training_forward():
        model(inputs)
    assert counts_of(balance.export()) == [[0] * 4, [0] * 4]


def test_pipeline_stages_go_on_counting_and_some_routers_are_left_out() -> None:
    first, second = moe.MoeModel(layers=2), moe.MoeModel(layers=1)
    second.mtp = moe.MoeLayer(4, 4, 2)
    balance = MoeBalance()
    found = balance.attach_all(first, {moe.TopKRouter: moe.supported})
    balance.attach_all(second, {moe.TopKRouter: moe.supported}, first_layer=found, exclude=("mtp",))
    assert [load.layer for load in balance.export().layers] == [0, 1, 2]


def test_unsupported_routers_give_no_metrics() -> None:
    balance = MoeBalance()
    assert balance.attach_all(moe.MoeModel(), {nn.Bilinear: moe.supported}) == 0
    loads = balance.export()
    assert (loads.scalars(), loads.rows()) == ({}, ())


def test_detached_routers_are_no_longer_counted() -> None:
    model = moe.MoeModel(layers=1)
    balance = MoeBalance()
    balance.attach_all(model, {moe.TopKRouter: moe.supported})
    balance.detach()
    with balance.training_forward():
        model(torch.randn(2, 4))
    assert counts_of(balance.export()) == [[0] * 4]


def test_counts_can_be_given_by_hand() -> None:
    balance = MoeBalance()
    balance.declare(3, experts=2)
    counts = torch.tensor([1, 4], dtype=torch.int32)
    balance.add(3, counts)
    balance.add(3, counts)
    counts.zero_()  # its owner goes on with it
    assert counts_of(balance.export()) == [[2, 8]]


def test_both_forms_of_a_routers_choice() -> None:
    indices = torch.tensor([[0, 2], [2, 3]])
    assert counts_of_indices(indices, 4).tolist() == [1, 0, 2, 1]
    # The second position's choice of expert 2 was dropped by a capacity of one.
    executed = torch.tensor([[1, 0, 1, 0], [0, 0, 0, 1]], dtype=torch.bool)
    assert counts_of_map(executed).tolist() == [1, 0, 1, 1]


def test_contradictions_are_named() -> None:
    balance = MoeBalance()
    model = moe.MoeModel()
    balance.attach_all(model, {moe.TopKRouter: moe.supported})
    with pytest.raises(MoeBalanceError, match="layer 0 has a router already"):
        balance.attach_all(model, {moe.TopKRouter: moe.supported})
    with pytest.raises(MoeBalanceError, match="layer -1 with 4 experts"):
        balance.declare(-1, experts=4)
    with pytest.raises(MoeBalanceError, match=r"counts of layer 1 are .*, must be integers \(4,\)"):
        balance.add(1, torch.zeros(3, dtype=torch.int64))
    with pytest.raises(MoeBalanceError, match=r"counts of layer 1 are torch\.float32"):
        balance.add(1, torch.zeros(4))
