"""The learner's and the collector's timelines: which tags are slices of which clock.

Learner phases are exclusive parts of one main-thread iteration. Collector phases are
exclusive parts of one vector tick on the collector's own clock; they run beside the
learner's, and the two are never added.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from drivetrain_api.algorithms import AlgoName

if TYPE_CHECKING:
    from collections.abc import Mapping

ITERATION_TIME: Final = "Perf/iteration_time"
LEARNING_TIME: Final = "Perf/learning_time"
ROLLOUT_TIME: Final = "Perf/collection_time"
TOTAL_FPS: Final = "Perf/total_fps"

LEARNER_PHASES: Final = (
    "Perf/learner_collector_wait_ms",
    "Perf/learner_inference_ms",
    "Perf/learner_collector_release_ms",
    "Perf/learner_replay_batch_wait_ms",
    "Perf/learner_replay_stage_ms",
    "Perf/learner_replay_sample_ms",
    LEARNING_TIME,
    "Perf/learner_weight_publish_ms",
)
"""Exclusive main-thread phases in the order of an iteration."""

SYNCHRONOUS: Final = frozenset({AlgoName.PPO})
"""Algorithms that collect on the learner's main thread: the rollout is a phase of theirs."""

COLLECTOR_CYCLE: Final = (
    "Perf/collector_inference_request_ms",
    "Perf/collector_learner_action_wait_ms",
    "Perf/collector_env_step_ms",
    "Perf/collector_transition_extract_ms",
    "Perf/collector_replay_write_ms",
    "Perf/collector_metrics_publish_ms",
)
"""Exclusive phases of one collector tick; their sum is the cycle."""

COLLECTOR_CORE: Final = frozenset(
    {
        "Perf/collector_learner_action_wait_ms",
        "Perf/collector_env_step_ms",
        "Perf/collector_replay_write_ms",
    }
)
"""Phases that a terminal always shows; the others from a hundredth of the cycle."""

ENV_STEP: Final = "Perf/collector_env_step_ms"
ENV_STEP_DETAILS: Final = (
    "Perf/collector_env_step_action_validate_ms",
    "Perf/collector_env_step_apply_action_ms",
    "Perf/collector_env_step_action_backend_ms",
    "Perf/collector_env_step_backend_ms",
    "Perf/collector_env_step_update_state_ms",
    "Perf/collector_env_step_reset_done_ms",
)
"""Parts of the env step: shares of the cycle, but no slices of it."""

ROLLOUT_PHASES: Final = ("Perf/collector_mlp_infer_ms", ENV_STEP, ROLLOUT_TIME)
"""What a collector that owns its policy reports: means a step, and a whole rollout."""

MATERIAL_SHARE: Final = 0.01
"""Share of the collector cycle from which a quiet phase is shown."""


CLOCK_TOLERANCE: Final = 1e-6
"""Relative excess of accounted time over Iter Wall that rounding explains."""


def in_milliseconds(tag: str, values: Mapping[str, float]) -> float | None:
    """The tag's value in ms, or None where it was not reported."""
    found = values.get(tag)
    if found is None or tag.endswith("_ms"):
        return found
    return 1000.0 * found


def learner_phases(algo: str | None = None) -> tuple[str, ...]:
    """The exclusive phases of an iteration of this algorithm's learner, in their order."""
    return (ROLLOUT_TIME, *LEARNER_PHASES) if algo in SYNCHRONOUS else LEARNER_PHASES


def accounted_ms(values: Mapping[str, float], algo: str | None = None) -> float:
    """Milliseconds of the iteration that named phases explain."""
    return sum(in_milliseconds(tag, values) or 0.0 for tag in learner_phases(algo))
