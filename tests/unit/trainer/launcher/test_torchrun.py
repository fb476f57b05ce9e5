"""torchrun's command line and report."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch.distributed import run

from drivetrain_api.attempt import AttemptSpec
from drivetrain_trainer.launcher.scratch import Scratch
from drivetrain_trainer.launcher.settings import LauncherSettings, Rendezvous
from drivetrain_trainer.launcher.supervise import time_to_stop
from drivetrain_trainer.launcher.torchrun import (
    RankFailure,
    TorchrunPlan,
    TorchrunReport,
    read_report,
)


@pytest.fixture
def plan(tmp_path: Path) -> TorchrunPlan:
    document = {
        "name": "run",
        "namespace": "default",
        "uid": "6a7b",
        "attempt": 4,
        "created": "2026-03-09T18:30:00Z",
        "spec": {"algo": {"name": "sac"}, "task": {"name": "ant"}},
    }
    return TorchrunPlan(
        attempt=AttemptSpec.model_validate(document),
        rendezvous=Rendezvous(3, 2, 1, "run-a4-0.run-a4", 29511),
        settings=LauncherSettings.of({"DRIVETRAIN_SPEC_FILE": "/etc/x/run.json"}),
        scratch=Scratch(tmp_path),
        grace_seconds=60,
    )


def test_torchrun_takes_the_arguments_as_they_are_meant(plan: TorchrunPlan) -> None:
    arguments = run.parse_args(plan.arguments())  # type: ignore[no-untyped-call]
    config, command, rank = run.config_from_args(arguments)
    assert (config.min_nodes, config.max_nodes, config.nproc_per_node) == (3, 3, 2)
    assert config.rdzv_backend == "static"
    assert config.rdzv_endpoint == "run-a4-0.run-a4:29511"
    assert config.rdzv_configs["rank"] == 1
    assert config.run_id == "6a7b-a4"
    assert config.max_restarts == 0
    assert config.shutdown_timeout == 60
    assert rank == ["-u", "-m", "drivetrain_trainer.train", "--spec", "/etc/x/run.json"]
    assert "python" in str(command)


def test_the_ranks_environment(plan: TorchrunPlan) -> None:
    environment = plan.environment({"PATH": "/bin", "DRIVETRAIN_SCRATCH": "stale"})
    assert environment["OMP_NUM_THREADS"] == "1"
    assert environment["PATH"] == "/bin"
    assert environment["DRIVETRAIN_SCRATCH"] == "/run/drivetrain"
    assert environment["DRIVETRAIN_STORAGE"] == "/var/lib/drivetrain"
    assert plan.environment({"OMP_NUM_THREADS": "4"})["OMP_NUM_THREADS"] == "4"


def test_a_report_is_read_back_and_anything_else_is_none(tmp_path: Path) -> None:
    report = TorchrunReport(failures=(RankFailure(rank=1, exit_code=-9, seen_at=1.0),))
    path = tmp_path / "torchrun.json"
    assert read_report(path) is None
    path.write_text(report.to_json())
    assert read_report(path) == report
    for content in ("{", "[]", '{"failures": 3}', " " * 100_000):
        path.write_text(content)
        assert read_report(path) is None


@pytest.mark.parametrize(("grace", "seconds"), [(5, 4), (8, 7), (30, 27), (60, 55), (3600, 3595)])
def test_ranks_get_the_grace_period_less_what_the_end_takes(grace: float, seconds: float) -> None:
    assert time_to_stop(grace) == seconds
