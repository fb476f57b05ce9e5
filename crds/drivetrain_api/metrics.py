"""Metric schema 1: the only source of tags, their units, reductions, owners and labels.

A tag is submitted once a report, by its owner. The set is closed but for the registered
families, whose members are named at run time. Within a version tags may be added; a tag is
never renamed, removed, or given another unit.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from drivetrain_api.algorithms import AlgoName

METRIC_SCHEMA_VERSION: Final = 1


class Unit(StrEnum):
    """What a value counts."""

    NONE = "1"
    FRACTION = "fraction"
    RETURN = "return"
    NATS = "nats"
    STEPS = "steps"
    STEPS_PER_SECOND = "steps/s"
    SECONDS = "s"
    MILLISECONDS = "ms"
    ITERATIONS = "iterations"
    EPISODES = "episodes"
    ROLLOUTS = "rollouts"
    SLOTS = "slots"
    BATCHES = "batches"
    ROWS = "rows"
    CALLS = "calls"
    REQUESTS = "requests"
    TICKS = "ticks"


class Reduction(StrEnum):
    """How the ranks' values become one."""

    MEAN = "mean"
    SUM = "sum"
    RANK0 = "rank0"


class Owner(StrEnum):
    """Who submits a tag; nobody else may."""

    LOGGER = "logger"
    """The training logger itself."""
    LEARNER = "learner"
    """The learner: its algorithm, its loop, its side of the transport."""
    COLLECTOR = "collector"
    """The collector process, through the metrics board."""
    ENVIRONMENT = "environment"
    """An environment's managers, through the collector."""
    TRACKER = "tracker"
    """The stats tracker."""


@dataclass(frozen=True)
class Quantity:
    """A value with its unit, which must be the schema's; a plain number claims that it is."""

    value: float
    unit: Unit


EVERY_ALGORITHM: Final = frozenset(AlgoName)
_OFF_POLICY: Final = frozenset({AlgoName.SAC, AlgoName.FLASHSAC})
_APPO: Final = frozenset({AlgoName.APPO})


@dataclass(frozen=True)
class Metric:
    """A row of the schema."""

    tag: str
    """Name in persistent backends."""
    unit: Unit
    reduction: Reduction
    owner: Owner
    label: str
    """Name in the terminal; no two tags share one."""
    algorithms: frozenset[AlgoName] = EVERY_ALGORITHM
    """Algorithms that have this metric; the others neither show nor persist it."""


@dataclass(frozen=True)
class Family:
    """Tags of one prefix whose last part is named at run time."""

    prefix: str
    """With its final slash: ``reward/``."""
    unit: Unit
    owner: Owner
    reduction: Reduction = Reduction.MEAN
    reserved: frozenset[str] = frozenset()
    """Names that no member may take, because retired tags used them."""
    counted: bool = False
    """Whether values count events: a report holds their sum over its ticks, not their mean."""


class UnknownMetricError(LookupError):
    """A tag that the schema does not hold; the message names near ones."""


class MetricFamilyError(ValueError):
    """A family that cannot be declared: its prefix belongs to another one."""


_Row = Metric
_NONE, _MS, _S = Unit.NONE, Unit.MILLISECONDS, Unit.SECONDS
_MEAN, _SUM, _RANK0 = Reduction.MEAN, Reduction.SUM, Reduction.RANK0
_LOGGER, _LEARNER, _COLLECTOR = Owner.LOGGER, Owner.LEARNER, Owner.COLLECTOR

