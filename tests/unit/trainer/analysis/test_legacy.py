"""The complete table of retired tags, written down anew, and what a log of theirs becomes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from event_files import event_path, make_run, report, write_events

from drivetrain_api.algorithms import AlgoName
from drivetrain_api.metrics import METRICS
from drivetrain_trainer.analysis.extract import Extraction, LegacyMode, extract
from drivetrain_trainer.analysis.formats import Format
from drivetrain_trainer.analysis.legacy import (
    INCREMENTAL_H2D,
    RETIRED,
    SUCCESSORS,
    LegacyError,
    is_retired,
    translation_of,
)
from drivetrain_trainer.analysis.runs import RunFolder

LEARNER_PHASES = (
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
COLLECTOR_PHASES = (
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

EXPECTED = {
    "perf/steps_per_sec": ("Perf/total_fps", 1),
    "reward/mean": ("Train/mean_reward", 1),
    "reward/mean_ep100": ("Train/mean_reward", 1),
    "episode/timeout_rate": ("Episode/timeout_rate", 1),
    "perf/iter_ms": ("Perf/iteration_time", 0.001),
    "timing/learner_train_ms": ("Perf/learning_time", 0.001),
    "timing/inference_total_ms": ("Perf/learner_inference_ms", 1),
    "timing/inference_h2d_ms": ("Perf/learner_inference_h2d_ms", 1),
    "timing/inference_forward_ms": ("Perf/learner_inference_forward_ms", 1),
    "timing/inference_d2h_ms": ("Perf/learner_inference_d2h_ms", 1),
    "timing/replay_ingress_h2d_submit_ms": ("Perf/replay_ingress_h2d_submit_ms", 1),
    "timing/collector_inference_wait_ms": ("Perf/collector_learner_action_wait_ms", 1),
    "timing/collector_rollout_ms": ("Perf/collection_time", 0.001),
    "train/dp_sync_time": ("Perf/dp_gradient_sync_ms_per_rank", 1000),
    "train/dp_gradient_sync_calls": ("Perf/dp_gradient_sync_calls_per_rank", 1),
    "iteration": ("Train/iteration", 1),
    "episode/length": ("Train/mean_episode_length", 1),
    "loss/policy_loss": ("Loss/surrogate", 1),
    "loss/value_loss": ("Loss/value", 1),
    "train/surrogate_loss": ("Loss/surrogate", 1),
    "train/actor_loss": ("Loss/actor", 1),
    "train/value_loss": ("Loss/value", 1),
    "train/qf_loss": ("Loss/critic", 1),
    "train/critic_loss": ("Loss/critic", 1),
    "train/alpha_loss": ("Loss/temperature", 1),
    "train/temperature_loss": ("Loss/temperature", 1),
    "train/entropy": ("Loss/entropy", 1),
    "train/policy_entropy": ("Loss/entropy", 1),
    "train/actor_entropy": ("Loss/entropy", 1),
    "train/alpha": ("Policy/temperature", 1),
    "train/temperature": ("Policy/temperature", 1),
    "train/kl": ("Train/approx_kl", 1),
    "ppo/approx_kl": ("Train/approx_kl", 1),
    "optim/learning_rate": ("Loss/learning_rate", 1),
    "grad/global_norm": ("Train/global_gradient_norm", 1),
    "train/actor_grad_norm": ("Train/actor_gradient_norm", 1),
    "train/critic_grad_norm": ("Train/critic_gradient_norm", 1),
    "policy_kl/behavior_to_current_kl": ("Train/behavior_to_current_log_prob_delta", 1),
    "vtrace/rho_clip_fraction": ("Train/vtrace_rho_clip_fraction", 1),
    "vtrace/rho_raw_p99": ("Train/vtrace_rho_p99", 1),
    "train/available_on_arrive": ("Train/ring_available_slots", 1),
    "train/rollouts_read": ("Train/rollouts_read", 1),
    "perf/collect_time_ms": ("Perf/collection_time", 0.001),
    "perf/train_time_ms": ("Perf/learning_time", 0.001),
    **{f"timing/learner_{phase}_ms": (f"Perf/learner_{phase}_ms", 1) for phase in LEARNER_PHASES},
    **{
        f"timing/collector_{phase}_ms": (f"Perf/collector_{phase}_ms", 1)
        for phase in COLLECTOR_PHASES
    },
}


def run_of(folder: Path, values: dict[str, float]) -> RunFolder:
    return RunFolder.open(make_run(folder, [report(1, values)]))


def read(folder: RunFolder, legacy: LegacyMode) -> tuple[Extraction, dict[str, float]]:
    done = extract(folder, form=Format.JSON, legacy=legacy)
    (row,) = json.loads(done.output.read_text())
    return done, {tag: value for tag, value in row.items() if "/" in tag}


def test_the_table_is_complete() -> None:
    assert {old: (new.tag, new.factor) for old, new in SUCCESSORS.items()} == EXPECTED
    assert all(new in METRICS for new, _ in EXPECTED.values())
    assert not set(SUCCESSORS) & set(METRICS)


@pytest.mark.parametrize("old", EXPECTED)
def test_each_tag_becomes_its_successor_in_its_unit(tmp_path: Path, old: str) -> None:
    new, factor = EXPECTED[old]
    _, row = read(run_of(tmp_path, {old: 250.0}), LegacyMode())
    assert row == {new: pytest.approx(250.0 * factor)}


@pytest.mark.parametrize(
    ("algorithm", "new"),
    [
        (AlgoName.SAC, "Perf/replay_ingress_h2d_submit_ms"),
        (AlgoName.FLASHSAC, "Perf/replay_ingress_h2d_submit_ms"),
        (AlgoName.APPO, "Perf/learner_replay_stage_ms"),
    ],
)
def test_the_incremental_copy_goes_by_the_algorithm(
    tmp_path: Path, algorithm: AlgoName, new: str
) -> None:
    _, row = read(run_of(tmp_path, {INCREMENTAL_H2D: 2.0}), LegacyMode(algorithm))
    assert row == {new: 2.0}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("run_config.json", {"algo": {"name": "appo"}}),
        ("run_config.json", {"algo": "appo"}),
        ("run_summary.json", {"algo": "appo"}),
    ],
)
def test_the_algorithm_is_taken_from_the_runs_own_files(
    tmp_path: Path, name: str, content: dict[str, object]
) -> None:
    make_run(tmp_path, [report(1, {INCREMENTAL_H2D: 2.0})])
    (tmp_path / name).write_text(json.dumps(content))
    _, row = read(RunFolder.open(tmp_path), LegacyMode())
    assert row == {"Perf/learner_replay_stage_ms": 2.0}
    with pytest.raises(LegacyError, match=rf"--algo sac, but .*{name} says appo"):
        extract(RunFolder.open(tmp_path), legacy=LegacyMode(AlgoName.SAC))


@pytest.mark.parametrize(
    ("algorithm", "words"), [(None, "name it with --algo"), (AlgoName.PPO, "never written by ppo")]
)
def test_without_an_algorithm_that_had_it_the_incremental_copy_is_refused(
    tmp_path: Path, algorithm: AlgoName | None, words: str
) -> None:
    with pytest.raises(LegacyError, match=words):
        extract(run_of(tmp_path, {INCREMENTAL_H2D: 2.0}), legacy=LegacyMode(algorithm))


@pytest.mark.parametrize(
    ("both", "chosen"),
    [
        (("reward/mean", "reward/mean_ep100"), "reward/mean_ep100"),
        (("perf/train_time_ms", "timing/learner_train_ms"), "timing/learner_train_ms"),
        (("perf/collect_time_ms", "timing/collector_rollout_ms"), "timing/collector_rollout_ms"),
        (("train/alpha", "train/temperature"), "train/temperature"),
        (("train/qf_loss", "train/critic_loss"), "train/critic_loss"),
        (("train/kl", "ppo/approx_kl"), "ppo/approx_kl"),
        (("loss/policy_loss", "train/surrogate_loss"), "train/surrogate_loss"),
        (("train/entropy", "train/policy_entropy"), "train/policy_entropy"),
        (
            (INCREMENTAL_H2D, "timing/replay_ingress_h2d_submit_ms"),
            "timing/replay_ingress_h2d_submit_ms",
        ),
    ],
)
def test_of_two_tags_of_one_field_one_is_taken_whole(both: tuple[str, str], chosen: str) -> None:
    for order in (both, both[::-1]):
        translation = translation_of(order, AlgoName.SAC)
        (other,) = set(both) - {chosen}
        assert set(translation.successors) == {chosen}
        assert translation.outdone == {other: chosen}


def test_two_tags_of_one_field_are_never_mixed_along_a_curve(tmp_path: Path) -> None:
    write_events(
        event_path(tmp_path),
        [
            report(1, {"reward/mean": 1.0}),
            report(2, {"reward/mean": 2.0, "reward/mean_ep100": 9.0}),
        ],
    )
    done = extract(RunFolder.open(tmp_path), form=Format.JSON, legacy=LegacyMode())
    (row,) = json.loads(done.output.read_text())
    assert (row["step"], row["Train/mean_reward"]) == (2, 9.0)
    assert done.notes == (
        "reward/mean: the same field as reward/mean_ep100, which is preferred: left out",
    )


@pytest.mark.parametrize(
    "tag",
    [
        "perf/effective_samples_per_sec",
        "perf/learner_samples_per_sec",
        "perf/collector_active_steps_per_sec",
        "perf/collector_cycle_ms",
        "perf/learner_train_pct",
        "perf/learner_pipeline_ms",
        "timing/learner_other_ms",
    ],
)
def test_retired_tags_are_left_out_and_told(tmp_path: Path, tag: str) -> None:
    assert is_retired(tag)
    done, row = read(run_of(tmp_path, {tag: 1.0, "perf/iter_ms": 5.0}), LegacyMode())
    assert row == {"Perf/iteration_time": 0.005}
    assert done.notes == (f"{tag}: retired without a successor: left out",)


def test_names_that_did_not_change_stay(tmp_path: Path) -> None:
    _, row = read(run_of(tmp_path, {"reward/run": 1.5, "reward/mean": 2.0}), LegacyMode())
    assert row == {"Train/mean_reward": 2.0, "reward/run": 1.5}


def test_files_of_a_legacy_run_are_never_rewritten(tmp_path: Path) -> None:
    folder = run_of(tmp_path, {"reward/mean": 2.0})
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    done = extract(folder, legacy=LegacyMode())
    assert {path: path.read_bytes() for path in before} == before
    assert set(tmp_path.iterdir()) == {*before, done.output}


GUIDE = Path(__file__).parents[4] / "docs" / "guide" / "extract.md"


def test_the_guide_holds_the_whole_table() -> None:
    text = GUIDE.read_text()
    phases = dict(re.findall(r"(Learner|Collector) phases: ([^.]*)\.", text))
    for old, new in SUCCESSORS.items():
        note = {1.0: "", 1e-3: "ms → s", 1e3: "s → ms"}[new.factor]
        if f"| `{old}` | `{new.tag}` | {note} |".replace("  ", " ") in text:
            continue
        side, _, phase = old.removeprefix("timing/").removesuffix("_ms").partition("_")
        assert f"`{phase}`" in phases[side.capitalize()], old
        assert (new.tag, new.factor) == (f"Perf/{side}_{phase}_ms", 1.0)
    assert f"`{INCREMENTAL_H2D}`" in text
    for tag in RETIRED:
        assert f"`{tag}`" in text, tag
