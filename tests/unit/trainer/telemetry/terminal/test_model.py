from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain_api.metrics import METRICS
from drivetrain_trainer.telemetry import timeline
from drivetrain_trainer.telemetry.facts import MpsStatus, SystemFacts
from drivetrain_trainer.telemetry.terminal.model import PanelModel, Snapshot, build
from drivetrain_trainer.telemetry.terminal.timings import (
    ACCOUNTED,
    CYCLE,
    OTHER,
    collector_rows,
    learner_rows,
)


@pytest.fixture
def model(facts: SystemFacts, report: dict[str, float]) -> PanelModel:
    return build(Snapshot(facts, report, env_steps=531_200, iteration=8300, pace=100.0))


def test_every_phase_of_the_timelines_is_in_the_schema() -> None:
    tags = (*timeline.LEARNER_PHASES, *timeline.COLLECTOR_CYCLE, *timeline.ENV_STEP_DETAILS)
    assert set(tags) | set(timeline.ROLLOUT_PHASES) <= set(METRICS)
    assert set(timeline.COLLECTOR_CYCLE) >= timeline.COLLECTOR_CORE


def test_learner_rows_and_other_add_up_to_the_iteration(report: dict[str, float]) -> None:
    *phases, wall = learner_rows(report)
    assert wall.label == "Iter Wall"
    assert wall.total
    assert wall.share == 1.0
    assert sum(row.milliseconds for row in phases) == pytest.approx(7.86)
    assert sum(row.share or 0.0 for row in phases) == pytest.approx(1.0)
    assert [row.label for row in phases] == [
        "Collector Wait",
        "Inference",
        "Collector Release",
        "Replay Batch Wait",
        "Replay Sample",
        "Learning",
        "Other",
    ]


def test_nested_and_background_work_takes_no_learner_row(report: dict[str, float]) -> None:
    more = report | {"Perf/replay_ingress_h2d_submit_ms": 100.0}
    assert learner_rows(more) == learner_rows(report)


def test_other_is_never_negative() -> None:
    rows = learner_rows({"Perf/iteration_time": 0.001, "Perf/learning_time": 0.002})
    assert [(row.label, row.milliseconds, row.share) for row in rows] == [
        ("Learning", 2.0, 2.0),
        ("Other", 0.0, 0.0),
        ("Accounted > Wall", 2.0, 2.0),
        ("Iter Wall", 1.0, 1.0),
    ]
    assert [row.label for row in rows if row.violation] == ["Accounted > Wall"]


@given(st.lists(st.floats(1e-6, 1e4), min_size=1, max_size=7))
def test_rounding_is_no_violation(phases: list[float]) -> None:
    means = dict(zip(timeline.LEARNER_PHASES[:6], phases, strict=False))
    means["Perf/iteration_time"] = sum(phases) / 1000
    assert not any(row.violation for row in learner_rows(means))


def test_where_the_learners_thread_collects_the_rollout_is_a_phase_of_it() -> None:
    means = {
        "Perf/iteration_time": 1.0,
        "Perf/collection_time": 0.75,
        "Perf/learning_time": 0.2,
        "Perf/collector_env_step_ms": 1.0,
    }
    assert [(row.label, row.milliseconds, row.share) for row in learner_rows(means, "ppo")] == [
        ("Rollout Wall", 750.0, 0.75),
        ("Learning", 200.0, 0.2),
        ("Other", pytest.approx(50.0), pytest.approx(0.05)),
        ("Iter Wall", 1000.0, 1.0),
    ]
    assert collector_rows(means, "ppo") == ()
    assert [row.label for row in learner_rows(means, "sac")] == ["Learning", "Other", "Iter Wall"]


def test_without_a_measured_iteration_there_are_no_shares() -> None:
    (row,) = learner_rows({"Perf/learner_inference_ms": 3.0})
    assert (row.label, row.milliseconds, row.share) == ("Inference", 3.0, None)


def test_collector_shares_are_of_its_own_cycle(report: dict[str, float]) -> None:
    rows = {row.label: row for row in collector_rows(report)}
    cycle = sum(report[tag] for tag in timeline.COLLECTOR_CYCLE if tag in report)
    assert rows["Cycle"].milliseconds == pytest.approx(cycle)
    assert rows["Env Step"].share == pytest.approx(1.42 / cycle)
    assert rows["Backend Step"].share == pytest.approx(1.1 / cycle)
    assert rows["Backend Step"].indented