_TABLE: Final = (
    _Row("Train/iteration", Unit.ITERATIONS, _RANK0, _LOGGER, "Iteration"),
    _Row("Train/mean_reward", Unit.RETURN, _MEAN, _COLLECTOR, "Mean Reward"),
    _Row("Train/mean_episode_length", Unit.STEPS, _MEAN, _COLLECTOR, "Mean Ep Length"),
    _Row("Train/global_gradient_norm", _NONE, _MEAN, _LEARNER, "Grad Norm"),
    _Row("Train/actor_gradient_norm", _NONE, _MEAN, _LEARNER, "Actor Grad Norm"),
    _Row("Train/critic_gradient_norm", _NONE, _MEAN, _LEARNER, "Critic Grad Norm"),
    _Row("Train/target_q_max", _NONE, _MEAN, _LEARNER, "Target Q Max"),
    _Row("Train/target_q_min", _NONE, _MEAN, _LEARNER, "Target Q Min"),
    _Row("Train/reward_scale_std", _NONE, _MEAN, _LEARNER, "Reward Scale Std"),
    _Row("Train/approx_kl", Unit.NATS, _MEAN, _LEARNER, "Approx KL"),
    _Row(
        "Train/behavior_to_current_log_prob_delta",
        Unit.NATS,
        _MEAN,
        _LEARNER,
        "Behavior LogProb Delta",
    ),
    _Row("Train/clip_fraction", Unit.FRACTION, _MEAN, _LEARNER, "Clip Fraction"),
    _Row(
        "Train/vtrace_rho_clip_fraction", Unit.FRACTION, _MEAN, _LEARNER, "V-trace Rho Clip", _APPO
    ),
    _Row("Train/vtrace_rho_p99", _NONE, _MEAN, _LEARNER, "V-trace Rho p99", _APPO),
    _Row("Train/ring_available_slots", Unit.SLOTS, _SUM, _LEARNER, "Ring Available Slots", _APPO),
    _Row("Train/rollouts_read", Unit.ROLLOUTS, _SUM, _LEARNER, "Rollouts Read", _APPO),
    _Row("Train/replay_ingress_depth", Unit.SLOTS, _SUM, _LEARNER, "Ingress Depth", _OFF_POLICY),
    _Row(
        "Train/replay_ingress_occupancy",
        Unit.SLOTS,
        _SUM,
        _LEARNER,
        "Ingress Occupancy",
        _OFF_POLICY,
    ),
    _Row(
        "Train/replay_ingress_high_water",
        Unit.SLOTS,
        _SUM,
        _LEARNER,
        "Ingress High Water",
        _OFF_POLICY,
    ),
    _Row(
        "Train/replay_ingress_backpressure_wait_ms",
        _MS,
        _SUM,
        _LEARNER,
        "Ingress Backpressure",
        _OFF_POLICY,
    ),
    _Row(
        "Train/replay_ingress_dropped_batches",
        Unit.BATCHES,
        _SUM,
        _LEARNER,
        "Ingress Dropped Batches",
        _OFF_POLICY,
    ),
    _Row("Train/invalid_rows", Unit.ROWS, _SUM, _COLLECTOR, "Invalid Rows", _OFF_POLICY),
    _Row("Episode/timeout_rate", Unit.FRACTION, _MEAN, _COLLECTOR, "Timeout Rate"),
    _Row("Loss/surrogate", _NONE, _MEAN, _LEARNER, "Surrogate Loss"),
    _Row("Loss/value", _NONE, _MEAN, _LEARNER, "Value Loss"),
    _Row("Loss/entropy", _NONE, _MEAN, _LEARNER, "Entropy"),
    _Row("Loss/actor", _NONE, _MEAN, _LEARNER, "Actor Loss"),
    _Row("Loss/critic", _NONE, _MEAN, _LEARNER, "Critic Loss"),
    _Row("Loss/temperature", _NONE, _MEAN, _LEARNER, "Temperature Loss"),
    _Row("Loss/learning_rate", _NONE, _MEAN, _LEARNER, "Learning Rate"),
    _Row("Policy/mean_std", _NONE, _MEAN, _LEARNER, "Policy Std"),
    _Row("Policy/temperature", _NONE, _MEAN, _LEARNER, "Policy Temperature"),
    _Row("Perf/iteration_time", _S, _MEAN, _LEARNER, "Iter Wall"),
    _Row("Perf/learning_time", _S, _MEAN, _LEARNER, "Learning"),
    _Row("Perf/total_fps", Unit.STEPS_PER_SECOND, _SUM, _LEARNER, "Steps/s"),
    _Row("Perf/dp_gradient_sync_ms_per_rank", _MS, _MEAN, _LEARNER, "DP Gradient Sync"),
    _Row(
        "Perf/dp_gradient_sync_calls_per_rank",
        Unit.CALLS,
        _MEAN,
        _LEARNER,
        "DP Gradient Sync Calls",
    ),
    _Row("Perf/learner_collector_wait_ms", _MS, _MEAN, _LEARNER, "Collector Wait"),
    _Row("Perf/learner_inference_ms", _MS, _MEAN, _LEARNER, "Inference"),
    _Row("Perf/learner_collector_release_ms", _MS, _MEAN, _LEARNER, "Collector Release"),
    _Row("Perf/learner_replay_batch_wait_ms", _MS, _MEAN, _LEARNER, "Replay Batch Wait"),
    _Row("Perf/learner_replay_sample_ms", _MS, _MEAN, _LEARNER, "Replay Sample"),
    _Row("Perf/learner_inference_h2d_ms", _MS, _MEAN, _LEARNER, "Inference H2D"),
    _Row("Perf/learner_inference_forward_ms", _MS, _MEAN, _LEARNER, "Inference Forward"),
    _Row("Perf/learner_inference_d2h_ms", _MS, _MEAN, _LEARNER, "Inference D2H"),
    _Row("Perf/replay_ingress_h2d_submit_ms", _MS, _MEAN, _LEARNER, "Replay H2D Submit"),
    _Row("Perf/learner_replay_stage_ms", _MS, _MEAN, _LEARNER, "Replay Stage", _APPO),
    _Row("Perf/learner_weight_publish_ms", _MS, _MEAN, _LEARNER, "Weight Publish", _APPO),
    _Row("Perf/collection_time", _S, _MEAN, _COLLECTOR, "Rollout Wall"),
    _Row("Perf/collector_inference_request_ms", _MS, _MEAN, _COLLECTOR, "Inference Request"),
    _Row("Perf/collector_learner_action_wait_ms", _MS, _MEAN, _COLLECTOR, "Learner Action Wait"),
    _Row("Perf/collector_env_step_ms", _MS, _MEAN, _COLLECTOR, "Env Step"),
    _Row("Perf/collector_env_step_action_validate_ms", _MS, _MEAN, _COLLECTOR, "Action Validate"),
    _Row("Perf/collector_env_step_apply_action_ms", _MS, _MEAN, _COLLECTOR, "Apply Action"),
    _Row("Perf/collector_env_step_action_backend_ms", _MS, _MEAN, _COLLECTOR, "Action+Backend"),
    _Row("Perf/collector_env_step_backend_ms", _MS, _MEAN, _COLLECTOR, "Backend Step"),
    _Row("Perf/collector_env_step_update_state_ms", _MS, _MEAN, _COLLECTOR, "Update State"),
    _Row("Perf/collector_env_step_reset_done_ms", _MS, _MEAN, _COLLECTOR, "Reset Done"),
    _Row("Perf/collector_transition_extract_ms", _MS, _MEAN, _COLLECTOR, "Transition Extract"),
    _Row("Perf/collector_replay_write_ms", _MS, _MEAN, _COLLECTOR, "Replay Write"),
    _Row("Perf/collector_metrics_publish_ms", _MS, _MEAN, _COLLECTOR, "Metrics Publish"),
    _Row("Perf/collector_mlp_infer_ms", _MS, _MEAN, _COLLECTOR, "MLP Infer", _APPO),
    _Row(
        "Perf/collector_inference_queue_depth",
        Unit.REQUESTS,
        _MEAN,
        _COLLECTOR,
        "Inference Queue Depth",
        _OFF_POLICY,
    ),
    _Row(
        "Perf/collector_inference_action_backlog",
        Unit.REQUESTS,
        _MEAN,
        _COLLECTOR,
        "Action Backlog",
        _OFF_POLICY,
    ),
    _Row(
        "Perf/collector_inference_max_action_backlog",
        Unit.REQUESTS,
        _MEAN,
        _COLLECTOR,
        "Max Action Backlog",
        _OFF_POLICY,
    ),
    _Row(
        "Perf/collector_inference_in_flight",
        Unit.REQUESTS,
        _MEAN,
        _COLLECTOR,
        "In Flight",
        _OFF_POLICY,
    ),
    _Row(
        "Perf/collector_inference_max_in_flight",
        Unit.REQUESTS,
        _MEAN,
        _COLLECTOR,
        "Max In Flight",
        _OFF_POLICY,
    ),
    _Row(
        "Perf/collector_inference_publication_lag",
        Unit.TICKS,
        _MEAN,
        _COLLECTOR,
        "Publication Lag",
        _OFF_POLICY,
    ),
    _Row(
        "Perf/collector_inference_max_publication_lag",
        Unit.TICKS,
        _MEAN,
        _COLLECTOR,
        "Max Publication Lag",
        _OFF_POLICY,
    ),
)

