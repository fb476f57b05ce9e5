"""CUDA MPS by `training.cuda_process_sharing`, against the stand-in daemon of the launcher's tests.

The stand-in is no NVIDIA code; a process becomes its client by connecting, as CUDA does.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tiny_run import Ranks

from drivetrain_api.algorithms import SacConfig
from drivetrain_api.artifacts.mps_evidence import MpsEvidence, PipeKind
from drivetrain_api.errors import SpecError
from drivetrain_api.exit_codes import ExitCode
from drivetrain_api.training import Simulator, TaskConfig, TrainingConfig
from drivetrain_api.trainingrun import TrainingRunSpec
from drivetrain_trainer.launcher.mps.control import Control, MpsError, find_program
from drivetrain_trainer.launcher.mps.daemon import Daemon
from drivetrain_trainer.runtime.devices import ResolvedDevices
from drivetrain_trainer.runtime.doorbell import Interrupt
from drivetrain_trainer.runtime.faults import StopRequestedError
from drivetrain_trainer.telemetry.facts import MpsStatus
from drivetrain_trainer.training.mps_status import mps_status
from drivetrain_trainer.training.process_sharing import Processes, ProcessSharing, open_sharing

GPU = "GPU-00000000-1111-2222-3333-444444444444"
STAND_IN = Path(__file__).parents[1] / "launcher/stand_in/stand_in_mps.py"
CLIENT = """
import socket, sys
with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as daemon:
    daemon.connect(sys.argv[1])
    daemon.sendall(b"client\\n")
    print(daemon.recv(7).decode(), flush=True)
    sys.stdin.read()
