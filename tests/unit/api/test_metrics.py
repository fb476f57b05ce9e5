"""Metric schema 1: complete, unique labels, closed but for its families."""

from __future__ import annotations

import pytest

from drivetrain_api.algorithms import AlgoName
from drivetrain_api.metrics import (
    FAMILIES,
    METRIC_SCHEMA_VERSION,
    METRICS,
    Family,
    MetricFamilyError,
    MetricSchema,
    Owner,
    Reduction,
    Unit,
    UnknownMetricError,
)

SUMMED = {
    "Perf/total_fps",
    "Train/ring_available_slots",
    "Train/rollouts_read",
    "Train/invalid_rows",
    *(
        f"Train/replay_ingress_{name}"
        for name in (
            "depth",
            "occupancy",
            "high_water",
            "backpressure_wait_ms",
            "dropped_batches",
        )
    ),
}
SECONDS = {f"Perf/{name}" for name in ("iteration_time", "collection_time", "learning_time")}
TAGS = {
    *SUMMED,
    *SECONDS,
    *(
        f"Train/{name}"
        for name in (
            "iteration",
            "mean_reward",
            "mean_episode_length",
            "global_gradient_norm",
            "actor_gradient_norm",
            "critic_gradient_norm",
            "target_q_max",
            "target_q_min",
            "reward_scale_std",
            "approx_kl",
            "behavior_to_current_log_prob_delta",
            "clip_fraction",
            "vtrace_rho_clip_fraction",
            "vtrace_rho_p99",
        )
    ),
    "Episode/timeout_rate",
    *(
        f"Loss/{name}"
        for name in (
            "surrogate",
            "value",
            "entropy",
            "actor",
            "critic",
            "temperature",
            "learning_rate",
        )
    ),
    "Policy/mean_std",
    "Policy/temperature",
    "Perf/dp_gradient_sync_ms_per_rank",
    "Perf/dp_gradient_sync_calls_per_rank",
    "Perf/replay_ingress_h2d_submit_ms",
    *(
        f"Perf/learner_{name}_ms"
        for name in (
            "collector_wait",
            "inference",
            "collector_release",
            "replay_batch_wait",
            "replay_stage",
            "replay_sample",
            "weight_publish",
            "inference_h2d",
            "inference_forward",
            "inference_d2h",
        )
    ),
    *(
        f"Perf/collector_{name}_ms"
        for name in (
            "mlp_infer",
            "inference_request",
            "learner_action_wait",
            "env_step",
            "env_step_action_validate",
            "env_step_apply_action",
            "env_step_action_backend",
            "env_step_backend",
            "env_step_update_state",
            "env_step_reset_done",
            "transition_extract",
            "replay_write",
            "metrics_publish",
        )
    ),
    *(
        f"Perf/collector_inference_{name}"
        for name in (
            "queue_depth",
            "action_backlog",
            "max_action_backlog",
            "in_flight",
            "max_in_flight",
            "publication_lag",
            "max_publication_lag",
        )
    ),
}


def test_version_1_holds_exactly_these_tags() -> None:
    assert METRIC_SCHEMA_VERSION == 1
    assert set(METRICS) == TAGS


def test_each_row_stands_under_its_tag_once() -> None:
    assert all(tag == metric.tag for tag, metric in METRICS.items())


def test_no_two_tags_share_a_label() -> None:
    labels = [metric.label for metric in METRICS.values()]

    assert len(set(labels)) == len(labels)
    assert METRICS["Loss/temperature"].label != METRICS["Policy/temperature"].label


def test_milliseconds_and_seconds_say_so() -> None:
    for tag, metric in METRICS.items():
        expected = "_ms" in tag
        assert (metric.unit is Unit.MILLISECONDS) == expected, tag
        assert (metric.unit is Unit.SECONDS) == (tag in SECONDS), tag


def test_reductions_are_the_contracts() -> None:
    for tag, metric in METRICS.items():
        expected = Reduction.SUM if tag in SUMMED else Reduction.MEAN
        if tag == "Train/iteration":
            expected = Reduction.RANK0
        assert metric.reduction is expected, tag


def test_the_logger_owns_the_iteration_alone() -> None:
    assert [tag for tag, m in METRICS.items() if m.owner is Owner.LOGGER] == ["Train/iteration"]


@pytest.mark.parametrize("tag", ["Perf/learner_replay_stage_ms", "Perf/learner_weight_publish_ms"])
def test_an_algorithms_own_phase_is_no_other_ones(tag: str) -> None:
    assert METRICS[tag].algorithms == {AlgoName.APPO}


def test_a_canonical_tag_is_looked_up() -> None:
    assert MetricSchema().lookup("Loss/actor") is METRICS["Loss/actor"]


def test_a_member_takes_its_familys_meaning() -> None:
    metric = MetricSchema().lookup("Episode_Termination/time_out")

    assert (metric.tag, metric.label) == ("Episode_Termination/time_out",) * 2
    assert metric.owner is Owner.ENVIRONMENT
    assert metric.reduction is Reduction.MEAN


@pytest.mark.parametrize(
    ("tag", "part"),
    [
        ("Train/mean_rewards", "did you mean Train/mean_reward"),
        ("loss/actor", "did you mean Loss/actor"),
        ("Episode_Reward/run", "unknown metric"),
        ("zzz", "families: reward/, Episode_Termination/"),
        ("rewards/forward", "did you mean reward/?"),
        ("eval_rollout/reward", "did you mean eval-rollout/"),
        ("reward/mean", "is reserved"),
        ("reward/mean_ep100", "is reserved"),
        ("reward/", "names no member"),
        ("reward", "unknown metric"),
    ],
)
def test_an_unknown_tag_is_refused_with_near_ones(tag: str, part: str) -> None:
    with pytest.raises(UnknownMetricError) as caught:
        MetricSchema().lookup(tag)

    assert part in str(caught.value)


def test_an_environment_declares_prefixes_of_its_own() -> None:
    schema = MetricSchema().declaring([Family("Gait/", Unit.NONE, Owner.ENVIRONMENT)])

    assert schema.lookup("Gait/duty_factor").owner is Owner.ENVIRONMENT
    with pytest.raises(UnknownMetricError):
        MetricSchema().lookup("Gait/duty_factor")


@pytest.mark.parametrize("prefix", ["Train/", "Perf/own/", "reward/", "reward/own/", "x", "/", ""])
def test_a_prefix_that_is_taken_cannot_be_declared(prefix: str) -> None:
    with pytest.raises(MetricFamilyError, match="prefix"):
        MetricSchema().declaring([Family(prefix, Unit.NONE, Owner.ENVIRONMENT)])


def test_no_canonical_tag_lies_in_a_family() -> None:
    prefixes = tuple(family.prefix for family in FAMILIES)

    assert not [tag for tag in METRICS if tag.startswith(prefixes)]