METRICS: Final[Mapping[str, Metric]] = MappingProxyType({metric.tag: metric for metric in _TABLE})
"""Every canonical tag."""

FAMILIES: Final[tuple[Family, ...]] = (
    Family("reward/", Unit.NONE, Owner.ENVIRONMENT, reserved=frozenset({"mean", "mean_ep100"})),
    Family("Episode_Termination/", Unit.EPISODES, Owner.ENVIRONMENT, counted=True),
    Family("timeperf/", Unit.SECONDS, Owner.TRACKER),
    Family("train_perf/", Unit.NONE, Owner.TRACKER),
    Family("moe_balance/", Unit.NONE, Owner.TRACKER),
    Family("ppo_actor/", Unit.NONE, Owner.TRACKER),
    Family("sac_actor/", Unit.NONE, Owner.TRACKER),
    Family("rollout/", Unit.NONE, Owner.TRACKER),
    Family("eval-rollout/", Unit.NONE, Owner.TRACKER),
)
"""Families that every run has; an environment declares its own prefixes beside them."""


@dataclass(frozen=True)
class MetricSchema:
    """The canonical tags and the families of one run."""

    families: tuple[Family, ...] = FAMILIES

    def declaring(self, families: Iterable[Family]) -> MetricSchema:
        """This schema with an environment's own families.

        Raises:
            MetricFamilyError: for a prefix without its final slash, or one that a canonical
                tag or another family uses.
        """
        declared = self.families
        for family in families:
            _check_prefix(family.prefix, declared)
            declared = (*declared, family)
        return replace(self, families=declared)

    def family(self, tag: str) -> Family:
        """The family that a tag is a member of.

        Raises:
            UnknownMetricError: it is of none, or names no member that the family may have.
        """
        for family in self.families:
            if tag.startswith(family.prefix):
                _member(family, tag)
                return family
        prefixes = [family.prefix for family in self.families]
        near = _near_prefixes(tag, prefixes)
        meant = f"did you mean {near[0]}? " if near else ""
        raise UnknownMetricError(f"{tag!r} is of no family; {meant}families: {', '.join(prefixes)}")

    def lookup(self, tag: str) -> Metric:
        """The row of a canonical tag, or one made for a member of a family.

        Raises:
            UnknownMetricError: naming near tags, or why a family refuses the name.
        """
        found = METRICS.get(tag)
        if found is not None:
            return found
        for family in self.families:
            if tag.startswith(family.prefix):
                return _member(family, tag)
        prefixes = [family.prefix for family in self.families]
        near = [
            *_near_prefixes(tag, prefixes),
            *difflib.get_close_matches(tag, METRICS, n=3, cutoff=0.6),
        ]
        meant = f"did you mean {', '.join(near)}?" if near else f"families: {', '.join(prefixes)}"
        raise UnknownMetricError(f"unknown metric {tag!r}: {meant}")


