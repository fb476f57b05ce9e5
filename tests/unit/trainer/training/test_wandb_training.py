"""Real ranks that log to Weights & Biases: the real client, offline and to a stand-in service."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from event_files import event_rows
from tiny_run import Attempt, Ranks
from wandb_file import read_offline_run
from wandb_server import WandbServer
from wandb_trial import assert_no_key, reachable_server

from drivetrain_api.artifacts.run_summary import BackendTelemetry
from drivetrain_api.exit_codes import ExitCode
from drivetrain_trainer.telemetry.backends.wandb import WandbBackend

OF_CLIENT = {"env_steps", "_step", "_runtime", "_timestamp"}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[WandbServer]:
    with reachable_server(monkeypatch, tmp_path) as found:
        yield found


def of_wandb(attempt: Attempt) -> BackendTelemetry:
    telemetry = attempt.summary.telemetry
    assert telemetry is not None
    (found,) = [backend for backend in telemetry.backends if backend.name == "wandb"]
    return found


def trained(ranks: Ranks, logger: str, steps: int, **training: Any) -> Attempt:
    attempt = ranks.attempt(
        training={"logger": logger, "total_env_steps": steps, "log_interval": 5, **training}
    )
    assert attempt.run() is ExitCode.DONE
    assert not [p for p in psutil.Process().children(recursive=True) if "wandb" in p.name()]
    return attempt


def all_rows(directory: Path) -> list[tuple[int, dict[str, float]]]:
    """Of every event file, one after the other as the attempts wrote them."""
    paths = sorted(directory.glob("events.out.tfevents.*"))
    return [row for path in paths for row in event_rows(path)]


def assert_same(history: list[dict[str, Any]], events: list[tuple[int, dict[str, float]]]) -> None:
    assert [row["env_steps"] for row in history] == [step for step, _ in events]
    for row, (_, values) in zip(history, events, strict=True):
        assert set(row) - OF_CLIENT == set(values)
        for tag, value in values.items():
            np.testing.assert_equal(np.float32(float(row[tag])), np.float32(value))


def test_a_resumed_offline_run_holds_what_tensorboard_holds(ranks: Ranks) -> None:
    options = {"wandb_mode": "offline", "wandb_project": "arms"}
    trained(ranks, "tensorboard,wandb", 60, **options)
    attempt = trained(ranks, "tensorboard,wandb", 120, **options)
    runs = [read_offline_run(path) for path in sorted(attempt.directory.glob("wandb/*/*.wandb"))]
    assert len(runs) == 2
    assert len({run.run_id for run in runs}) == 1
    assert_same([row for run in runs for row in run.history], all_rows(attempt.directory))
    config = runs[1].config
    assert config["algo"]["num_envs"] == 2
    assert config["training"]["wandb_project"] == "arms"
    assert attempt.summary.wandb_run_url is None


def test_a_resumed_online_run_is_one_page_which_the_summary_names(
    ranks: Ranks, server: WandbServer
) -> None:
    trained(ranks, "wandb, tensorboard", 60)
    attempt = trained(ranks, "wandb, tensorboard", 120)
    (run,) = server.runs.values()
    assert attempt.summary.wandb_run_url == f"{server.url}/lab/drivetrain/runs/{run.name}"
    assert_same(run.history, all_rows(attempt.directory))
    assert run.exit_codes == [0, 0]
    assert run.display_name == attempt.directory.name
    assert run.config["algo"]["value"]["name"] == "sac"
    assert_no_key(ranks.storage)


def test_a_dead_service_neither_stops_a_run_nor_costs_it_a_value(
    ranks: Ranks, server: WandbServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(WandbBackend.__init__.__kwdefaults__, "init_timeout_s", 1.0)
    server.stop()
    attempt = trained(ranks, "tensorboard,wandb", 60)
    (path,) = attempt.directory.glob("wandb/offline-run-*/*.wandb")
    assert_same(read_offline_run(path).history, all_rows(attempt.directory))
    health = of_wandb(attempt)
    assert health.lost == 0
    assert health.written > 0
    assert "refused" in health.details["offline_because"]


def test_a_service_that_dies_during_a_run_is_told_in_the_summary_with_the_way_to_send_the_rest(
    ranks: Ranks, server: WandbServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(WandbBackend.__init__.__kwdefaults__, "finish_timeout_s", 1.0)
    attempt = ranks.attempt(training={"logger": "wandb", "total_env_steps": 10**6})

    def end_both() -> None:
        server.stop()
        attempt.stop.interrupt.set()

    attempt.when(lambda: bool(server.runs), end_both)
    assert attempt.run() is ExitCode.CHECKPOINTED
    health = of_wandb(attempt)
    assert health.error is not None
    assert f"'wandb sync --include-online {health.details['files']}' sends it" in health.error
