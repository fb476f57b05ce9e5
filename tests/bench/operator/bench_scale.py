"""Thousands of running runs: memory, a cold start, and what an idle operator writes."""

from __future__ import annotations

import time
from typing import Final

from tests.bench.operator.common import held, looked_at, running
from tests.bench.operator.playground import Playground
from tests.bench.result import Result, against
from tests.support.kubernetes.calls import EVERY_WRITE
from tests.support.kubernetes.proxy import Proxy
from tests.support.operator_process import OperatorProcess

from drivetrain_api.status import Phase

FEW: Final = 1000
MANY: Final = 4000
RESIDENT_LIMITS: Final = {FEW: 150.0, MANY: 250.0}
"""MB by runs, each with its Job and pod."""
STARTS: Final = 3
START_LIMIT: Final = 10.0
"""Seconds."""

IDLE: Final = 500
IDLE_SECONDS: Final = 300
IDLE_RESYNC_SECONDS: Final = 100
"""More often than by default, so that looks at all runs lie within the time."""
_MEGABYTE: Final = 1e6


def scale() -> list[Result]:
    """Memory at a thousand and at four thousand runs, and starts over these."""
    with Playground() as ground:
        operator = ground.operator().start()
        resident = {}
        made = 0
        for count in (FEW, MANY):
            running(ground, operator, range(made, count))
            made = count
            resident[count] = operator.resident_bytes() / _MEGABYTE
        operator.stop()
        starts, fresh = [], []
        for _ in range(STARTS):
            started = ground.operator()
            starts.append(_cold_start(started))
            fresh.append(started.resident_bytes() / _MEGABYTE)
            started.stop()
    memory = [
        held(f"operator_resident_{count}", f"MB resident at {count} runs", [found], limit)
        for (count, limit), found in zip(RESIDENT_LIMITS.items(), resident.values(), strict=True)
    ]
    what = f"MB resident after a start over {MANY} runs"
    memory.append(held(f"operator_resident_{MANY}_start", what, fresh, RESIDENT_LIMITS[MANY]))
    what = f"seconds from the process' start until {MANY} runs were looked at"
    return [*memory, held("operator_cold_start", what, starts, START_LIMIT)]


def idle() -> list[Result]:
    """Writes of an operator whose runs run and report nothing; its Lease is not counted."""
    with Playground() as ground, Proxy(ground.plane) as proxy:
        first = ground.operator().start()
        running(ground, first, range(IDLE))
        first.stop()
        kubeconfig = proxy.kubeconfig(ground.plane.folder / "through-proxy")
        resync = ("--resync-seconds", str(IDLE_RESYNC_SECONDS))
        second = ground.operator(kubeconfig, *resync).start()
        looked_at(second)
        proxy.forget()
        time.sleep(IDLE_SECONDS)  # nothing is to happen: there is nothing to wait for
        written = proxy.calls(EVERY_WRITE)
        assert second.metric("drivetrain_runs", phase=Phase.RUNNING) == IDLE
    writes = [call for call in written if call.resource != "leases"]
    assert len(writes) < len(written), "the Lease is renewed: the proxy is passed by"
    for call in writes[:10]:
        print(f"written while idle: {call.verb} {call.resource} {call.namespace}/{call.name}")
    what = f"API writes of {IDLE} running runs in {IDLE_SECONDS} s without progress, Lease apart"
    return [
        against(
            "operator_idle_writes",
            what,
            [float(len(writes))],
            [1.0],
            reference_name="a single write",
            target=0.0,
            better="lower",
        )
    ]


def _cold_start(operator: OperatorProcess) -> float:
    began = time.perf_counter()
    operator.start()
    looked_at(operator)
    return time.perf_counter() - began
