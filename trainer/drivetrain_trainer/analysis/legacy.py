"""Tags from before the metric schema: what each has become, and in which unit.

For ``drivetrain extract --legacy-unversioned`` alone. The retired tags of one field stand in
the order in which they are preferred: where a log has two of them, the first is taken whole
and the others are left out, and never are two mixed along one curve.
"""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from drivetrain_api.algorithms import AlgoName
from drivetrain_api.metrics import METRICS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MILLISECONDS_TO_SECONDS: Final = 1e-3
SECONDS_TO_MILLISECONDS: Final = 1e3

INCREMENTAL_H2D: Final = "timing/learner_incremental_h2d_ms"
"""Meant one thing in APPO and another in SAC and FlashSAC."""


class LegacyError(ValueError):
    """A legacy log that cannot be translated; the message says what is missing."""


@dataclass(frozen=True)
class Successor:
    """What a retired tag has become."""

    tag: str
    """Canonical tag."""
    factor: float = 1.0
    """New value / old value."""


@dataclass(frozen=True)
class Translation:
    """How the tags of one log are read."""

    successors: Mapping[str, Successor]
    """Tag in the log -> what it is read as."""
    retired: tuple[str, ...]
    """Tags without a successor: left out."""
    outdone: Mapping[str, str]
    """Tag that is left out -> the preferred tag of the same field, which the log has too."""


_MS_TO_S: Final = MILLISECONDS_TO_SECONDS
_S_TO_MS: Final = SECONDS_TO_MILLISECONDS

_NAMED: Final[tuple[tuple[str, Successor], ...]] = (
    ("iteration", Successor("Train/iteration")),
    ("reward/mean_ep100", Successor("Train/mean_reward")),
    ("reward/mean", Successor("Train/mean_reward")),
    ("episode/length", Successor("Train/mean_episode_length")),
    ("episode/timeout_rate", Successor("Episode/timeout_rate")),
    ("train/surrogate_loss", Successor("Loss/surrogate")),
    ("loss/policy_loss", Successor("Loss/surrogate")),
    ("train/value_loss", Successor("Loss/value")),
    ("loss/value_loss", Successor("Loss/value")),
    ("train/actor_loss", Successor("Loss/actor")),
    ("train/critic_loss", Successor("Loss/critic")),
    ("train/qf_loss", Successor("Loss/critic")),
    ("train/temperature_loss", Successor("Loss/temperature")),
    ("train/alpha_loss", Successor("Loss/temperature")),
    ("train/policy_entropy", Successor("Loss/entropy")),
    ("train/actor_entropy", Successor("Loss/entropy")),
    ("train/entropy", Successor("Loss/entropy")),
    ("train/temperature", Successor("Policy/temperature")),
    ("train/alpha", Successor("Policy/temperature")),
    ("ppo/approx_kl", Successor("Train/approx_kl")),
    ("train/kl", Successor("Train/approx_kl")),
    ("optim/learning_rate", Successor("Loss/learning_rate")),
    ("grad/global_norm", Successor("Train/global_gradient_norm")),
    ("train/actor_grad_norm", Successor("Train/actor_gradient_norm")),
    ("train/critic_grad_norm", Successor("Train/critic_gradient_norm")),
    (
        "policy_kl/behavior_to_current_kl",
        Successor("Train/behavior_to_current_log_prob_delta"),
    ),
    ("vtrace/rho_clip_fraction", Successor("Train/vtrace_rho_clip_fraction")),
    ("vtrace/rho_raw_p99", Successor("Train/vtrace_rho_p99")),
    ("train/available_on_arrive", Successor("Train/ring_available_slots")),
    ("train/rollouts_read", Successor("Train/rollouts_read")),
    ("perf/steps_per_sec", Successor("Perf/total_fps")),
    ("perf/iter_ms", Successor("Perf/iteration_time", _MS_TO_S)),
    ("timing/learner_train_ms", Successor("Perf/learning_time", _MS_TO_S)),
    ("perf/train_time_ms", Successor("Perf/learning_time", _MS_TO_S)),
    ("timing/collector_rollout_ms", Successor("Perf/collection_time", _MS_TO_S)),
    ("perf/collect_time_ms", Successor("Perf/collection_time", _MS_TO_S)),
    ("timing/inference_total_ms", Successor("Perf/learner_inference_ms")),
    ("timing/inference_h2d_ms", Successor("Perf/learner_inference_h2d_ms")),
    ("timing/inference_forward_ms", Successor("Perf/learner_inference_forward_ms")),
    ("timing/inference_d2h_ms", Successor("Perf/learner_inference_d2h_ms")),
    ("timing/replay_ingress_h2d_submit_ms", Successor("Perf/replay_ingress_h2d_submit_ms")),
    ("timing/collector_inference_wait_ms", Successor("Perf/collector_learner_action_wait_ms")),
    ("train/dp_sync_time", Successor("Perf/dp_gradient_sync_ms_per_rank", _S_TO_MS)),
    ("train/dp_gradient_sync_calls", Successor("Perf/dp_gradient_sync_calls_per_rank")),
)

