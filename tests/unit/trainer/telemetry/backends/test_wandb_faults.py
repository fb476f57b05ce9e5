"""The backend when the service, the client, the disk or training itself fails."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from structlog.testing import capture_logs
from wandb_file import read_offline_run
from wandb_server import WandbServer
from wandb_trial import (
    KEY,
    MakeContext,
    assert_no_key,
    offline_run,
    reports,
    tracked,
)

from drivetrain_trainer.telemetry.backends import wandb_session
from drivetrain_trainer.telemetry.backends.wandb import WandbBackend
from drivetrain_trainer.telemetry.backends.wandb_link import WandbError
from drivetrain_trainer.telemetry.backends.writer import BackendWriter


def service_says(server: WandbServer, status: int) -> None:
    server.behaviour.fail = lambda _operation: status


@dataclass(frozen=True)
class Outage:
    """A way in which the service cannot be used."""

    fault: Callable[[WandbServer], None]
    reason: str
    """In the client's words."""
    advice: str
    key: str = KEY


@pytest.mark.parametrize(
    "outage",
    [
        pytest.param(
            Outage(lambda _: None, "No API key configured", "WANDB_API_KEY", key=""), id="no key"
        ),
        pytest.param(Outage(lambda s: service_says(s, 401), "401", "WANDB_API_KEY"), id="bad key"),
        pytest.param(Outage(lambda s: service_says(s, 500), "500", "next attempt"), id="errors"),
        pytest.param(Outage(lambda s: service_says(s, 429), "429", "next attempt"), id="too many"),
        pytest.param(Outage(WandbServer.stop, "refused", "next attempt"), id="dead"),
    ],
)
def test_where_the_service_cannot_be_used_the_run_is_recorded_and_nothing_is_lost(
    make_context: MakeContext,
    server: WandbServer,
    monkeypatch: pytest.MonkeyPatch,
    outage: Outage,
) -> None:
    outage.fault(server)
    monkeypatch.setenv("WANDB_API_KEY", outage.key)  # "": as a Secret that is not there reads
    context = make_context(wandb_api_key_secret_ref={"name": "wb"})
    records = reports(10, 20)
    with capture_logs() as logs:
        started = time.monotonic()
        writer = BackendWriter(WandbBackend(context, init_timeout_s=1.0))
        for record in records:
            writer.put(record)
        assert time.monotonic() - started < 0.5, "training waited"
        health = writer.close()
    assert (health.written, health.lost, health.error) == (2, 0, None)
    assert outage.reason in health.details["offline_because"]
    assert "run_url" not in health.details
    (warning,) = [entry for entry in logs if entry["log_level"] == "warning"]
    assert outage.reason in warning["reason"]
    assert outage.advice in warning["advice"]
    if outage.advice == "WANDB_API_KEY":
        assert "Secret 'wb'" in warning["advice"]
        assert "training.wandb_mode=offline" in warning["advice"]
    assert warning["later"] == f"'wandb sync {health.details['files']}' sends it"
    run = offline_run(context.directory)
    assert [step["env_steps"] for step in run.history] == [10, 20]
    assert_no_key(context.directory, str(health), str(logs))


def test_a_service_that_dies_holds_up_no_report_and_the_end_is_bounded(
    make_context: MakeContext, server: WandbServer
) -> None:
    context = make_context()
    backend = WandbBackend(context, finish_timeout_s=1.0)
    backend.open()
    backend.write(reports(10)[0])
    server.stop()
    started = time.monotonic()
    for record in reports(20, 30):
        backend.write(record)
    assert time.monotonic() - started < 1.0
    processes = tracked(backend)
    started = time.monotonic()
    with pytest.raises(WandbError, match=r"'wandb sync .* sends it") as caught:
        backend.close()
    assert time.monotonic() - started < 15.0
    assert not [process for process in processes if process.is_running()]
    assert_no_key(context.directory, str(caught.value))

    server.start()
    advice = str(caught.value).split("'")[1]
    assert advice == f"wandb sync --include-online {backend.details['files']}"
    command = [sys.executable, "-m", *advice.split()]
    subprocess.run(command, cwd=context.directory, capture_output=True, check=True, timeout=60)
    (run,) = server.runs.values()
    assert {step["env_steps"] for step in run.history} == {10, 20, 30}


