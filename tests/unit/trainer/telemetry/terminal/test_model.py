from __future__ import annotations

from dataclasses import replace

import pytest

from drivetrain_api.metrics import METRICS
from drivetrain_trainer.telemetry import timeline
from drivetrain_trainer.telemetry.facts import MpsStatus, SystemFacts
from drivetrain_trainer.telemetry.terminal.model import (
    MAX_TERMS,
    PanelModel,
    Snapshot,
    build,
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
        ("Iter Wall", 1.0, 1.0),
    ]


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


def test_ingress_gauges_stand_among_diagnostics_not_losses(model: PanelModel) -> None:
    diagnostics = {row.label: row for row in model.diagnostics}
    assert diagnostics["Ingress Backpressure"].text == "12.20 ms"
    assert diagnostics["Ingress Depth"].text == "2"
    assert all(row.indented for row in model.diagnostics)
    losses = [row.label for row in model.metrics]
    assert "Actor Loss" in losses
    assert not any("Ingress" in label for label in losses)


def test_each_metric_has_one_place(model: PanelModel) -> None:
    labels = [
        row.label
        for rows in (
            model.metrics,
            model.diagnostics,
            model.rewards,
            model.terms,
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
        "Buffer": "531.2k / 1M",
        "Timeouts": "100.0 %",
        "Envs": "64 x 2 ranks",
        "Batch / rank": "256",
        "MPS": "ambient",
    }


def test_timeouts_are_unknown_before_an_episode_ended(facts: SystemFacts) -> None:
    rows = {row.label: row.text for row in build(Snapshot(facts, {})).system}
    assert rows["Timeouts"] == "-"


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


def test_terms_beyond_the_first_are_counted(facts: SystemFacts) -> None:
    means = {f"reward/term_{index:02}": 1.0 for index in range(MAX_TERMS + 3)}
    model = build(Snapshot(facts, means))
    assert len(model.terms) == MAX_TERMS
    assert model.hidden_terms == 3