_PHASES: Final = tuple(
    (f"timing/{tag.removeprefix('Perf/')}", Successor(tag))
    for tag in METRICS
    if tag.startswith(("Perf/learner_", "Perf/collector_")) and tag.endswith("_ms")
)

SUCCESSORS: Final[Mapping[str, Successor]] = MappingProxyType(dict((*_NAMED, *_PHASES)))
"""Retired tag -> what it has become; preferred ones first."""

INCREMENTAL_H2D_BY_ALGORITHM: Final[Mapping[AlgoName, Successor]] = MappingProxyType(
    {
        AlgoName.SAC: Successor("Perf/replay_ingress_h2d_submit_ms"),
        AlgoName.FLASHSAC: Successor("Perf/replay_ingress_h2d_submit_ms"),
        AlgoName.APPO: Successor("Perf/learner_replay_stage_ms"),
    }
)
"""What `INCREMENTAL_H2D` has become; PPO never wrote it."""

RETIRED: Final = (
    "perf/effective_samples_per_sec",
    "perf/learner_samples_per_sec",
    "perf/collector_active_steps_per_sec",
    "perf/collector_cycle_ms",
    "perf/learner_*_pct",
    "perf/learner_pipeline_ms",
    "timing/learner_other_ms",
)
"""Patterns of tags without a successor: what they said follows from other tags."""


def is_legacy(tag: str) -> bool:
    """Whether a log from before the schema had this tag, and none since has it."""
    return tag in SUCCESSORS or tag == INCREMENTAL_H2D or is_retired(tag)


def is_retired(tag: str) -> bool:
    """Whether the tag has no successor."""
    return any(fnmatch.fnmatchcase(tag, pattern) for pattern in RETIRED)


def translation_of(tags: Iterable[str], algorithm: AlgoName | None) -> Translation:
    """How the tags of a log are read.

    Args:
        tags: All tags of the log; each a legacy one, or one that has not changed.
        algorithm: Of the run; None where it is not known.

    Raises:
        LegacyError: a tag means one thing or another by the algorithm, which is not known, or
            which never wrote it.
    """
    held = set(tags)
    ordered = [*(tag for tag in SUCCESSORS if tag in held)]
    if INCREMENTAL_H2D in held:
        ordered.append(INCREMENTAL_H2D)
    successors: dict[str, Successor] = {}
    outdone: dict[str, str] = {}
    taken: dict[str, str] = {}
    for tag in ordered:
        successor = SUCCESSORS.get(tag) or _incremental_h2d(algorithm)
        if successor.tag in taken:
            outdone[tag] = taken[successor.tag]
            continue
        taken[successor.tag] = tag
        successors[tag] = successor
    retired = tuple(sorted(tag for tag in held if is_retired(tag)))
    for tag in sorted(held - set(ordered) - set(retired)):
        successors[tag] = Successor(tag)
    return Translation(successors, retired, outdone)


def _incremental_h2d(algorithm: AlgoName | None) -> Successor:
    known = ", ".join(INCREMENTAL_H2D_BY_ALGORITHM)
    if algorithm is None:
        raise LegacyError(
            f"the tag {INCREMENTAL_H2D!r} means one thing or another by the algorithm, and no "
            f"run_config.json tells it: name it with --algo ({known})"
        )
    successor = INCREMENTAL_H2D_BY_ALGORITHM.get(algorithm)
    if successor is None:
        raise LegacyError(
            f"the tag {INCREMENTAL_H2D!r} was never written by {algorithm.value}: name the run's "
            f"algorithm with --algo ({known})"
        )
    return successor
