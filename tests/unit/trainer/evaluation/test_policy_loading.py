from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from drivetrain_trainer.evaluation.policy_loading import load_policy
from drivetrain_trainer.evidence.checkpoint_manifest import CheckpointError
from drivetrain_trainer.evidence.run_directory import RunDirectory

MakeRun = Callable[..., RunDirectory]


def test_a_run_directory_gives_its_best_policy(make_run: MakeRun) -> None:
    run = make_run([1000, 2000, 3000], best=2000)
    loaded = load_policy(run.path)
    assert loaded.checkpoint.env_steps == 2000
    assert loaded.task.name == "inverted_double_pendulum"
    assert loaded.run_directory == run.path
    assert not loaded.policy.training
    action = loaded.policy(torch.randn(3, loaded.task.observation_dim))
    assert action.shape == (3, 1)
    assert float(action.abs().max()) <= 1.0


def test_the_latest_is_taken_where_asked_for_or_none_is_best(make_run: MakeRun) -> None:
    run = make_run([1000, 3000], best=1000)
    assert load_policy(run.path, latest=True).checkpoint.env_steps == 3000
    run = make_run([500, 600])
    assert load_policy(run.path).checkpoint.env_steps == 600


def test_a_checkpoint_folder_gives_its_own_policy(make_run: MakeRun) -> None:
    run = make_run([1000, 2000], best=2000)
    folder = run.checkpoints / "step_000000001000"
    first, best = load_policy(folder), load_policy(run.path)
    assert first.checkpoint.env_steps == 1000
    observation = torch.randn(4, 9)
    assert not torch.equal(first.policy(observation), best.policy(observation))


def test_a_truncated_file_is_refused_by_name(make_run: MakeRun) -> None:
    run = make_run()
    file = run.checkpoints / "step_000000001000" / "learner.pt"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(CheckpointError, match=r"learner\.pt: truncated: \d+ bytes instead of \d+"):
        load_policy(run.path)


def test_a_damaged_file_is_refused_by_name(make_run: MakeRun) -> None:
    run = make_run()
    file = run.checkpoints / "step_000000001000" / "learner.pt"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0xFF
    file.write_bytes(bytes(content))
    with pytest.raises(CheckpointError, match=r"learner\.pt: checksum differs"):
        load_policy(run.path)


def test_a_checkpoint_of_another_task_is_refused(make_run: MakeRun) -> None:
    run = make_run()
    other = make_run(task={"name": "hopper"})
    shutil.rmtree(run.checkpoints)
    shutil.copytree(other.checkpoints, run.checkpoints)
    with pytest.raises(CheckpointError, match="is of task hopper; this run trains inverted_double"):
        load_policy(run.path)


def test_a_checkpoint_away_from_its_run_is_refused(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run()
    lonely = tmp_path / "elsewhere" / "step_000000001000"
    shutil.copytree(run.checkpoints / "step_000000001000", lonely)
    with pytest.raises(CheckpointError, match=r"run_config\.json: is missing"):
        load_policy(lonely)


def test_a_path_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="is not there"):
        load_policy(tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(CheckpointError, match="neither a checkpoint"):
        load_policy(tmp_path / "empty")


def test_a_configuration_that_does_not_parse_is_refused(make_run: MakeRun) -> None:
    run = make_run()
    run.run_config.write_text("{}")
    with pytest.raises(CheckpointError, match=r"run_config\.json: not a RunConfig: .*algo"):
        load_policy(run.path)


def test_a_task_that_is_not_installed_is_refused(make_run: MakeRun) -> None:
    run = make_run()
    config = json.loads(run.run_config.read_text())
    config["task"]["name"] = "inverted_double_pendulm"
    run.run_config.write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match="did you mean inverted_double_pendulum"):
        load_policy(run.path)
