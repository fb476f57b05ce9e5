"""The stages of real runs: each recorded once, in order, whatever stops or kills the run."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from rank_command import environment, write_attempt
from tests.support.kubernetes.credentials import free_ports
from tiny_run import TINY, Attempt, Ranks

from drivetrain_api.artifacts.outcome import RunStatus
from drivetrain_api.artifacts.run_summary import RunSummary
from drivetrain_api.artifacts.stages import RunStages
from drivetrain_api.compose import layered
from drivetrain_api.digest import PROGRESS_LIMIT, decode
from drivetrain_api.exit_codes import ExitCode
from drivetrain_api.timings.model import TIMINGS, Timings
from drivetrain_trainer.evaluation.evaluator import Evaluator
from drivetrain_trainer.evidence.checkpoint import load_part
from drivetrain_trainer.evidence.checkpoint_manifest import LEARNER_PART
from drivetrain_trainer.launcher.digest import summarise
from drivetrain_trainer.training.boundaries import TrainingBoundary
from drivetrain_trainer.training.phases import PhaseTimeline
from drivetrain_trainer.training.schedule import Cursor

TIMEOUT = 240.0
NEVER = 1e6
"""No policy of this task gets there."""
STAGES = ("sac_train", "checkpoint_save", "evaluation")
AGAIN = tuple(f"{name}_auto_resume" for name in STAGES)
MISSED: dict[str, Any] = {
    "evaluator": {"threshold": NEVER, "final_episodes": 2, "continuation_steps": 30}
}


def records(folder: Path) -> dict[str, list[float]]:
    """Stage -> seconds of its runs; empty before the first."""
    path = folder / TIMINGS
    if not path.exists():
        return {}
    timings = Timings.from_json(path.read_text())
    return {name: [run.seconds for run in stage.runs] for name, stage in timings.root.items()}


def stages_of(attempt: Attempt) -> RunStages:
    found = attempt.summary.stages
    assert found is not None
    return found


def steps(attempt: Attempt) -> list[int]:
    return [int(path.name.removeprefix("step_")) for path in attempt.checkpoints.paths()]


def test_a_run_without_an_evaluation_after_training_has_two_stages(ranks: Ranks) -> None:
    attempt = ranks.attempt(checkpoint={"interval": 40, "keep": 9})
    assert attempt.run() is ExitCode.DONE
    assert set(records(attempt.directory)) == {"sac_train", "checkpoint_save"}
    assert steps(attempt) == [40, 80, 120]
    stages = stages_of(attempt)
    assert records(attempt.directory)["sac_train"] == [stages.train_seconds]
    assert (stages.verdict, stages.threshold_missed, stages.timings_error) == (None, None, None)


def test_a_threshold_that_is_met_continues_nothing(ranks: Ranks) -> None:
    attempt = ranks.attempt(
        evaluator={"interval": 60, "episodes": 2, "final_episodes": 3, "threshold": -1.0}
    )
    assert attempt.run() is ExitCode.DONE
    assert set(records(attempt.directory)) == set(STAGES)
    assert attempt.outcome.env_steps == 120
    stages = stages_of(attempt)
    assert stages.evaluation is not None
    assert (stages.evaluation.env_steps, stages.evaluation.episodes) == (120, 3)
    assert stages.threshold_missed is False
    latest = attempt.checkpoints.latest()
    assert latest is not None
    assert latest.manifest.evaluated_return == stages.evaluation.mean_return
    assert attempt.summary.evaluated_return == stages.evaluation.mean_return


def test_a_missed_threshold_continues_once_and_completes(ranks: Ranks) -> None:
    attempt = ranks.attempt(**MISSED)
    assert attempt.run() is ExitCode.DONE
    assert attempt.summary.status is RunStatus.COMPLETED
    assert set(records(attempt.directory)) == {*STAGES, *AGAIN}
    assert steps(attempt) == [120, 150]
    stages = stages_of(attempt)
    assert stages.evaluation is not None
    assert stages.evaluation_auto_resume is not None
    assert (stages.evaluation.env_steps, stages.evaluation_auto_resume.env_steps) == (120, 150)
    assert stages.threshold_missed is True
    shown = summarise(attempt.summary, ranks.storage, attempt.directory)
    assert shown.threshold_missed is True
    assert shown.final_evaluated_return == f"{stages.evaluation_auto_resume.mean_return:.6g}"
    assert attempt.given.scratch is not None
    digest = decode(attempt.given.scratch.progress.read_text(), PROGRESS_LIMIT)
    assert digest is not None
    assert digest.progress is not None
    assert (digest.progress.target_env_steps, digest.progress.percent) == (150, 100)
    assert digest.progress.evaluated_return == shown.final_evaluated_return
    assert digest.progress.best_evaluated_return == shown.evaluated_return

    again = ranks.attempt(**MISSED)  # its pod was lost before it could say that it is done
    assert again.run() is ExitCode.DONE
    assert (again.outcome.env_steps, stages_of(again)) == (150, stages)
    assert records(again.directory) == records(attempt.directory)


def stopped(attempt: Attempt, env_steps: int, monkeypatch: pytest.MonkeyPatch) -> ExitCode:
    """Run it, and ask it to stop behind a step, however fast it trains."""
    report = TrainingBoundary.report

    def reported(self: TrainingBoundary, cursor: Cursor, timeline: PhaseTimeline) -> None:
        report(self, cursor, timeline)
        if cursor.env_steps > env_steps:
            attempt.stop.interrupt.set()

    with monkeypatch.context() as patch:
        patch.setattr(TrainingBoundary, "report", reported)
        return attempt.run()


def test_seconds_of_earlier_attempts_count_and_each_stage_is_gone_through_once(
    ranks: Ranks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped in the training, in the evaluation, and in the continuation."""
    first = ranks.attempt(**MISSED)
    assert stopped(first, 30, monkeypatch) is ExitCode.CHECKPOINTED
    assert records(first.directory) == {}
    latest = first.checkpoints.latest()
    assert latest is not None
    before = load_part(latest, LEARNER_PART)["stages"]["train_seconds"]
    assert before > 0.0

    evaluate = Evaluator.evaluate
    second = ranks.attempt(**MISSED)

    def interrupted(self: Evaluator, *args: Any, **kwargs: Any) -> Any:
        second.stop.interrupt.set()
        return evaluate(self, *args, **kwargs)

    monkeypatch.setattr(Evaluator, "evaluate", interrupted)
    assert second.run() is ExitCode.CHECKPOINTED
    monkeypatch.undo()
    measured = records(second.directory)
    assert set(measured) == {"sac_train", "checkpoint_save"}
    assert measured["sac_train"][0] > before
    assert steps(second)[-1] == 120

    third = ranks.attempt(**MISSED)
    assert stopped(third, 130, monkeypatch) is ExitCode.CHECKPOINTED
    stopped_at = steps(third)[-1]
    assert 120 < stopped_at < 150
    measured |= {"evaluation": records(third.directory)["evaluation"]}
    assert records(third.directory) == measured

    longer = {**MISSED, "evaluator": MISSED["evaluator"] | {"continuation_steps": 60}}
    fourth = ranks.attempt(**longer)
    assert fourth.run() is ExitCode.DONE
    assert fourth.outcome.env_steps == 150, "where it ends was decided when it began"
    after = records(fourth.directory)
    assert set(after) == {*STAGES, *AGAIN}
    assert {name: after[name] for name in STAGES} == measured
    assert all(len(seconds) == 1 for seconds in after.values())


