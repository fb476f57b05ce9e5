"""Rules for what is wrong, whatever it costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivetrain_trainer.analysis.findings import (
    ACCOUNTED_MOST,
    DROPPED,
    Finding,
    Kind,
    Problem,
)
from drivetrain_trainer.analysis.quantities import ms, parts, percent

if TYPE_CHECKING:
    from drivetrain_trainer.analysis.findings import Evidence


def accounted_time(evidence: Evidence) -> Finding | None:
    """Phases that add up to more than the iteration: a broken contract, not parallel work."""
    learner = evidence.learner
    if learner is None or learner.accounted_ms <= ACCOUNTED_MOST * learner.wall_ms:
        return _overfull_before(evidence)
    return Finding(
        Problem.ACCOUNTED_TIME,
        Kind.DEFECT,
        learner.accounted_ms - learner.wall_ms,
        f"The learner's phases add up to {ms(learner.accounted_ms)}, "
        f"{percent(learner.accounted_ms / learner.wall_ms)} of Iter Wall "
        f"({ms(learner.wall_ms)}): a contract violation, not parallel work.",
        details=parts((one.label, one.milliseconds) for one in learner.slices),
        check=(
            "two timers of the learner overlap, or a clock jumped; this is a defect to report",
            "do not read the learner's percentages of this window",
        ),
    )


def _overfull_before(evidence: Evidence) -> Finding | None:
    """Single reports whose excess the window's mean does not show."""
    count = evidence.telemetry.overfull_timelines if evidence.telemetry is not None else 0
    if not count:
        return None
    return Finding(
        Problem.ACCOUNTED_TIME,
        Kind.DEFECT,
        0.0,
        f"{count} report{'s' if count > 1 else ''} of this attempt had phases that add up to more "
        "than Iter Wall: a contract violation, not parallel work.",
        check=("two timers of the learner overlap, or a clock jumped; this is a defect to report",),
    )


def telemetry_losses(evidence: Evidence) -> Finding | None:
    """Metrics that a backend never took."""
    telemetry = evidence.telemetry
    hurt = [one for one in telemetry.backends if one.lost or one.error] if telemetry else []
    if not hurt:
        return None
    return Finding(
        Problem.TELEMETRY_LOSS,
        Kind.DEFECT,
        0.0,
        f"Metrics were lost: {', '.join(one.name for one in hurt)} did not take every record. "
        "Training does not wait for that.",
        details=tuple(
            f"{one.name}: {one.lost} of {one.lost + one.written} records lost"
            + (f"; first error: {one.error}" if one.error else "")
            for one in hurt
        ),
        check=("the disk or the server behind training.logger", "training.logInterval"),
    )


def nonfinite_values(evidence: Evidence) -> Finding | None:
    """NaN and infinities are logged as they are."""
    found = evidence.window.nonfinite
    if not found:
        return None
    total = sum(found.values())
    return Finding(
        Problem.NONFINITE_VALUES,
        Kind.DEFECT,
        0.0,
        f"{total} value{'s' if total > 1 else ''} in this window "
        f"{'are' if total > 1 else 'is'} NaN or infinite.",
        details=tuple(
            f"{tag}: {count} of {evidence.window.reports} reports"
            for tag, count in sorted(found.items(), key=lambda item: (-item[1], item[0]))
        ),
        check=(
            "the first non-finite loss or gradient norm in the curves, and the learning rates",
            "algo.maxGradNorm clips the gradient; algo.precision: fp32 rules out bf16",
        ),
    )


def dropped_batches(evidence: Evidence) -> Finding | None:
    """Rows that never reached replay."""
    dropped = evidence.window.growth.get(DROPPED, 0.0)
    if dropped <= 0:
        return None
    return Finding(
        Problem.DROPPED_BATCHES,
        Kind.DEFECT,
        0.0,
        f"The replay ingress dropped {dropped:.0f} batch{'es' if dropped > 1 else ''} "
        "in this window: rows that the learner never sees.",
        check=("a stop in progress; otherwise the collector's log, for why it gave rows up",),
    )
