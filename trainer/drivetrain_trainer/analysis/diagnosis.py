"""Where a run's time goes: the bottleneck table as rules over its figures.

Every rule looks at means over a window and is a pure function. A finding costs at most so
many milliseconds of an iteration, and findings are ranked by that; what happens beside the
iteration costs it nothing, however long it takes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from drivetrain_trainer.analysis import bottlenecks, defects, overheads, shares
from drivetrain_trainer.analysis.findings import Evidence, Kind
from drivetrain_trainer.telemetry.timeline import ITERATION_TIME, LEARNING_TIME, TOTAL_FPS

if TYPE_CHECKING:
    from collections.abc import Callable

    from drivetrain_api.artifacts.run_summary import RunTelemetry
    from drivetrain_trainer.analysis.findings import Finding, Setup
    from drivetrain_trainer.analysis.window import Window


RULES: Final[tuple[Callable[[Evidence], Finding | None], ...]] = (
    defects.accounted_time,
    defects.nonfinite_values,
    defects.dropped_batches,
    defects.telemetry_losses,
    bottlenecks.collector_wait,
    bottlenecks.learner_action_wait,
    bottlenecks.inference,
    bottlenecks.replay_batch_wait,
    bottlenecks.replay_write,
    overheads.gradient_sync,
    overheads.other_time,
    overheads.replay_h2d_submit,
)
"""Each looks alone; none depends on what another found."""


@dataclass(frozen=True)
class Diagnosis:
    """What a run's figures amount to."""

    learner: shares.Learner | None
    """The learner's iteration."""
    collector: shares.Collector | None
    """The collector's tick."""
    steps_per_second: float | None
    """Environment steps a second over all ranks, while collecting."""
    rows_per_second: float | None
    """Replay rows a second over all ranks; None where nothing is learnt from replay."""
    findings: tuple[Finding, ...]
    """Defects, then bottlenecks by what they cost, then what is hidden."""

    @property
    def balanced(self) -> bool:
        """Whether iterations were measured, and nothing makes them longer than they need be."""
        return self.learner is not None and all(
            finding.kind is Kind.HIDDEN for finding in self.findings
        )


def diagnose(window: Window, setup: Setup, telemetry: RunTelemetry | None = None) -> Diagnosis:
    """Apply every rule, and rank what they find.

    Args:
        window: Figures of the reports to look at.
        setup: The run's configuration.
        telemetry: How the metrics themselves fared, as the run's summary says it.
    """
    evidence = Evidence(
        window,
        setup,
        shares.learner(window.means, setup.algo),
        shares.collector(window.means),
        telemetry,
    )
    found = [finding for rule in RULES if (finding := rule(evidence)) is not None]
    order = list(Kind)
    return Diagnosis(
        learner=evidence.learner,
        collector=evidence.collector,
        steps_per_second=window.means.get(TOTAL_FPS),
        rows_per_second=_rows_per_second(evidence),
        findings=tuple(sorted(found, key=lambda one: (order.index(one.kind), -one.cost_ms))),
    )


def _rows_per_second(evidence: Evidence) -> float | None:
    """Replay rows from the configuration and the iteration time; no tag holds them."""
    rows = evidence.setup.rows_per_iteration
    wall = evidence.values.get(ITERATION_TIME)
    if rows is None or not wall or not evidence.values.get(LEARNING_TIME):
        return None
    return rows / wall