def test_a_client_that_is_killed_costs_its_records_and_no_time(make_context: MakeContext) -> None:
    backend = WandbBackend(make_context(wandb_mode="offline"))
    backend.open()
    client, *services = tracked(backend)
    client.kill()
    started = time.monotonic()
    for record in reports(10, 20):
        with pytest.raises(WandbError, match="ProcessEnded"):
            backend.write(record)
    with pytest.raises(WandbError, match="ProcessEnded"):
        backend.close()
    assert time.monotonic() - started < 2.0
    assert psutil.wait_procs(services, timeout=30)[1] == []


def test_a_client_that_hangs_is_killed(
    make_context: MakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = WandbBackend(make_context(wandb_mode="offline"))
    backend.open()
    monkeypatch.setattr(wandb_session, "ANSWER_TIMEOUT_S", 0.2)
    processes = tracked(backend)
    processes[0].suspend()
    with pytest.raises(WandbError, match=r"NoAnswer: none within 0\.2 s"):
        backend.write(reports(10)[0])
    assert psutil.wait_procs(processes, timeout=10)[1] == []


def test_a_directory_that_cannot_be_written_loses_the_records_and_says_so(
    make_context: MakeContext,
) -> None:
    context = make_context(wandb_mode="offline")
    (context.directory / "wandb").write_text("in the way")
    writer = BackendWriter(WandbBackend(context))
    writer.put(reports(10)[0])
    health = writer.close()
    assert (health.written, health.lost) == (0, 1)
    assert health.error is not None
    assert str(context.directory / "wandb") in health.error


TRAINER = """
import os, signal, sys, time
from pathlib import Path
from types import SimpleNamespace
from drivetrain_api.trainingrun import TrainingRunSpec
from drivetrain_trainer.telemetry.backends.base import BackendContext
from drivetrain_trainer.telemetry.backends.wandb import WandbBackend
from drivetrain_trainer.telemetry.record import Record

training = {"wandb_mode": sys.argv[2]}
spec = {"algo": {"name": "sac"}, "task": {"name": "ant"}, "training": training}
backend = WandbBackend(
    BackendContext(
        directory=Path(sys.argv[1]),
        spec=TrainingRunSpec.model_validate(spec),
        facts=SimpleNamespace(run_name="run"),
        start_env_steps=0,
        attempt=1,
        run_config={},
    )
)
backend.open()
for step in range(100):
    backend.write(Record(step, step, time.time(), {"Loss/actor": step / 7}))
print("client", backend._session._link.pid, flush=True)
signal.pause()
"""


@contextmanager
def trainer(directory: Path, mode: str) -> Iterator[tuple[int, list[psutil.Process]]]:
    """A process that has logged a hundred reports; its id, and the client's processes."""
    command = [sys.executable, "-c", TRAINER, str(directory), mode]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, b"")
        client = psutil.Process(next(int(ln.split()[1]) for ln in lines if b"client " in ln[:7]))
        processes = [client, *client.children(recursive=True)]
        assert len(processes) >= 2
        yield process.pid, processes


def test_after_kill_9_of_training_nothing_is_left_running_and_nothing_is_lost(
    tmp_path: Path,
) -> None:
    with trainer(tmp_path, "offline") as (pid, processes):
        os.kill(pid, signal.SIGKILL)
    assert psutil.wait_procs(processes, timeout=20)[1] == []
    run = offline_run(tmp_path)
    assert [step["env_steps"] for step in run.history] == list(range(100))
    assert run.exit_code == 1


def test_after_kill_9_of_training_a_dead_service_keeps_nothing_running(
    tmp_path: Path, server: WandbServer
) -> None:
    with trainer(tmp_path, "online") as (pid, processes):
        server.stop()
        os.kill(pid, signal.SIGKILL)
    assert psutil.wait_procs(processes, timeout=20)[1] == []


def test_after_kill_9_of_everything_what_was_flushed_can_be_read(tmp_path: Path) -> None:
    with trainer(tmp_path, "offline") as (pid, processes):
        (path,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
        deadline = time.monotonic() + 60.0
        while len(read_offline_run(path).history) < 100 and time.monotonic() < deadline:
            time.sleep(0.05)
        for each in [pid, *(process.pid for process in processes)]:
            os.kill(each, signal.SIGKILL)
    run = read_offline_run(path)
    assert [step["env_steps"] for step in run.history] == list(range(100))
    assert run.exit_code is None
