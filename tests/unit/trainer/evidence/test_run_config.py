"""run_config.json holds the composed spec and what it resolved to."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest

from drivetrain_api.algorithms import Precision
from drivetrain_api.artifacts.run_config import ActiveTerm, RunConfig
from drivetrain_api.attempt import AttemptSpec
from drivetrain_api.compose import compose
from drivetrain_api.metrics import Family, Owner, Reduction, Unit
from drivetrain_api.tasks import TaskSpec
from drivetrain_trainer.evidence import run_config
from drivetrain_trainer.evidence.fence import FencedError
from drivetrain_trainer.evidence.run_config import write_run_config
from drivetrain_trainer.evidence.run_directory import RunDirectory

MakeAttempt = Callable[..., AttemptSpec]
TASK = TaskSpec("half_cheetah", "m:f", observation_dim=17, action_dim=6, episode_length=1000)
DEVICES = {
    "learner": {"configured": "auto", "resolved": "cpu"},
    "collector_tensor": {"configured": "auto", "resolved": "cpu"},
}


def test_holds_the_composed_spec_and_the_facts(make_attempt: MakeAttempt, tmp_path: Path) -> None:
    attempt = make_attempt(2, training={"total_env_steps": 1000}, seed=5)
    directory = RunDirectory.claim(attempt, tmp_path)
    spec = compose(attempt.spec, TASK)
    written = write_run_config(
        directory,
        attempt,
        spec,
        TASK,
        resolved_devices=DEVICES,
        resolved_precision=Precision.FP32,
        terms=[ActiveTerm(manager="reward", name="forward", weight=1.0)],
        families=[Family("gait/", Unit.FRACTION, Owner.ENVIRONMENT, Reduction.SUM)],
    )
    config = RunConfig.from_json(directory.run_config.read_text())
    assert config == written
    assert config.algo.seed == 5
    assert config.training.log_root == "logs/sac/half_cheetah"
    run = config.run
    assert (run.name, run.uid, run.attempt, run.world_size) == ("cheetah", "uid-1", 2, 1)
    assert run.resolved_devices.collector_tensor.resolved == "cpu"
    assert (run.observation_dim, run.action_dim, run.terms[0].name) == (17, 6, "forward")
    (family,) = run.metric_families
    assert (family.prefix, family.unit, family.reduction) == ("gait/", "fraction", "sum")
    assert run.versions["torch"] == version("torch")
    assert run.versions["mujoco"] == version("mujoco")
    assert run.versions["python"] == platform.python_version()
    assert "drivetrain" in run.versions
    assert run.host is not None
    assert run.host.usable_cpus == len(os.sched_getaffinity(0))
    assert run.host.cpu_model
    assert run.host.memory_bytes > 0
    assert '"num_envs"' in directory.run_config.read_text()


def test_an_older_attempt_may_not_write_it(make_attempt: MakeAttempt, tmp_path: Path) -> None:
    attempt = make_attempt(1, training={"total_env_steps": 1000})
    directory = RunDirectory.claim(attempt, tmp_path)
    RunDirectory.claim(make_attempt(2), tmp_path)
    with pytest.raises(FencedError):
        write_run_config(
            directory,
            attempt,
            compose(attempt.spec, TASK),
            TASK,
            resolved_devices=DEVICES,
            resolved_precision=Precision.FP32,
        )
    assert not directory.run_config.exists()


def test_a_package_that_is_not_there_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_config, "PACKAGES", ("numpy", "no-such-package"))
    assert set(run_config.versions()) == {"drivetrain", "python", "numpy"}


def test_without_a_model_name_the_architecture_stands(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text("processor : 0\nCPU implementer : 0x41\n")
    assert run_config._cpu_model(tmp_path / "cpuinfo") == platform.machine()
