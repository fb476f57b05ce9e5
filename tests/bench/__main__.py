"""Run benchmarks by name, or all; a missed target, an absent peer or program fails."""

from __future__ import annotations

import sys
from collections.abc import Callable

from tests.bench import (
    bench_dp_scaling,
    bench_extract,
    bench_hand_over,
    bench_overlap,
    bench_sac_end_to_end,
    bench_sac_update,
    bench_start,
    bench_stats,
    bench_stepping,
    bench_stop,
    bench_telemetry,
    bench_trace,
)
from tests.bench.operator import bench_load, bench_scale
from tests.bench.peer import PeerUnavailableError
from tests.bench.result import HEAD, Result
from tests.support.kubernetes.programs import MissingProgramsError

BENCHMARKS: dict[str, Callable[[], list[Result]]] = {
    "stepping": bench_stepping.measure,
    "sac_update": bench_sac_update.measure,
    "sac_end_to_end": bench_sac_end_to_end.measure,
    "overlap": bench_overlap.measure,
    "overlap_grid": bench_overlap.grid,
    "inference": bench_hand_over.inference,
    "ingress": bench_hand_over.ingress,
    "dp_scaling": bench_dp_scaling.measure,
    "start": bench_start.measure,
    "stop": bench_stop.measure,
    "telemetry": bench_telemetry.measure,
    "trace": bench_trace.measure,
    "extract": bench_extract.measure,
    "stats": bench_stats.measure,
    "operator_paced": bench_load.paced,
    "operator_burst": bench_load.burst,
    "operator_scale": bench_scale.scale,
    "operator_idle": bench_scale.idle,
}


def main(names: list[str]) -> int:
    """Run, write a file a figure, print the table; 1 where a target was missed."""
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        print(f"no benchmark {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
        return 2
    failed = False
    print(HEAD)
    for name in names or BENCHMARKS:
        try:
            results = BENCHMARKS[name]()
        except (PeerUnavailableError, MissingProgramsError) as error:
            print(f"| {name} | not measured: {error} |")
            failed = True
            continue
        for result in results:
            result.write()
            print(result.row(), flush=True)
            failed = failed or not result.met
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