def _near_prefixes(tag: str, prefixes: list[str]) -> list[str]:
    root = f"{tag.partition('/')[0]}/"
    return difflib.get_close_matches(root, prefixes, n=1, cutoff=0.75)


def _member(family: Family, tag: str) -> Metric:
    name = tag.removeprefix(family.prefix)
    if not name:
        raise UnknownMetricError(f"{tag!r} names no member of family {family.prefix}")
    if name in family.reserved:
        raise UnknownMetricError(f"{tag!r} is reserved: family {family.prefix} has no such member")
    return Metric(tag, family.unit, family.reduction, family.owner, tag)


def _check_prefix(prefix: str, families: tuple[Family, ...]) -> None:
    if len(prefix) < 2 or not prefix.endswith("/"):  # noqa: PLR2004 - a letter and the slash
        raise MetricFamilyError(f"family prefix {prefix!r} must be a name with a final slash")
    taken = {f"{tag.partition('/')[0]}/" for tag in METRICS}
    taken |= {family.prefix for family in families}
    clash = next((other for other in taken if _overlap(prefix, other)), None)
    if clash is not None:
        raise MetricFamilyError(f"family prefix {prefix!r} overlaps {clash!r}")


def _overlap(left: str, right: str) -> bool:
    return left.startswith(right) or right.startswith(left)
