"""Stages in timings.json: whose they are, where they lie, and what a failure to write costs."""

from __future__ import annotations

import fcntl
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tiny_run import Ranks

from drivetrain_api.artifacts.stages import RunStages, StageEvaluation
from drivetrain_api.experiment import ExperimentConfig, RunStage
from drivetrain_api.timings.model import HARDWARE, TIMINGS, Timings
from drivetrain_trainer.evidence.fence import FencedError
from drivetrain_trainer.evidence.run_directory import RunDirectory
from drivetrain_trainer.training import stage_records
from drivetrain_trainer.training.stage_records import StageRecorder

TRAINED = RunStages(target_env_steps=9, training_over=True)
EVALUATED = TRAINED.model_copy(
    update={"evaluation": StageEvaluation(env_steps=9, episodes=1, mean_return=1.0)}
)
CONTINUING = EVALUATED.model_copy(update={"continued": True, "training_over": False})


class Members:
    """Recorders of runs in one folder, and what they were told."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.told: list[str | None] = []
        self.attempts = 0

    def recorder(self, run_idx: int | None, invocation: str = "a") -> StageRecorder:
        """Of a member; None is a run of its own."""
        member = f"run_{run_idx}"
        sections: dict[str, Any] = {"training": {"log_dir": f"suite/{member}"}}
        if run_idx is not None:
            sections["experiment"] = ExperimentConfig(
                suite="seeds", run_idx=run_idx, invocation=invocation
            )
        self.attempts += 1
        ranks = Ranks(self.folder, uid=member, attempts=self.attempts)
        given = ranks.given(**sections)
        directory = RunDirectory.claim(given.attempt, given.storage)
        return StageRecorder(given, directory, failed=self.told.append)

    def records(self, folder: str = "suite") -> dict[str, list[int | None]]:
        """Stage -> indices of its runs."""
        path = self.folder / folder / TIMINGS
        if not path.exists():
            return {}
        timings = Timings.from_json(path.read_text())
        return {name: [run.run_idx for run in stage.runs] for name, stage in timings.root.items()}


@pytest.fixture
def members(tmp_path: Path) -> Members:
    return Members(tmp_path)


def finish(recorder: StageRecorder) -> None:
    for stage in RunStage:
        recorder.record(stage, 1.5, continued=False)


def test_a_run_of_its_own_records_in_its_run_directory(members: Members) -> None:
    recorder = members.recorder(None)
    recorder.begin(RunStages(target_env_steps=9), from_scratch=True)
    finish(recorder)
    finish(recorder)  # resumed behind its end: one record a stage
    assert members.records() == {}
    every = {"sac_train": [0], "checkpoint_save": [0], "evaluation": [0]}
    assert members.records("suite/run_None") == every
    (run,) = (
        Timings.from_json((members.folder / "suite/run_None" / TIMINGS).read_text())
        .root["sac_train"]
        .runs
    )
    assert (run.seconds, run.label, run.invocation) == (1.5, "seed 0", "run_None")
    assert run.hardware_id is not None
    assert (members.folder / "suite/run_None/timings_hardware.json").exists()
    assert members.told == [None] * 6


def test_members_of_a_suite_record_beside_one_another(members: Members) -> None:
    for run_idx in (0, 1):
        recorder = members.recorder(run_idx)
        recorder.begin(RunStages(target_env_steps=9), from_scratch=True)
        finish(recorder)
        recorder.record(RunStage.TRAIN, 2.0, continued=True)
    assert members.records() == {
        "sac_train": [0, 1],
        "sac_train_auto_resume": [0, 1],
        "checkpoint_save": [0, 1],
        "evaluation": [0, 1],
    }


def test_a_start_from_scratch_drops_the_runs_own_stale_records(members: Members) -> None:
    for run_idx in (0, 1):
        finish(members.recorder(run_idx))
    members.recorder(1).begin(RunStages(target_env_steps=9), from_scratch=True)
    assert members.records() == {"sac_train": [0], "checkpoint_save": [0], "evaluation": [0]}
    members.recorder(0, "another").begin(RunStages(target_env_steps=9), from_scratch=True)
    assert members.records() == {}


@pytest.mark.parametrize(
    ("state", "left"),
    [
        (RunStages(target_env_steps=9), set()),
        (TRAINED, {"sac_train", "checkpoint_save"}),
        (EVALUATED, {"sac_train", "checkpoint_save", "evaluation"}),
        (CONTINUING, {"sac_train", "checkpoint_save", "evaluation"}),
        (
            CONTINUING.model_copy(update={"training_over": True}),
            {
                "sac_train",
                "checkpoint_save",
                "evaluation",
                "sac_train_auto_resume",
                "checkpoint_save_auto_resume",
            },
        ),
    ],
    ids=["training", "trained", "evaluated", "continuing", "continued"],
)
def test_a_resumed_run_drops_what_it_does_again(
    members: Members, state: RunStages, left: set[str]
) -> None:
    recorder = members.recorder(1)
    for continued in (False, True):
        for stage in RunStage:
            recorder.record(stage, 1.0, continued=continued)
    members.recorder(1).begin(state, from_scratch=False)
    assert set(members.records()) == left
    assert recorder.lacks(RunStage.EVALUATION, continued=False) is ("evaluation" not in left)


def torn(path: Path) -> None:
    path.write_text('{"sac_train": {"total_sec')


def foreign(path: Path) -> None:
    path.write_text('{"schema_version": 2, "hardware": {}}')


def read_only(path: Path) -> None:
    path.write_text("{}")
    path.chmod(0o444)


@pytest.mark.parametrize("spoil", [torn, foreign, read_only], ids=lambda f: f.__name__)
def test_a_file_that_is_refused_is_told_and_kept(
    members: Members, spoil: Callable[[Path], None]
) -> None:
    recorder = members.recorder(0)
    path = members.folder / "suite" / TIMINGS
    spoil(path)
    before = path.read_bytes()
    recorder.begin(RunStages(target_env_steps=9), from_scratch=True)
    recorder.record(RunStage.TRAIN, 1.0, continued=False)
    assert path.read_bytes() == before
    assert members.told[-1] is not None
    assert str(path) in members.told[-1]
    assert members.told[-1].startswith("stale records stay, sac_train: ") or (
        spoil is read_only and members.told[-1].startswith("sac_train: ")  # nothing was stale
    )


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyError("cpu")])
def test_nothing_that_goes_wrong_with_a_record_ends_a_training(
    members: Members, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise error

    recorder = members.recorder(0)
    monkeypatch.setattr(stage_records, "record_timing", fails)
    recorder.record(RunStage.TRAIN, 1.0, continued=False)
    assert members.told == [f"sac_train: {error}"]
    monkeypatch.undo()
    recorder.record(RunStage.CHECKPOINT_SAVE, 1.0, continued=False)
    assert members.told[-1] == members.told[0], "the training is still not in the file"
    recorder.record(RunStage.TRAIN, 1.0, continued=False)
    assert members.told[-1] is None


@pytest.mark.parametrize("held", [TIMINGS, HARDWARE])
def test_a_lock_that_is_not_given_up_holds_no_rank_for_long(
    members: Members, monkeypatch: pytest.MonkeyPatch, held: str
) -> None:
    monkeypatch.setattr(stage_records, "LOCK_PATIENCE_SECONDS", 0.05)
    recorder = members.recorder(0)
    path = members.folder / "suite" / f".{held}.lock"
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        recorder.record(RunStage.TRAIN, 1.0, continued=False)
    assert members.told[-1] is not None
    assert "another process has held the lock for 0.05 seconds" in members.told[-1]
    recorder.record(RunStage.TRAIN, 1.0, continued=False)
    assert members.told[-1] is None
    assert members.records() == {"sac_train": [0]}


def test_the_patience_of_a_rank_is_far_below_that_of_a_collective() -> None:
    assert stage_records.LOCK_PATIENCE_SECONDS <= 5.0


def test_an_attempt_that_was_replaced_records_nothing(members: Members) -> None:
    recorder = members.recorder(0)
    fence = recorder._fence
    replace(fence, attempt=fence.attempt + 1).take()
    with pytest.raises(FencedError):
        recorder.record(RunStage.TRAIN, 1.0, continued=False)
    with pytest.raises(FencedError):
        recorder.begin(RunStages(target_env_steps=9), from_scratch=True)
    assert members.records() == {}