"""
SPEC = TrainingRunSpec(
    algo=SacConfig(num_envs=4),
    task=TaskConfig(name="toy"),
    sim=Simulator.MJWARP,
    training=TrainingConfig.model_validate({"cuda_process_sharing": "mps"}),
)
NATIVE = ResolvedDevices("auto", "cuda:0", "auto", "cuda:0", backend="cuda:0")


@dataclass
class Machine:
    """The stand-in on PATH, one daemon of it, and processes that are its clients."""

    folder: Path
    environ: dict[str, str]
    daemon: Daemon
    clients: list[subprocess.Popen[str]] = field(default_factory=list)

    def client(self) -> int:
        """A process that uses the GPU through the daemon."""
        command = [sys.executable, "-I", "-S", "-c", CLIENT, str(self.daemon.pipe.path)]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.clients.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "welcome\n"
        return process.pid

    def sharing(self, devices: ResolvedDevices = NATIVE) -> ProcessSharing:
        made = open_sharing(SPEC, devices, environ=self.environ, root=self.folder)
        assert made is not None
        return made

    def refusal(self, **changes: str | None) -> str:
        environ = {**self.environ, **changes}
        given = {name: value for name, value in environ.items() if value is not None}
        with pytest.raises(SpecError) as refused:
            open_sharing(SPEC, NATIVE, environ=given, root=self.folder)
        assert [one.path for one in refused.value.violations] == ["training.cuda_process_sharing"]
        return str(refused.value)


def machine_with(folder: Path, faults: str = "") -> Machine:
    programs = folder / "bin"
    programs.mkdir()
    (folder / "dev").mkdir()
    (folder / "dev/nvidia0").touch()
    (folder / "dev/nvidia1").touch()
    program = programs / "nvidia-cuda-mps-control"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S {STAND_IN} "$@"\n')
    program.chmod(0o755)
    environ = {"PATH": f"{programs}:{os.environ['PATH']}", "STAND_IN_MPS": faults}
    found = find_program(environ)
    assert found is not None
    daemon = Daemon(GPU, folder / "0", found, environ)
    daemon.start()
    daemon.await_answer(time.monotonic() + 20)
    environ["CUDA_VISIBLE_DEVICES"] = GPU
    environ["CUDA_MPS_PIPE_DIRECTORY"] = str(daemon.pipe.directory)
    return Machine(folder, environ, daemon)


@pytest.fixture
def machine(request: pytest.FixtureRequest) -> Iterator[Machine]:
    folder = Path(f"/tmp/mps-{os.getpid()}-{time.monotonic_ns() % 10**9}")
    folder.mkdir()  # a short path: it is to hold a socket
    made = machine_with(folder, getattr(request, "param", ""))
    yield made
    for client in made.clients:
        client.communicate()
    with contextlib.suppress(ProcessLookupError, ChildProcessError):
        os.kill(made.daemon.pid, signal.SIGKILL)
        os.waitpid(made.daemon.pid, 0)
    shutil.rmtree(folder)


def test_both_processes_of_the_rank_are_seen_and_the_evidence_is_whole(machine: Machine) -> None:
    sharing = machine.sharing()
    assert sharing.evidence.validated is False
    assert sharing.evidence.effective is None
    processes = Processes(machine.client(), machine.client())
    sharing.confirm(processes)
    directory = str(machine.daemon.pipe.directory)
    server = int(machine.daemon.control.ask("get_server_list"))
    assert sharing.evidence == MpsEvidence(
        configured="mps",
        effective="mps",
        validated=True,
        rank=0,
        world_size=1,
        learner_device="cuda:0",
        collector_device="cuda:0",
        learner_gpu_uuid=GPU,
        collector_gpu_uuid=GPU,
        pipe_directory_env=directory,
        pipe_directory=directory,
        control_pipe=f"{directory}/control",
        control_pipe_kind=PipeKind.SOCKET,
        server_pid=server,
        ambient_server=False,
    )


def test_a_process_that_is_no_client_is_named_and_nothing_is_claimed(machine: Machine) -> None:
    sharing = machine.sharing()
    other = os.getpid()
    with pytest.raises(SpecError, match=rf"collector process {other} no client of it \(servers: "):
        sharing.confirm(Processes(machine.client(), other), seconds=0.0)
    assert (sharing.evidence.validated, sharing.evidence.effective) == (False, None)
    assert sharing.evidence.server_pid is None


def test_a_daemon_without_a_client_has_no_server(machine: Machine) -> None:
    with pytest.raises(SpecError, match=r"is not in use: learner .* \(no server was started\)"):
        machine.sharing().confirm(Processes(1, 2), seconds=0.0)


@pytest.mark.parametrize("machine", ["fault"], indirect=True)
def test_a_faulty_server_serves_nobody(machine: Machine) -> None:
    processes = Processes(machine.client(), machine.client())
    with pytest.raises(SpecError, match="is FAULT"):
        machine.sharing().confirm(processes, seconds=0.0)


def test_learner_and_collector_on_two_gpus_share_nothing(machine: Machine) -> None:
    machine.environ["CUDA_VISIBLE_DEVICES"] = f"{GPU},{GPU[:-1]}5"
    apart = ResolvedDevices("auto", "cuda:0", "auto", "cuda:1", backend="cuda:1")
    sharing = machine.sharing(apart)
    with pytest.raises(SpecError, match="learner and collector share no GPU"):
        sharing.confirm(Processes(machine.client(), machine.client()))
    assert not sharing.evidence.validated


class TestBeforeAProcessIsStarted:
    def test_no_pipe_directory(self, machine: Machine) -> None:
        message = machine.refusal(CUDA_MPS_PIPE_DIRECTORY=None)
        assert "CUDA_MPS_PIPE_DIRECTORY is not set: set accelerator.mps.mode InCont" in message

    def test_no_daemon_at_it(self, machine: Machine) -> None:
        assert "No such file" in machine.refusal(CUDA_MPS_PIPE_DIRECTORY=str(machine.folder))

    def test_no_program_to_ask_through(self, machine: Machine) -> None:
        assert "nvidia-cuda-mps-control, which is not on PATH" in machine.refusal(PATH="/nowhere")

    def test_no_gpu_of_that_number(self, machine: Machine) -> None:
        second = ResolvedDevices("auto", "cuda:1", "auto", "cuda:1", backend="cuda:1")
        with pytest.raises(SpecError, match="cuda:1 is none of the 1 GPUs"):
            machine.sharing(second)

    def test_a_gpu_without_a_known_uuid(self, machine: Machine) -> None:
        assert "UUIDs of the GPUs cannot be found" in machine.refusal(CUDA_VISIBLE_DEVICES="7")


def test_a_run_that_asks_for_none_has_no_evidence_and_an_ambient_daemon(machine: Machine) -> None:
    silent = TrainingRunSpec(algo=SacConfig(), task=TaskConfig(name="toy"))
    assert open_sharing(silent, NATIVE, environ=machine.environ) is None
    assert mps_status(machine.environ, cuda=True) is MpsStatus.AMBIENT
    assert mps_status(machine.environ, cuda=True, validated=True) is MpsStatus.ON


class Scripted(Control):
    """Answers of rounds, one after the other; the last one for good."""

    def __init__(self, *rounds: Mapping[str, str] | MpsError) -> None:
        super().__init__("program", Path("/pipes"), {})
        object.__setattr__(self, "rounds", list(rounds))

    def ask(self, command: str, seconds: float = 0.0) -> str:
        del seconds
        rounds: list[Any] = self.__dict__["rounds"]
        if command == "get_server_list" and len(rounds) > 1:
            rounds.pop(0)
        if isinstance(rounds[0], MpsError):
            raise rounds[0]
        answer: str = rounds[0].get(command, "ACTIVE")
        return answer


def scripted(*rounds: Mapping[str, str] | MpsError) -> ProcessSharing:
    evidence = MpsEvidence(
        configured="mps",
        rank=0,
        world_size=1,
        learner_device="cuda:0",
        collector_device="cuda:0",
        learner_gpu_uuid=GPU,
        collector_gpu_uuid=GPU,
        pipe_directory_env="/pipes",
        pipe_directory="/pipes",
        control_pipe="/pipes/control",
        control_pipe_kind=PipeKind.FIFO,
    )
    return ProcessSharing(Scripted({}, *rounds), evidence)


def serving(*pids: int) -> dict[str, str]:
    return {"get_server_list": "9", "get_client_list 9": "\n".join(map(str, pids))}


def test_a_server_that_begins_late_is_waited_for() -> None:
    starting = {**serving(1, 2), "get_server_status 9": "INITIALIZING"}
    sharing = scripted(MpsError("no answer"), starting, serving(1), serving(1, 2))
    sharing.confirm(Processes(1, 2))
    assert (sharing.evidence.validated, sharing.evidence.server_pid) == (True, 9)


def test_two_servers_are_no_sharing() -> None:
    apart = {"get_server_list": "8\n9", "get_client_list 8": "1", "get_client_list 9": "2"}
    with pytest.raises(SpecError, match="have servers of their own"):
        scripted(apart).confirm(Processes(1, 2), seconds=0.0)


def test_the_wait_ends_by_a_stop() -> None:
    interrupt = Interrupt()
    interrupt.set()
    with pytest.raises(StopRequestedError):
        scripted(MpsError("no answer")).confirm(Processes(1, 2), interrupt=interrupt)


class TestRun:
    """Ranks of a CPU, told that they share a GPU."""

    def pretend(self, monkeypatch: pytest.MonkeyPatch, sharing: ProcessSharing) -> list[bool]:
        told: list[bool] = []

        def status(*, cuda: bool, validated: bool) -> MpsStatus:
            assert not cuda
            told.append(validated)
            return MpsStatus.OFF

        def opened(*_: object, **__: object) -> ProcessSharing:
            return sharing

        monkeypatch.setattr("drivetrain_trainer.training.start.open_sharing", opened)
        monkeypatch.setattr("drivetrain_trainer.training.assembly.mps_status", status)
        return told

    def test_validated_evidence_is_in_the_manifest(
        self, ranks: Ranks, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        attempt = ranks.attempt()
        sharing = scripted(serving(os.getpid(), attempt.collector.pid))
        told = self.pretend(monkeypatch, sharing)
        assert attempt.run() is ExitCode.DONE
        manifest = attempt.summary.runtime_manifest
        assert manifest is not None
        evidence = manifest["cuda_process_sharing"]
        assert MpsEvidence.model_validate(evidence) == sharing.evidence
        assert (evidence["validated"], evidence["server_pid"]) == (True, 9)
        assert told == [True]

    def test_what_does_not_hold_refuses_the_run_with_its_reason(
        self, ranks: Ranks, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(
            ProcessSharing.confirm, "__kwdefaults__", {"seconds": 0.0, "interrupt": None}
        )
        attempt = ranks.attempt()
        told = self.pretend(monkeypatch, scripted(serving(os.getpid())))
        assert attempt.run() is ExitCode.REFUSED
        assert attempt.outcome.error is not None
        collector = attempt.collector.pid
        assert f"collector process {collector} no client of it" in attempt.outcome.error
        manifest = attempt.summary.runtime_manifest
        assert manifest is not None
        evidence = manifest["cuda_process_sharing"]
        assert (evidence["configured"], evidence["validated"]) == ("mps", False)
        assert "effective" not in evidence or evidence["effective"] is None
        assert told == []
