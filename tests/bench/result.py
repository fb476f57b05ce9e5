"""What a benchmark reports, and where."""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

FOLDER = Path("build/bench")


def machine() -> str:
    """The processor, as far as it says, the CPUs that we may use, and how busy they were."""
    model = platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    load = f"{os.getloadavg()[2]:.1f} in 15 minutes"
    return f"{model}, {len(os.sched_getaffinity(0))} CPUs, load average {load}"


@dataclass(frozen=True)
class Result:
    """One figure: ours and a reference, measured in turn in one session."""

    name: str
    metric: str
    ours: float
    reference: float
    reference_name: str
    ratio: float
    """ours / reference."""
    target: float
    """Least ratio where `better` is higher, greatest where it is lower."""
    better: Literal["higher", "lower"]
    runs: int
    spread: tuple[float, float]
    """Least and greatest of ours over the runs."""
    machine: str = field(default_factory=machine)

    @property
    def met(self) -> bool:
        """Whether the target is met."""
        return self.ratio >= self.target if self.better == "higher" else self.ratio <= self.target

    def write(self) -> None:
        """Write ``build/bench/<name>.json``."""
        FOLDER.mkdir(parents=True, exist_ok=True)
        (FOLDER / f"{self.name}.json").write_text(json.dumps(asdict(self), indent=2) + "\n")

    def row(self) -> str:
        """A row of the table that is printed."""
        sign = "≥" if self.better == "higher" else "≤"
        verdict = "met" if self.met else "MISSED"
        return (
            f"| {self.name} | {self.metric} | {self.ours:.4g} | {self.reference:.4g} "
            f"({self.reference_name}) | {self.ratio:.3g} | {sign} {self.target:.3g} | {verdict} | "
            f"{self.spread[0]:.4g} to {self.spread[1]:.4g}, {self.runs} runs |"
        )


HEAD = (
    "| Benchmark | Metric | Ours | Reference | Ratio | Target | | Spread |\n"
    "|---|---|---|---|---|---|---|---|"
)


def against(
    name: str,
    metric: str,
    ours: Sequence[float],
    reference: Sequence[float],
    *,
    reference_name: str,
    target: float,
    better: Literal["higher", "lower"] = "higher",
) -> Result:
    """Medians of paired runs of ours and a reference."""
    mine, theirs = statistics.median(ours), statistics.median(reference)
    return Result(
        name=name,
        metric=metric,
        ours=mine,
        reference=theirs,
        reference_name=reference_name,
        ratio=mine / theirs,
        target=target,
        better=better,
        runs=len(ours),
        spread=(min(ours), max(ours)),
    )
