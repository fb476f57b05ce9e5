"""A budget that does not fit is refused before a collector is spawned, and says so on disk."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tiny_run import Ranks

from drivetrain_api.artifacts.outcome import RankOutcome, RunStatus
from drivetrain_api.artifacts.runtime_manifest import read_manifest
from drivetrain_api.budget import MIB, memory_budget, sizes_of
from drivetrain_api.errors import SpecError
from drivetrain_api.exit_codes import ExitCode
from drivetrain_trainer import train
from drivetrain_trainer.runtime.collector import CollectorProcess
from drivetrain_trainer.runtime.devices import ResolvedDevices
from drivetrain_trainer.training import ranks as ranks_module
from drivetrain_trainer.training.memory import check_before_spawn, check_free_device


@pytest.fixture
def small_machine(tmp_path: Path) -> Path:
    """A root whose machine has 1 GiB left."""
    root = tmp_path / "root"
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/meminfo").write_text("MemTotal: 4194304 kB\nMemAvailable: 1048576 kB\n")
    (root / "proc/self/statm").write_text("20000 10000 0 0 0 0 0\n")
    return root


def test_what_fits_is_not_refused(ranks: Ranks, small_machine: Path) -> None:
    check_before_spawn(ranks.attempt().given, {}, small_machine)


def test_a_refusal_leaves_manifest_summary_and_outcome(ranks: Ranks, small_machine: Path) -> None:
    attempt = ranks.attempt(algo={"replay_rows": 100_000_000})
    with pytest.raises(SpecError, match=r"algo\.replay_rows: 100000000 needs too much memory"):
        check_before_spawn(attempt.given, {}, small_machine)
    summary = attempt.summary
    assert summary.status is RunStatus.FAILED
    assert summary.error is not None
    assert "at most " in summary.error
    manifest = read_manifest(summary.runtime_manifest, completed=False).as_mapping()
    budget: Any = manifest["tensor_memory_budget"]
    # Rows of 2 x 4 + 1 + 3 values.
    assert budget["replay_storage"] == 100_000_000 * 12 * 4
    assert budget["required"] > 1024 * MIB
    assert "inference_memory_budget" not in manifest
    assert attempt.outcome.exit_code == ExitCode.REFUSED
    assert attempt.outcome.error == summary.error


def test_other_ranks_tell_their_launcher_alone(ranks: Ranks, small_machine: Path) -> None:
    attempt = ranks.attempt(algo={"replay_rows": 100_000_000})
    with pytest.raises(SpecError):
        check_before_spawn(attempt.given, {"RANK": "1", "LOCAL_RANK": "0"}, small_machine)
    assert attempt.given.scratch is not None
    outcome = RankOutcome.from_json(attempt.given.scratch.outcome(1).read_text())
    assert outcome.status is RunStatus.FAILED
    assert not list(attempt.given.storage.rglob("run_summary.json"))


def test_no_collector_is_spawned_for_a_refused_run(
    ranks: Ranks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = ranks.attempt().given

    def refuse(_: object) -> None:
        raise SpecError(())

    def spawn(**_: object) -> CollectorProcess:
        raise AssertionError("spawned")

    monkeypatch.setattr(train, "check_before_spawn", refuse)
    monkeypatch.setattr(train.CollectorProcess, "spawn", spawn)
    spec = tmp_path / "run.json"
    spec.write_text(given.attempt.model_dump_json(by_alias=True))
    assert train.main(["--spec", str(spec), "--storage", str(tmp_path)]) == ExitCode.REFUSED


def test_a_device_is_asked_for_what_is_free_and_ranks_wait_for_each_other(
    ranks: Ranks, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = ranks.attempt().given
    needed = memory_budget(sizes_of(given.spec, observation_dim=4, action_dim=1, on_device=True))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    met: list[int] = []
    rank = SimpleNamespace(local_rank=0, greatest=met.append)
    devices = ResolvedDevices("auto", "cuda:0", "auto", "cuda:0")

    def check(free: int) -> None:
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (free, 2 * free))
        check_free_device(given, devices, needed, rank)  # type: ignore[arg-type]  # a stand-in

    check(2 * needed.required)
    with pytest.raises(SpecError, match="free on cuda:0"):
        check(needed.required)
    assert met == [0, 0]


def test_a_host_learner_asks_no_device(ranks: Ranks) -> None:
    given = ranks.attempt().given
    needed = memory_budget(sizes_of(given.spec, observation_dim=4, action_dim=1, on_device=False))
    check_free_device(
        given, ResolvedDevices("auto", "cpu", "auto", "cpu"), needed, ranks_module.Ranks()
    )


@pytest.mark.gpu
@pytest.mark.parametrize("capacity", [1, 2])
def test_on_a_device_a_run_has_a_ring_there_and_its_budget(ranks: Ranks, capacity: int) -> None:
    attempt = ranks.attempt(
        training={"device": "cuda", "inference_slot_capacity": capacity, "total_env_steps": 400}
    )
    assert attempt.run() is ExitCode.DONE
    manifest = attempt.summary.runtime_manifest
    assert manifest is not None
    read_manifest(manifest, completed=True)
    budget: Any = manifest["inference_memory_budget"]
    assert budget["ipc_event_count"] == 3 * capacity
    devices: Any = manifest["devices"]
    assert devices["inference_ring"] == "cuda"
