"""The bottleneck table, row by row, on figures worked out by hand."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from drivetrain_trainer.analysis import findings
from drivetrain_trainer.analysis.diagnosis import Diagnosis, diagnose
from drivetrain_trainer.analysis.findings import Finding, Kind, Problem, Setup
from drivetrain_trainer.analysis.window import Window

GUIDE = (Path(__file__).parents[4] / "docs" / "guide" / "diagnose.md").read_text()
SETUP = Setup(
    num_envs=8,
    batch_size=256,
    updates_per_step=4,
    ranks=1,
    sim_threads=1,
    ingress_depth=2,
    usable_cpus=2,
    precision="fp32",
)

BALANCED = {
    "Perf/iteration_time": 0.020,
    "Perf/learning_time": 0.016,
    "Perf/learner_collector_wait_ms": 1.0,
    "Perf/learner_inference_ms": 1.5,
    "Perf/learner_inference_forward_ms": 1.2,
    "Perf/learner_collector_release_ms": 0.1,
    "Perf/learner_replay_batch_wait_ms": 0.1,
    "Perf/learner_replay_sample_ms": 0.4,
    "Perf/collector_inference_request_ms": 0.2,
    "Perf/collector_learner_action_wait_ms": 4.0,
    "Perf/collector_env_step_ms": 14.0,
    "Perf/collector_transition_extract_ms": 0.5,
    "Perf/collector_replay_write_ms": 1.0,
    "Perf/collector_metrics_publish_ms": 0.2,
    "Perf/total_fps": 400.0,
    "Train/replay_ingress_occupancy": 0.4,
    "Train/replay_ingress_high_water": 1.0,
    "Train/mean_reward": 12.0,
}


def window(
    changes: Mapping[str, float] | None = None,
    *,
    without: tuple[str, ...] = (),
    growth: Mapping[str, float] | None = None,
    nonfinite: Mapping[str, int] | None = None,
) -> Window:
    values = {**BALANCED, **(changes or {})}
    values = {tag: value for tag, value in values.items() if tag not in without}
    return Window(
        means=values,
        latest=values,
        growth=growth or {},
        nonfinite=nonfinite or {},
        reports=60,
        warm_up=0,
        only_warm_up=False,
        seconds=30.0,
        env_steps=12_000,
        ended=1_000.0,
        gap=0.5,
    )


def found(diagnosis: Diagnosis, problem: Problem) -> Finding:
    (finding,) = (one for one in diagnosis.findings if one.problem is problem)
    return finding


def words(finding: Finding) -> str:
    return " ".join((finding.says, *finding.details, *finding.check))


def test_a_balanced_run_is_told_to_be_balanced() -> None:
    diagnosis = diagnose(window(), SETUP)
    assert diagnosis.findings == ()
    assert diagnosis.balanced
    assert diagnosis.steps_per_second == 400.0
    assert diagnosis.rows_per_second == pytest.approx(256 * 4 / 0.020)


def test_rows_of_all_ranks_are_counted() -> None:
    diagnosis = diagnose(window(), Setup(batch_size=10, updates_per_step=3, ranks=4))
    assert diagnosis.rows_per_second == pytest.approx(10 * 3 * 4 / 0.020)


@pytest.mark.parametrize(
    ("without", "setup"),
    [
        (("Perf/learning_time",), SETUP),
        (("Perf/iteration_time",), SETUP),
        ((), Setup()),
    ],
    ids=["nothing learnt", "iteration not measured", "configuration not known"],
)
def test_rows_are_not_guessed(without: tuple[str, ...], setup: Setup) -> None:
    assert diagnose(window(without=without), setup).rows_per_second is None


CASES: dict[str, tuple[Problem, dict[str, float], float, tuple[str, ...]]] = {
    "collector wait": (
        Problem.COLLECTOR_WAIT,
        {
            "Perf/iteration_time": 0.020,
            "Perf/learning_time": 0.004,
            "Perf/learner_collector_wait_ms": 13.0,
            "Perf/collector_learner_action_wait_ms": 2.0,
        },
        13.0,
        ("65 % of Iter Wall", "13 ms of 20 ms", "Env Step 14 ms (78 %)", "training.simThreads"),
    ),
    "learner action wait": (
        Problem.LEARNER_ACTION_WAIT,
        {
            "Perf/collector_learner_action_wait_ms": 17.0,
            "Perf/collector_env_step_ms": 1.0,
            "Perf/learner_collector_wait_ms": 0.2,
        },
        # 17 - (1.5 + 0.1): what is not the action's own way.
        15.4,
        (
            "85 % of the collector's cycle (17 ms of 19.9 ms)",
            "15.4 ms the rest of an update",
            "4 updates of 256 rows, 4 ms each",
            "algo.updatesPerStep (4)",
            "algo.batchSize (256)",
            "then Inference (1.5 ms)",
        ),
    ),
    "inference": (
        Problem.INFERENCE,
        {
            "Perf/learner_inference_ms": 6.0,
            "Perf/learner_inference_h2d_ms": 0.6,
            "Perf/learner_inference_forward_ms": 4.8,
            "Perf/learner_inference_d2h_ms": 0.5,
            "Perf/learning_time": 0.011,
        },
        6.0,
        ("30 % of Iter Wall", "forward 4.8 ms (80 %), H2D 0.6 ms (10 %), D2H 0.5 ms (8.3 %)"),
    ),
    "replay batch wait": (
        Problem.REPLAY_BATCH_WAIT,
        {"Perf/learner_replay_batch_wait_ms": 2.0, "Perf/learning_time": 0.014},
        2.0,
        ("10 % of Iter Wall (2 ms of 20 ms)", "training.replayIngressDepth (2)", "slots taken"),
    ),
    "replay write, while the learner waits": (
        Problem.REPLAY_WRITE,
        {
            "Perf/collector_replay_write_ms": 9.0,
            "Perf/learner_collector_wait_ms": 8.0,
            "Perf/learning_time": 0.009,
        },
        # It cannot save more than the learner waits.
        8.0,
        ("of the collector's cycle (9 ms", "training.replayIngressSlotRows"),
    ),
    "gradient sync": (
        Problem.GRADIENT_SYNC,
        {"Perf/dp_gradient_sync_ms_per_rank": 5.0},
        5.0,
        ("25 % of Iter Wall (5 ms a rank, inside Learning)",),
    ),
    "other": (
        Problem.OTHER_TIME,
        {"Perf/learning_time": 0.0119},
        # The other phases take 3.1 ms.
        5.0,
        ("25 % of Iter Wall (5 ms)", "training.logInterval"),
    ),
}


@pytest.mark.parametrize(("problem", "changes", "cost", "says"), CASES.values(), ids=list(CASES))
def test_a_row_of_the_table(
    problem: Problem, changes: dict[str, float], cost: float, says: tuple[str, ...]
) -> None:
    diagnosis = diagnose(window(changes), SETUP)
    finding = found(diagnosis, problem)
    assert finding.kind is Kind.BOTTLENECK
    assert finding.cost_ms == pytest.approx(cost)
    told = words(finding)
    assert [part for part in says if part not in told] == []
    assert not diagnosis.balanced


def test_findings_stand_in_the_order_of_what_they_cost() -> None:
    diagnosis = diagnose(
        window(
            {
                "Perf/learner_inference_ms": 4.0,
                "Perf/learner_replay_batch_wait_ms": 6.0,
                "Perf/learning_time": 0.0085,
                "Perf/replay_ingress_h2d_submit_ms": 9.0,
            },
            nonfinite={"Loss/actor": 3},
        ),
        SETUP,
    )
    assert [one.problem for one in diagnosis.findings] == [
        Problem.NONFINITE_VALUES,
        Problem.REPLAY_BATCH_WAIT,
        Problem.INFERENCE,
    ]


def test_collector_wait_and_action_wait_both_high_are_turns_taken() -> None:
    """Then the table's second row does not apply: it wants Collector Wait low."""
    diagnosis = diagnose(
        window(
            {
                "Perf/learner_collector_wait_ms": 8.0,
                "Perf/learning_time": 0.010,
                "Perf/collector_learner_action_wait_ms": 20.0,
            }
        ),
        SETUP,
    )
    finding = found(diagnosis, Problem.COLLECTOR_WAIT)
    assert "take turns" in words(finding)
    assert Problem.LEARNER_ACTION_WAIT not in {one.problem for one in diagnosis.findings}


