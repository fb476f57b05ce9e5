"""What a run's status says of its training: the same lines here and for kubectl."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivetrain_operator.cli.figures import NOTHING, bar, duration, figure, number, size
from drivetrain_operator.cli.table import pairs

if TYPE_CHECKING:
    from datetime import datetime

    from drivetrain_api.status import Progress, RunSummaryDigest, SoakDigest


def progress_lines(found: Progress, at: datetime, *, live: bool) -> list[str]:
    """A bar, and the trainer's own figures.

    Args:
        found: As the trainer's logger reported it.
        at: The present.
        live: Whether an attempt runs: only then is there an end to estimate.
    """
    of = f" of {number(found.target_env_steps)}" if found.target_env_steps is not None else ""
    steps = f"{number(found.env_steps)}{of} steps, iteration {number(found.iteration)}"
    head = f"{bar(found.percent)} {found.percent}%  {steps}" if found.percent is not None else steps
    saved = found.checkpoint_env_steps
    reported = duration((at - found.at).total_seconds()) if found.at is not None else None
    return [
        head,
        *pairs(
            [
                ("Speed", f"{figure(found.steps_per_second)} steps/s"),
                ("Left", duration(found.eta_seconds) if live and found.eta_seconds else ""),
                ("Reward", f"{figure(found.mean_reward)} (mean of the last 100 episodes)"),
                ("Evaluated", _evaluated(found)),
                ("Checkpoint", f"at {number(saved)} steps" if saved is not None else "none"),
                ("Reported", f"{reported} ago" if reported is not None else ""),
            ]
        ),
    ]


def summary_lines(found: RunSummaryDigest) -> list[str]:
    """What the trainer wrote at the end of an attempt."""
    wall, lost = found.wall_time_seconds, found.lost_records
    speed = found.final_env_steps_per_sec
    return pairs(
        [
            ("Status", found.status),
            ("Steps", number(found.total_env_steps)),
            ("Iterations", number(found.completed_iterations)),
            ("Speed", f"{figure(speed)} steps/s" if speed is not None else ""),
            ("Reward", _known(found.final_mean_reward)),
            ("Best reward", _known(found.best_mean_reward)),
            ("Evaluated", _known(found.evaluated_return)),
            ("Final", f"{_known(found.final_evaluated_return)}{_MISSED[found.threshold_missed]}"),
            ("Last attempt", duration(float(wall)) if wall is not None else ""),
            ("Directory", found.run_directory or ""),
            ("Page", found.wandb_run_url or ""),
            ("Metrics", f"{number(lost)} records lost by a logger" if lost else ""),
            ("Error", ": ".join(filter(None, (found.error_type, found.error)))),
        ]
    )


def soak_lines(found: SoakDigest) -> list[str]:
    """The soak monitor's verdict on an attempt."""
    grew, left = found.rss_growth_bytes, found.residual_processes
    return pairs(
        [
            ("Verdict", found.verdict.value),
            ("Failure", found.failure_classification or ""),
            ("Reason", found.failure_reason or ""),
            ("Watched", f"attempt {found.attempt} for {duration(found.duration_seconds)}"),
            ("Samples", number(found.samples)),
            ("Peak memory", _size(found.peak_rss_bytes)),
            ("Growth", _size(grew) or "too short to tell"),
            ("Peak GPU", _size(found.peak_gpu_bytes)),
            ("Left behind", f"{left} process{'es' if left > 1 else ''}" if left else ""),
        ]
    )


def _size(amount: int | None) -> str:
    return "" if amount is None else size(amount)


def eta(progress: Progress | None, *, live: bool) -> str:
    """Time to the end for a table."""
    if not live or progress is None or progress.eta_seconds is None:
        return NOTHING
    return duration(progress.eta_seconds)


_MISSED = {
    True: ", below evaluator.threshold",
    False: ", not below evaluator.threshold",
    None: "",
}


def _evaluated(found: Progress) -> str:
    """The latest evaluation, and the best one where that is another."""
    latest, best = _known(found.evaluated_return), _known(found.best_evaluated_return)
    return f"{latest} (best {best})" if best and best != latest else latest


def _known(decimal: str | None) -> str:
    return "" if decimal is None else figure(decimal)
