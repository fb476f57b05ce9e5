"""What each kind of backend is given of the experts' loads."""

from __future__ import annotations

import pytest
from memory_backend import MemoryBackend

from drivetrain_api.algorithms import AlgoName
from drivetrain_trainer.stats.moe_balance import ExpertLoads, LayerLoad
from drivetrain_trainer.telemetry.backends.base import BackendCapabilities
from drivetrain_trainer.telemetry.expert_loads import expert_load_tables
from drivetrain_trainer.telemetry.logger import TrainingLogger
from drivetrain_trainer.telemetry.stats_logger import StatsLogger

LOADS = ExpertLoads((LayerLoad(0, (3, 1)), LayerLoad(1, (0, 0))))


LAYERS = {
    "moe_balance/layer_0/max_over_ideal": 1.5,  # 3 of 4, over an even 2
    "moe_balance/layer_1/max_over_ideal": 0.0,
}
EXPERTS = {
    "moe_balance/layer_0/expert_0/tokens": 3.0,
    "moe_balance/layer_0/expert_0/load_percent": 75.0,
    "moe_balance/layer_0/expert_1/tokens": 1.0,
    "moe_balance/layer_0/expert_1/load_percent": 25.0,
    "moe_balance/layer_1/expert_0/tokens": 0.0,
    "moe_balance/layer_1/expert_0/load_percent": 0.0,
    "moe_balance/layer_1/expert_1/tokens": 0.0,
    "moe_balance/layer_1/expert_1/load_percent": 0.0,
}


@pytest.mark.parametrize(
    ("capabilities", "values", "has_table"),
    [
        pytest.param(BackendCapabilities(), LAYERS, False, id="as TensorBoard"),
        pytest.param(BackendCapabilities(tables=True), LAYERS, True, id="as Weights & Biases"),
        pytest.param(
            BackendCapabilities(scalar_per_expert=True), LAYERS | EXPERTS, False, id="as SwanLab"
        ),
    ],
)
def test_each_backend_gets_what_it_can_hold(
    capabilities: BackendCapabilities, values: dict[str, float], has_table: bool
) -> None:
    backend = MemoryBackend("kept", capabilities)
    with TrainingLogger([backend], algo=AlgoName.SAC) as logger:
        StatsLogger(logger).commit(0, 5, 500, LOADS.scalars(), tables=expert_load_tables(LOADS))
    (record,) = backend.records
    assert record.env_steps == 500
    assert {tag: v for tag, v in record.values.items() if tag.startswith("moe_balance/")} == values
    assert set(record.tables) == ({"moe_balance/expert_loads"} if has_table else set())
    if has_table:
        table = record.tables["moe_balance/expert_loads"]
        assert table.columns == ("layer", "expert", "tokens", "load_percent")
        assert table.rows == ((0, 0, 3, 75.0), (0, 1, 1, 25.0), (1, 0, 0, 0.0), (1, 1, 0, 0.0))


def test_a_model_without_routers_has_no_table() -> None:
    assert expert_load_tables(ExpertLoads(())) == {}