@pytest.mark.parametrize(
    ("tag", "label"),
    [
        ("Perf/collector_inference_request_ms", "Inference Request"),
        ("Perf/collector_transition_extract_ms", "Transition Extract"),
        ("Perf/collector_metrics_publish_ms", "Metrics Publish"),
        ("Perf/collector_env_step_action_validate_ms", "Action Validate"),
        ("Perf/collector_env_step_apply_action_ms", "Apply Action"),
        ("Perf/collector_env_step_action_backend_ms", "Action+Backend"),
        ("Perf/collector_env_step_backend_ms", "Backend Step"),
        ("Perf/collector_env_step_update_state_ms", "Update State"),
        ("Perf/collector_env_step_reset_done_ms", "Reset Done"),
    ],
)
def test_quiet_phases_show_from_a_hundredth_of_the_cycle(tag: str, label: str) -> None:
    core = {
        "Perf/collector_learner_action_wait_ms": 0.0,
        "Perf/collector_env_step_ms": 100.0,
        "Perf/collector_replay_write_ms": 0.0,
    }
    quiet = [row.label for row in collector_rows(core | {tag: 0.9})]
    assert quiet == ["Learner Action Wait", "Env Step", "Replay Write", "Cycle"]
    assert label in [row.label for row in collector_rows(core | {tag: 1.1})]


def test_a_collector_that_owns_its_policy_reports_milliseconds_alone() -> None:
    rows = collector_rows(
        {
            "Perf/collector_mlp_infer_ms": 1.0,
            "Perf/collector_env_step_ms": 2.0,
            "Perf/collection_time": 0.5,
        }
    )
    assert [(row.label, row.milliseconds, row.share) for row in rows] == [
        ("MLP Infer", 1.0, None),
        ("Env Step", 2.0, None),
        ("Rollout Wall", 500.0, None),
    ]


def test_ingress_gauges_stand_apart_from_losses_and_diagnostics(model: PanelModel) -> None:
    transport = {row.label: row.text for row in model.transport}
    assert transport["Ingress Backpressure"] == "12.20 ms"
    assert transport["Ingress Depth"] == "2"
    assert all(row.indented for row in (*model.diagnostics, *model.transport))
    assert "Actor Loss" in [row.label for row in model.metrics]
    others = (*model.metrics, *model.diagnostics, *model.learner)
    assert not any("Ingress" in row.label for row in others)


def test_each_metric_has_one_place(model: PanelModel) -> None:
    labels = [
        row.label
        for rows in (
            model.metrics,
            model.diagnostics,
            model.transport,
            model.rewards,
            model.reward_terms.rows,
            *(group.rows for group in model.other_terms),
            model.learner,
            model.collector,
            model.system,
        )
        for row in rows
    ]
    assert len(labels) == len(set(labels))


def test_system_facts(facts: SystemFacts, report: dict[str, float]) -> None:
    two = replace(facts, ranks=2, gpus=2, mps=MpsStatus.AMBIENT)
    rows = build(Snapshot(two, report, buffer_rows=531_200)).system
    assert {row.label: row.text for row in rows} == {
        "Buffer / rank": "531.2k / 1M",
        "Timeout Rate": "100.0 %",
        "Envs": "64 x 2 ranks",
        "Batch / rank": "256",
        "CUDA MPS": "ambient",
    }


def test_timeouts_are_unknown_before_an_episode_ended(facts: SystemFacts) -> None:
    rows = {row.label: row.text for row in build(Snapshot(facts, {})).system}
    assert rows["Timeout Rate"] == "-"


@pytest.mark.parametrize(
    ("steps", "iterations", "pace", "expected"),
    [
        (1_000_000, None, 100.0, (531_200, 1_000_000, "steps", 0.5312, 4688.0)),
        (1_000_000, None, None, (531_200, 1_000_000, "steps", 0.5312, None)),
        (None, 16_600, 10.0, (8300, 16_600, "iterations", 0.5, 830.0)),
        (500_000, None, 100.0, (531_200, 500_000, "steps", 1.0, 0.0)),
        (None, None, 100.0, (531_200, None, "steps", None, None)),
    ],
)
def test_progress_and_remaining_time(
    facts: SystemFacts,
    steps: int | None,
    iterations: int | None,
    pace: float | None,
    expected: tuple[object, ...],
) -> None:
    wanted = replace(facts, target_env_steps=steps, target_iterations=iterations)
    made = build(Snapshot(wanted, {}, env_steps=531_200, iteration=8300, pace=pace)).progress
    assert (made.position, made.target, made.unit, made.share, made.eta_s) == expected


def test_labels_are_unique(model: PanelModel) -> None:
    labels = [metric.label for metric in METRICS.values()]
    labels += [OTHER, CYCLE, ACCOUNTED]
    shown_elsewhere = {"Timeout Rate"}
    labels += [row.label for row in model.system if row.label not in shown_elsewhere]
    assert len(labels) == len(set(labels))


def test_terms_stand_by_family(facts: SystemFacts) -> None:
    means = {
        "reward/b": 1.0,
        "reward/a": 2.0,
        "Episode_Termination/fell": 3.0,
        "Curriculum/level": 4.0,
        "timeperf/rollout": 5.0,
        "rollout/reward": 6.0,
    }
    model = build(Snapshot(facts, means, peaks={"reward/a": 2.5}))
    assert [(row.label, row.value, row.peak) for row in model.reward_terms.rows] == [
        ("a", 2.0, 2.5),
        ("b", 1.0, None),
    ]
    assert [(group.title, [row.label for row in group.rows]) for group in model.other_terms] == [
        ("Terminations", ["fell"]),
        ("Environment", ["Curriculum/level"]),
    ]