@pytest.mark.parametrize(
    ("share", "is_high"), [(0.149, False), (0.15, True)], ids=["just below", "at the threshold"]
)
def test_the_threshold_of_collector_wait(share: float, *, is_high: bool) -> None:
    diagnosis = diagnose(
        window({"Perf/learner_collector_wait_ms": 20.0 * share, "Perf/learning_time": 0.0145}),
        SETUP,
    )
    assert (Problem.COLLECTOR_WAIT in {one.problem for one in diagnosis.findings}) is is_high


def test_several_ticks_an_iteration_count_together() -> None:
    ticks = Setup(updates_per_step=4, batch_size=256, ticks=4)
    diagnosis = diagnose(
        window(
            {
                "Perf/iteration_time": 0.040,
                "Perf/learning_time": 0.034,
                "Perf/learner_inference_ms": 4.0,
                "Perf/learner_collector_release_ms": 0.0,
                "Perf/collector_learner_action_wait_ms": 8.0,
                "Perf/collector_env_step_ms": 1.0,
            }
        ),
        ticks,
    )
    # A tick: 8 - 4 / 4 = 7; four of them.
    assert found(diagnosis, Problem.LEARNER_ACTION_WAIT).cost_ms == pytest.approx(28.0)


def test_replay_write_beside_a_busy_learner_costs_nothing() -> None:
    diagnosis = diagnose(window({"Perf/collector_replay_write_ms": 9.0}), SETUP)
    finding = found(diagnosis, Problem.REPLAY_WRITE)
    assert (finding.kind, finding.cost_ms) == (Kind.HIDDEN, 0.0)
    assert "The learner does not wait for it." in finding.says
    assert diagnosis.balanced


