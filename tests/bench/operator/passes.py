"""How long passes over runs took, as the operator's own metrics tell."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from prometheus_client.parser import text_string_to_metric_families
from tests.bench.operator.common import held
from tests.bench.result import Result

PASS_LIMIT: Final = 1.0
"""Seconds of a pass: a run that is created is to have its Job by then."""
_BUCKETS: Final = "drivetrain_reconcile_seconds_bucket"


class Passes:
    """Histograms of several operators, added up, by phase and step."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], dict[float, float]] = {}

    def add(self, text: str) -> None:
        """Take what one operator's ``/metrics`` says."""
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name == _BUCKETS:
                    where = sample.labels["phase"], sample.labels["step"]
                    edges = self._found.setdefault(where, defaultdict(float))
                    edges[float(sample.labels["le"])] += sample.value

    def results(self) -> list[Result]:
        """The 99th percentile of each step of a pass, by the phase that it led to."""
        return [
            held(
                f"operator_{step}_{phase.lower()}",
                f"seconds of a pass' step {step!r} towards {phase}, p99",
                [quantile(sorted(buckets.items()), 0.99)],
                PASS_LIMIT,
            )
            for (phase, step), buckets in sorted(self._found.items())
        ]


def quantile(buckets: list[tuple[float, float]], share: float) -> float:
    """Of a histogram's cumulative buckets, straight between their edges, as Prometheus does."""
    wanted = share * buckets[-1][1]
    below_edge, below = 0.0, 0.0
    for edge, count in buckets:
        if count >= wanted:
            if edge == float("inf"):
                return below_edge
            return below_edge + (edge - below_edge) * (wanted - below) / max(count - below, 1)
        below_edge, below = edge, count
    return below_edge
