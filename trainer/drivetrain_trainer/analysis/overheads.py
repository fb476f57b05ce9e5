"""Rules for time beside the bottleneck table: ranks, bookkeeping, background work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivetrain_trainer.analysis.findings import (
    BATCH_WAIT,
    BATCH_WAIT_HIGH,
    GRADIENT_SYNC,
    GRADIENT_SYNC_HIGH,
    H2D_SUBMIT,
    H2D_SUBMIT_HIGH,
    OTHER_HIGH,
    Finding,
    Kind,
    Problem,
)
from drivetrain_trainer.analysis.quantities import ms, percent

if TYPE_CHECKING:
    from drivetrain_trainer.analysis.findings import Evidence


def gradient_sync(evidence: Evidence) -> Finding | None:
    """Ranks wait for one another inside Learning."""
    share = evidence.of_wall(GRADIENT_SYNC)
    if share < GRADIENT_SYNC_HIGH:
        return None
    spent = evidence.values[GRADIENT_SYNC]
    return Finding(
        Problem.GRADIENT_SYNC,
        Kind.BOTTLENECK,
        spent,
        f"The gradient all-reduce takes {percent(share)} of Iter Wall "
        f"({ms(spent)} a rank, inside Learning).",
        check=(
            "the slowest rank: the others wait for it in the all-reduce",
            (
                "algo.updatesPerStep and algo.batchSize: one all-reduce an update, larger updates "
                "amortise it"
            ),
            "the network between nodes; ranks of one node over NVLink or shared memory",
        ),
    )


def other_time(evidence: Evidence) -> Finding | None:
    """Time of the learner that no phase explains."""
    if evidence.learner is None:
        return None
    other = evidence.learner.slices[-1]
    if other.share < OTHER_HIGH:
        return None
    return Finding(
        Problem.OTHER_TIME,
        Kind.BOTTLENECK,
        other.milliseconds,
        f"{percent(other.share)} of Iter Wall ({ms(other.milliseconds)}) is in no phase.",
        check=(
            "metrics drain, reward statistics, bookkeeping: training.logInterval",
            "a busy machine: more processes than CPUs",
        ),
    )


def replay_h2d_submit(evidence: Evidence) -> Finding | None:
    """A background diagnostic that grew; it is no part of the iteration."""
    share = evidence.of_wall(H2D_SUBMIT)
    if share < H2D_SUBMIT_HIGH or evidence.of_wall(BATCH_WAIT) >= BATCH_WAIT_HIGH:
        return None
    return Finding(
        Problem.REPLAY_H2D_SUBMIT,
        Kind.HIDDEN,
        0.0,
        f"Replay H2D Submit is {ms(evidence.values[H2D_SUBMIT])}, as much as {percent(share)} of "
        "Iter Wall, while the phases are normal: submission in the background, which did not add "
        "that time to the iteration.",
        check=(
            "the copy to the GPU, the ingress commit and their overlap with training, in Perfetto",
        ),
    )
