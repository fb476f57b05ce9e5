"""Expert loads as the backends take them, each by what it can hold.

One that holds tables (W&B, JSONL) gets ``moe_balance/expert_loads`` at every report; one that
takes a scalar an expert, but no tables, gets
``moe_balance/layer_<id>/expert_<id>/{tokens,load_percent}`` made of the same table; TensorBoard
and the terminal get neither, and ``max_over_ideal`` of each layer goes to all backends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivetrain_trainer.stats.moe_balance import COLUMNS, INDEX_COLUMNS, TABLE_NAME
from drivetrain_trainer.telemetry.record import Table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from drivetrain_trainer.stats.moe_balance import ExpertLoads


def expert_load_tables(loads: ExpertLoads) -> Mapping[str, Table]:
    """The table of a report, for `StatsLogger.commit` beside `ExpertLoads.scalars`."""
    if not loads.layers:
        return {}
    return {TABLE_NAME: Table(COLUMNS, loads.rows(), INDEX_COLUMNS)}