def test_members_of_a_suite_share_one_artifact_directory(ranks: Ranks) -> None:
    folder = ranks.storage / "suites/seeds/sac/inverted_pendulum"
    for run_idx in range(2):
        ranks.uid, ranks.attempts = f"member-{run_idx}", 0
        attempt = ranks.attempt(
            seed=run_idx,
            training={"log_dir": str(folder.relative_to(ranks.storage) / f"run_{run_idx}")},
            experiment={"suite": "seeds", "run_idx": run_idx, "invocation": "first"},
        )
        assert attempt.run() is ExitCode.DONE
        assert not (attempt.directory / TIMINGS).exists()
    timings = Timings.from_json((folder / TIMINGS).read_text())
    assert set(timings.root) == {"sac_train", "checkpoint_save"}
    for stage in timings.root.values():
        assert [run.run_idx for run in stage.runs] == [0, 1]
        assert [run.label for run in stage.runs] == ["seed 0", "seed 1"]
        assert {run.invocation for run in stage.runs} == {"first"}
        assert stage.total_seconds == pytest.approx(sum(run.seconds for run in stage.runs))


def test_timings_that_cannot_be_written_are_told_and_the_run_completes(ranks: Ranks) -> None:
    folder = ranks.storage / "suite"
    folder.mkdir()
    (folder / TIMINGS).write_text("torn {")
    attempt = ranks.attempt(
        training={"log_dir": "suite/run_0"},
        experiment={"suite": "seeds", "run_idx": 0, "invocation": "first"},
    )
    assert attempt.run() is ExitCode.DONE
    told = stages_of(attempt).timings_error
    assert told is not None
    assert str(folder / TIMINGS) in told
    assert (folder / TIMINGS).read_text() == "torn {"