def test_back_pressure_alone_is_replay_write() -> None:
    # Two ranks waited 3 s together in 30 s: 1.5 s, 5 %, a rank.
    two = Setup(ranks=2, ingress_depth=2)
    grown = window(growth={"Train/replay_ingress_backpressure_wait_ms": 3000.0})
    finding = found(diagnose(grown, two), Problem.REPLAY_WRITE)
    assert "back-pressure 1.5 s in this window (5.0 % of its time)" in words(finding)
    assert "Ingress a rank: 0.2 of 2 slots" in words(finding)


def test_h2d_submission_beside_normal_phases_is_background() -> None:
    diagnosis = diagnose(window({"Perf/replay_ingress_h2d_submit_ms": 6.0}), SETUP)
    finding = found(diagnosis, Problem.REPLAY_H2D_SUBMIT)
    assert (finding.kind, finding.cost_ms) == (Kind.HIDDEN, 0.0)
    assert "did not add that time" in finding.says
    assert "Perfetto" in words(finding)
    assert diagnosis.balanced


def test_more_time_accounted_than_there_was_is_a_broken_contract() -> None:
    diagnosis = diagnose(window({"Perf/learning_time": 0.020}), SETUP)
    finding = diagnosis.findings[0]
    assert (finding.problem, finding.kind) == (Problem.ACCOUNTED_TIME, Kind.DEFECT)
    # 1 + 1.5 + 0.1 + 0.1 + 0.4 + 20 = 23.1
    assert finding.cost_ms == pytest.approx(3.1)
    assert "116 % of Iter Wall (20 ms): a contract violation" in finding.says
    assert diagnosis.learner is not None
    assert diagnosis.learner.slices[-1].milliseconds == 0.0


def test_rounding_in_event_files_is_no_broken_contract() -> None:
    whole = {"Perf/learning_time": 0.0169 * (1 + 1e-6)}
    assert diagnose(window(whole), SETUP).balanced


def test_dropped_batches_are_a_defect() -> None:
    grown = window(growth={"Train/replay_ingress_dropped_batches": 2.0})
    assert diagnose(grown, SETUP).findings[0].problem is Problem.DROPPED_BATCHES


def test_values_that_are_not_finite_are_named_worst_first() -> None:
    finding = diagnose(window(nonfinite={"Loss/actor": 1, "Loss/critic": 4}), SETUP).findings[0]
    assert finding.says == "5 values in this window are NaN or infinite."
    assert finding.details == ("Loss/critic: 4 of 60 reports", "Loss/actor: 1 of 60 reports")


COLLECTOR_TAGS = tuple(tag for tag in BALANCED if tag.startswith("Perf/collector_"))


