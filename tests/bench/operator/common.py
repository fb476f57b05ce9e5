"""What the benches of the operator share."""

from __future__ import annotations

import asyncio
from typing import Final

from tests.bench.operator.load import Load
from tests.bench.operator.playground import Playground
from tests.bench.result import Result, against
from tests.support.kubernetes.api import wait_for
from tests.support.operator_process import OperatorProcess

from drivetrain_api.status import Phase

_PATIENCE_S: Final = 1800.0
_LOOK_S: Final = 0.1


def held(name: str, metric: str, figures: list[float], limit: float) -> Result:
    return against(
        name, metric, figures, [limit], reference_name="limit", target=1.0, better="lower"
    )


def running(ground: Playground, operator: OperatorProcess, numbers: range) -> None:
    """Create runs and wait until all that there are run, and nothing is left to do."""

    async def create() -> None:
        async with Load.on(ground.plane) as load:
            await load.create_runs(numbers)

    asyncio.run(create())
    wait_running(operator, numbers.stop)


def wait_running(operator: OperatorProcess, count: int) -> None:
    """Wait until so many runs run, and nothing is left to do."""

    def all_run() -> bool:
        operator.process.check()
        return operator.metric("drivetrain_runs", phase=Phase.RUNNING) == count

    wait_for(all_run, f"{count} runs that run", _PATIENCE_S, every_s=1.0)
    looked_at(operator)


def looked_at(operator: OperatorProcess) -> None:
    """Wait until no run waits for a worker."""

    def quiet() -> bool:
        waiting = ("drivetrain_queue_depth", "drivetrain_work_oldest_seconds")
        return all(operator.metric(name) == 0 for name in waiting)

    wait_for(quiet, "idle operator", _PATIENCE_S, every_s=_LOOK_S)