class Killed:
    """A run whose attempts are processes that kill themselves at a stage."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.attempts = 0

    def attempt(self, moment: str, stage: str = "-") -> int:
        self.attempts += 1
        write_attempt(self.folder, layered(TINY, MISSED), attempt=self.attempts)
        script = Path(__file__).parents[3] / "support/killed_rank.py"
        with (self.folder / "log").open("ab") as log:
            done = subprocess.run(
                [sys.executable, str(script), moment, stage, "--spec", "run.json"],
                cwd=self.folder,
                env=environment(),
                stdout=log,
                stderr=log,
                timeout=TIMEOUT,
                check=False,
            )
        return done.returncode

    @property
    def directory(self) -> Path:
        (path,) = self.folder.glob("logs/*/*/*")
        return path

    @property
    def summary(self) -> RunSummary:
        return RunSummary.from_json((self.directory / "run_summary.json").read_text())


FEW: list[tuple[str, str, set[str]]] = [
    ("after", "evaluation", set(STAGES)),
    ("after", "checkpoint_save_auto_resume", {*STAGES, *AGAIN[:2]}),
]
"""Moment, stage, and the records that are there then."""
ALL: list[tuple[str, str, set[str]]] = [
    ("before", "sac_train", set()),
    ("after", "sac_train", {"sac_train"}),
    ("before", "checkpoint_save", {"sac_train"}),
    ("after", "checkpoint_save", set(STAGES[:2])),
    ("before", "evaluation", set(STAGES[:2])),
    ("after", "evaluation", set(STAGES)),
    ("decided", "-", set(STAGES)),
    ("before", "sac_train_auto_resume", set(STAGES)),
    ("after", "sac_train_auto_resume", {*STAGES, AGAIN[0]}),
    ("before", "checkpoint_save_auto_resume", {*STAGES, AGAIN[0]}),
    ("after", "checkpoint_save_auto_resume", {*STAGES, *AGAIN[:2]}),
    ("before", "evaluation_auto_resume", {*STAGES, *AGAIN[:2]}),
    ("after", "evaluation_auto_resume", {*STAGES, *AGAIN}),
]


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "moments", [FEW, pytest.param(ALL, marks=pytest.mark.nightly)], ids=["few", "all"]
)
def test_killed_between_any_two_stages(
    tmp_path: Path, moments: list[tuple[str, str, set[str]]]
) -> None:
    run = Killed(tmp_path)
    for moment, stage, there in moments:
        assert run.attempt(moment, stage) == -signal.SIGKILL, (tmp_path / "log").read_text()
        found = records(run.directory)
        assert set(found) == there, (moment, stage)
        assert all(len(seconds) == 1 for seconds in found.values())
    assert run.attempt("never") == 0, (tmp_path / "log").read_text()
    after = records(run.directory)
    assert set(after) == {*STAGES, *AGAIN}
    assert all(len(seconds) == 1 for seconds in after.values())
    summary = run.summary
    assert (summary.status, summary.total_env_steps) == (RunStatus.COMPLETED, 150)
    assert summary.stages is not None
    assert after["sac_train"] == [summary.stages.train_seconds]
    assert summary.stages.threshold_missed


@contextmanager
def started(folder: Path, rank: int, group: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A rank in a process of its own, which does not outlive the test."""
    scratch = folder / f"scratch{rank}"
    scratch.mkdir()
    command = [sys.executable, "-m", "drivetrain_trainer.train", "--spec", "run.json"]
    with (folder / f"log{rank}").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--scratch", scratch.name],
            cwd=folder,
            env=group | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=log,
            stderr=log,
        )
    with process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.slow
def test_ranks_agree_on_the_continuation(tmp_path: Path) -> None:
    sections = {**MISSED, "topology": {"nodes": 1, "ranks_per_node": 2}}
    write_attempt(tmp_path, layered(TINY, sections))
    (port,) = free_ports(1)
    group = environment() | {
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    with ExitStack() as stack:
        ranks = [stack.enter_context(started(tmp_path, rank, group)) for rank in range(2)]
        codes = [rank.wait(TIMEOUT) for rank in ranks]
    assert codes == [0, 0], (tmp_path / "log0").read_text()
    outcomes = [
        json.loads((tmp_path / f"scratch{rank}" / f"outcome-rank{rank}.json").read_text())
        for rank in range(2)
    ]
    assert [outcome["env_steps"] for outcome in outcomes] == [152, 152]
    (folder,) = tmp_path.glob("logs/*/*/*")
    assert {name: len(seconds) for name, seconds in records(folder).items()} == dict.fromkeys(
        (*STAGES, *AGAIN), 1
    )