@pytest.mark.parametrize(
    ("rollout", "wait", "problem"),
    [
        (0.010, 0.1, Problem.LEARNER_ACTION_WAIT),
        (0.019, 0.1, None),
        (0.050, 6.0, Problem.COLLECTOR_WAIT),
    ],
)
def test_a_collector_that_owns_its_policy(
    rollout: float, wait: float, problem: Problem | None
) -> None:
    """Its rollouts are compared with the iteration: there is no cycle."""
    changes = {
        "Perf/collection_time": rollout,
        "Perf/learner_collector_wait_ms": wait,
        "Perf/learning_time": (15.5 - wait) / 1000,
        "Perf/learner_replay_stage_ms": 2.0,
    }
    diagnosis = diagnose(window(changes, without=COLLECTOR_TAGS), Setup(num_envs=8))
    assert diagnosis.collector is None
    assert [one.problem for one in diagnosis.findings] == ([problem] if problem else [])


def test_rollouts_on_the_learners_thread_are_parts_of_its_iteration() -> None:
    changes = {
        "Perf/collection_time": 0.008,
        "Perf/learning_time": 0.0115,
        "Perf/learner_collector_wait_ms": 0.0,
        "Perf/learner_inference_ms": 0.0,
        "Perf/learner_replay_sample_ms": 0.2,
    }
    values = window(changes, without=COLLECTOR_TAGS)
    diagnosis = diagnose(values, Setup(algo="ppo", num_envs=8))
    assert diagnosis.learner is not None
    assert [one.label for one in diagnosis.learner.slices][:1] == ["Rollout Wall"]
    assert diagnosis.learner.accounted_ms == pytest.approx(8.0 + 11.5 + 0.1 + 0.1 + 0.2)
    assert diagnosis.balanced


@pytest.mark.parametrize(
    ("setup", "says"),
    [
        (
            {"usable_cpus": 8, "ranks_per_node": 2, "sim_threads": 2},
            "raise training.simThreads (2)",
        ),
        ({"usable_cpus": 2, "ranks_per_node": 2}, "uses what CPUs a rank has (1)"),
        ({"usable_cpus": None}, "training.simThreads (1)"),
    ],
)
def test_threads_are_advised_by_the_cpus_of_a_rank(setup: dict[str, Any], says: str) -> None:
    slow = window({"Perf/learner_collector_wait_ms": 13.0, "Perf/learning_time": 0.004})
    assert says in words(found(diagnose(slow, Setup(**setup)), Problem.COLLECTOR_WAIT))


def test_the_longest_work_of_the_collector_comes_first() -> None:
    changes = {
        "Perf/learner_collector_wait_ms": 13.0,
        "Perf/learning_time": 0.004,
        "Perf/collector_env_step_ms": 1.0,
        "Perf/collector_replay_write_ms": 12.0,
    }
    finding = found(diagnose(window(changes), SETUP), Problem.COLLECTOR_WAIT)
    assert finding.check[0].startswith("transition post-processing (12.5 ms)")


@pytest.mark.parametrize(
    ("problem", "threshold"),
    [
        (Problem.COLLECTOR_WAIT, findings.COLLECTOR_WAIT_HIGH),
        (Problem.LEARNER_ACTION_WAIT, findings.ACTION_WAIT_HIGH),
        (Problem.INFERENCE, findings.INFERENCE_HIGH),
        (Problem.REPLAY_BATCH_WAIT, findings.BATCH_WAIT_HIGH),
        (Problem.REPLAY_WRITE, findings.REPLAY_WRITE_HIGH),
        (Problem.REPLAY_WRITE, findings.BACK_PRESSURE_HIGH),
        (Problem.REPLAY_H2D_SUBMIT, findings.H2D_SUBMIT_HIGH),
        (Problem.GRADIENT_SYNC, findings.GRADIENT_SYNC_HIGH),
        (Problem.OTHER_TIME, findings.OTHER_HIGH),
        (Problem.ACCOUNTED_TIME, findings.ACCOUNTED_MOST),
    ],
)
def test_the_guide_states_the_thresholds(problem: Problem, threshold: float) -> None:
    (row,) = (line for line in GUIDE.splitlines() if line.startswith(f"| `{problem}`"))
    assert f"{100 * threshold:.4g} %" in row.split("|")[2]


def test_the_guide_has_every_finding() -> None:
    assert [problem for problem in Problem if f"| `{problem}` |" not in GUIDE] == []


def test_nothing_measured_is_not_called_balanced() -> None:
    diagnosis = diagnose(window(without=tuple(BALANCED)), SETUP)
    assert diagnosis.findings == ()
    assert not diagnosis.balanced
