"""MPS against a stand-in daemon: each part by itself; the whole launcher is in test_launch_mps.

The stand-in (stand_in/stand_in_mps.py) is no NVIDIA code; the real program is asked in
test_mps_gpu.py, where there is a GPU.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from drivetrain_api.artifacts.mps_evidence import MpsEvidence, PipeKind
from drivetrain_api.exit_codes import ExitCode
from drivetrain_api.mps import MemoryLimits
from drivetrain_api.training import CudaProcessSharing
from drivetrain_api.trainingrun import MpsMode
from drivetrain_trainer.launcher.mps.control import (
    Control,
    ControlPipe,
    MpsError,
    find_program,
)
from drivetrain_trainer.launcher.mps.daemon import Daemon, stop_daemons
from drivetrain_trainer.launcher.mps.gpus import gpu_uuids
from drivetrain_trainer.launcher.mps.mode import ExternalMps, InContainerMps
from drivetrain_trainer.launcher.mps.use import UseCheck, rank_of_process
from drivetrain_trainer.launcher.processes import reap
from drivetrain_trainer.launcher.rank import enter_rank
from drivetrain_trainer.launcher.scratch import Scratch

GPU = "GPU-00000000-1111-2222-3333-444444444444"
OTHER = "GPU-00000000-1111-2222-3333-555555555555"


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder whose path leaves room for a socket's name."""
    folder = Path(f"/tmp/mps-{os.getpid()}-{time.monotonic_ns() % 10**9}")
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)


@dataclass
class Machine:
    """The stand-in on PATH, and the daemons that were started with it."""

    folder: Path
    stand_in: Path
    started: list[Daemon] = field(default_factory=list)

    def environ(self, *faults: str) -> dict[str, str]:
        return {"PATH": f"{self.stand_in}:{os.environ['PATH']}", "STAND_IN_MPS": ",".join(faults)}

    def daemon(self, *faults: str, gpu: str = GPU, name: str = "0") -> Daemon:
        environ = self.environ(*faults)
        program = find_program(environ)
        assert program is not None
        made = Daemon(gpu, self.folder / name, program, environ)
        self.started.append(made)
        return made

    def running(self, *faults: str, gpu: str = GPU, name: str = "0") -> Daemon:
        made = self.daemon(*faults, gpu=gpu, name=name)
        made.start()
        made.await_answer(time.monotonic() + 20)
        return made


@pytest.fixture
def machine(short: Path, mps_program: Path) -> Iterator[Machine]:
    made = Machine(short, mps_program)
    yield made
    for daemon in made.started:
        if daemon.pid:
            os.kill(daemon.pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(daemon.pid, 0)


def connect(daemon: Daemon) -> socket.socket:
    """Become a client, as CUDA does in a rank."""
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    client.connect(str(daemon.pipe.path))
    client.sendall(b"client\n")
    assert client.recv(7) == b"welcome"
    return client


class TestDaemon:
    def test_its_folders_are_private_and_it_sees_one_gpu(self, machine: Machine) -> None:
        daemon = machine.running()
        for folder in (daemon.folder, daemon.pipe.directory, daemon.logs):
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        log = (daemon.logs / "control.log").read_text()
        assert f"CUDA_VISIBLE_DEVICES is {GPU}" in log
        assert daemon.pipe.check_listening() is PipeKind.SOCKET

    def test_limits_are_set_before_any_client(self, machine: Machine) -> None:
        daemon = machine.running()
        daemon.limit(40, "512M")
        assert daemon.control.ask("get_default_active_thread_percentage") == "40.0"
        assert daemon.control.ask("get_default_device_pinned_mem_limit 0") == "512M"

    def test_a_limit_that_is_not_kept_is_refused(self, machine: Machine) -> None:
        with pytest.raises(MpsError, match=r"was told 40 % of the threads, and keeps '100\.0'"):
            machine.running("forget").limit(40, None)

    @pytest.mark.parametrize(
        ("fault", "message"),
        [
            ("exit", "ended at once with code 1; its log says: .*Failed to initialize the driver"),
            ("silent", r"does not answer \(.*control: No such file or directory\)"),
            ("refuse", r"does not answer \(.* refused 'get_server_list': Access denied\)"),
        ],
    )
    def test_one_that_does_not_start_is_explained(
        self, machine: Machine, fault: str, message: str
    ) -> None:
        daemon = machine.daemon(fault)
        daemon.start()
        patience = 20 if fault == "exit" else 1
        with pytest.raises(MpsError, match=f"the MPS daemon of {GPU} {message}"):
            daemon.await_answer(time.monotonic() + patience)

    def test_a_daemon_that_never_answers_is_not_waited_for(self, machine: Machine) -> None:
        daemon = machine.daemon("deaf")
        daemon.start()
        while not daemon.pipe.path.exists():
            time.sleep(0.01)
        with pytest.raises(MpsError, match=r"no answer to 'get_server_list' within 0 s"):
            daemon.control.ask("get_server_list", 0.3)

    def test_a_path_too_long_for_a_socket_is_refused_with_the_figures(
        self, machine: Machine
    ) -> None:
        daemon = machine.daemon(name="x" * 60)
        with pytest.raises(MpsError, match=r"has [0-9]+ characters.*80: set DRIVETRAIN_SCRATCH"):
            daemon.start()

    @pytest.mark.parametrize("faults", [(), ("stubborn",)])
    def test_all_are_ended_within_the_bound(
        self, machine: Machine, faults: tuple[str, ...]
    ) -> None:
        daemons = [machine.running(*faults, name=str(index)) for index in range(3)]
        pids = [daemon.pid for daemon in daemons]
        began = time.monotonic()
        stop_daemons(daemons)
        assert time.monotonic() - began < 3
        for pid, daemon in zip(pids, daemons, strict=True):
            assert not Path(f"/proc/{pid}").exists()
            assert not daemon.pipe.directory.exists()
            assert daemon.logs.exists()
        stop_daemons(daemons)

    def test_it_ends_with_the_launcher(self, machine: Machine) -> None:
        program = textwrap.dedent(f"""
            import os, sys, time
            from pathlib import Path
            from drivetrain_trainer.launcher.mps.daemon import Daemon
            daemon = Daemon({GPU!r}, Path({str(machine.folder / "0")!r}), sys.argv[1], os.environ)
            daemon.start()
            daemon.await_answer(time.monotonic() + 20)
            print(daemon.pid, flush=True)
            time.sleep(1000)
        """)
        environ = {**os.environ, **machine.environ()}
        found = find_program(environ)
        assert found is not None
        launcher = subprocess.Popen(
            [sys.executable, "-c", program, found], env=environ, stdout=subprocess.PIPE, text=True
        )
        assert launcher.stdout is not None
        pid = int(launcher.stdout.readline())
        launcher.kill()
        launcher.communicate()
        ends = time.monotonic() + 10
        while Path(f"/proc/{pid}").exists() and time.monotonic() < ends:
            time.sleep(0.01)
        assert not Path(f"/proc/{pid}").exists()


class TestPipe:
    def test_older_drivers_use_a_named_pipe(self, short: Path) -> None:
        pipe = ControlPipe(short)
        os.mkfifo(pipe.path)
        with pytest.raises(MpsError, match=f"no daemon listens at {pipe.path}"):
            pipe.check_listening()
        reader = os.open(pipe.path, os.O_RDONLY | os.O_NONBLOCK)
        assert pipe.check_listening() is PipeKind.FIFO
        os.close(reader)

    def test_a_socket_that_was_left_behind_is_not_a_daemon(self, short: Path) -> None:
        pipe = ControlPipe(short)
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(pipe.path))
        with pytest.raises(MpsError, match="no daemon listens"):
            pipe.check_listening()

    def test_other_things_are_named(self, short: Path) -> None:
        pipe = ControlPipe(short)
        with pytest.raises(MpsError, match="control: No such file or directory"):
            pipe.kind()
        pipe.path.touch()
        with pytest.raises(MpsError, match="neither a socket nor a named pipe"):
            pipe.kind()

    def test_a_program_that_cannot_be_started_is_named(self, short: Path) -> None:
        with pytest.raises(MpsError, match="/nowhere cannot be started: No such file"):
            Control("/nowhere", short, {}).start("quit")


class TestGpus:
    def driver(self, root: Path, *uuids: str) -> Path:
        for index, uuid in enumerate(uuids):
            folder = root / f"proc/driver/nvidia/gpus/0000:0{index}:00.0"
            folder.mkdir(parents=True)
            (folder / "information").write_text(f"Model: \t\t X\nGPU UUID:   \t {uuid}\n")
        return root

    @pytest.mark.parametrize(
        ("visible", "found"),
        [
            (None, (GPU, OTHER)),
            ("1", (OTHER,)),
            ("1,0", (OTHER, GPU)),
            (OTHER, (OTHER,)),
            ("MIG-1234", ("MIG-1234",)),
        ],
    )
    def test_the_environment_chooses_among_the_drivers(
        self, tmp_path: Path, visible: str | None, found: tuple[str, ...]
    ) -> None:
        environ = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
        assert gpu_uuids(environ, self.driver(tmp_path, GPU, OTHER)) == found

    def test_a_driver_that_hides_its_files_is_asked_by_its_program(self, tmp_path: Path) -> None:
        (tmp_path / "dev").mkdir()
        (tmp_path / "dev/nvidia0").touch()
        program = tmp_path / "nvidia-smi"
        program.write_text(f"#!/bin/sh\necho {GPU}\n")
        program.chmod(0o755)
        assert gpu_uuids({"PATH": str(tmp_path)}, tmp_path) == (GPU,)
        program.write_text("#!/bin/sh\nexit 9\n")
        with pytest.raises(MpsError, match="set CUDA_VISIBLE_DEVICES to the UUIDs"):
            gpu_uuids({"PATH": str(tmp_path)}, tmp_path)

    @pytest.mark.parametrize("visible", ["2", "-1", "GPU-1;rm"])
    def test_what_does_not_fit_is_refused(self, tmp_path: Path, visible: str) -> None:
        with pytest.raises(MpsError, match="cannot be found out"):
            gpu_uuids({"CUDA_VISIBLE_DEVICES": visible, "PATH": ""}, self.driver(tmp_path, GPU))


def run_until(check: UseCheck, condition: Callable[[], bool]) -> None:
    codes: dict[int, int] = {}
    ends = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < ends, check.problem
        codes |= reap()
        check.poll(codes)
        check._next_round = 0.0
        time.sleep(0.01)


class TestUse:
    def test_a_rank_is_seen_once_it_is_a_client(self, machine: Machine) -> None:
        daemon = machine.running()
        ranks = {os.getpid(): 3}
        check = UseCheck(daemon.control, frozenset({3}), ranks.get)
        run_until(check, lambda: "no server was started" in check.problem)
        assert not check.done
        with connect(daemon):
            run_until(check, lambda: check.done)
        assert check.served[3].rank == 3
        assert check.served[3].server > 1
        check.close()

    def test_a_client_that_is_no_rank_of_ours_does_not_count(self, machine: Machine) -> None:
        daemon = machine.running()
        check = UseCheck(daemon.control, frozenset({3}), {os.getpid(): 4}.get)
        with connect(daemon):
            run_until(check, lambda: "is ACTIVE" in check.problem)
        assert not check.done
        assert check.problem.startswith("rank 3 is no client (servers: ")
        check.close()

    def test_a_faulty_server_serves_nobody(self, machine: Machine) -> None:
        daemon = machine.running("fault")
        check = UseCheck(daemon.control, frozenset({3}), {os.getpid(): 3}.get)
        with connect(daemon):
            run_until(check, lambda: "is FAULT" in check.problem)
        assert not check.done
        check.close()

    def test_an_answer_that_does_not_come_is_given_up(
        self, machine: Machine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("drivetrain_trainer.launcher.mps.use.ANSWER_SECONDS", 0.2)
        daemon = machine.daemon("deaf")
        daemon.start()
        check = UseCheck(daemon.control, frozenset({3}), {}.get)
        run_until(check, lambda: "refused 'get_server_list'" in check.problem)
        check.close()

    def test_nothing_to_serve_is_served(self, machine: Machine) -> None:
        assert UseCheck(machine.daemon().control, frozenset(), {}.get).done

    def test_a_process_tells_its_rank_by_its_environment(self) -> None:
        child = subprocess.Popen(["sleep", "1000"], env={"RANK": "7", "PATH": os.environ["PATH"]})
        try:
            ends = time.monotonic() + 10
            while rank_of_process(child.pid) != 7 and time.monotonic() < ends:
                time.sleep(0.01)
            assert rank_of_process(child.pid) == 7
        finally:
            child.kill()
            child.wait()
        assert rank_of_process(2**22 - 1) is None


class TestInContainer:
    def mps(self, machine: Machine, daemon: Daemon, **more: float) -> InContainerMps:
        scratch = Scratch(machine.folder)
        check = UseCheck(daemon.control, frozenset({0}), {os.getpid(): 0}.get)
        return InContainerMps((daemon,), (check,), range(1), 1, scratch, **more)

    def poll(self, mps: InContainerMps, condition: Callable[[], bool]) -> None:
        codes: dict[int, int] = {}
        ends = time.monotonic() + 30
        while not condition():
            assert time.monotonic() < ends
            codes |= reap()
            self.verdict = mps.poll(codes)
            time.sleep(0.01)

    def test_evidence_is_kept_once_every_rank_was_seen(self, machine: Machine) -> None:
        daemon = machine.running()
        mps = self.mps(machine, daemon)
        assert mps.report is not None
        assert not mps.report.ready
        with connect(daemon):
            mps.scratch.started(0).write_text(str(daemon.pipe.directory))
            self.poll(mps, lambda: mps.report is not None and mps.report.ready)
        assert mps.report is not None
        assert (mps.report.mode, mps.report.daemons) == (MpsMode.IN_CONTAINER, 1)
        evidence = MpsEvidence.from_json(mps.scratch.mps_evidence(0).read_text())
        assert evidence.validated
        assert evidence.learner_gpu_uuid == GPU
        assert (evidence.configured, evidence.ambient_server) == (None, True)
        assert (evidence.collector_device, evidence.collector_gpu_uuid) == ("cpu", None)
        assert evidence.control_pipe == str(daemon.pipe.path)
        mps.stop()
        mps.stop()

    def test_a_run_that_asks_for_sharing_is_told_as_such(self, machine: Machine) -> None:
        daemon = machine.running()
        mps = self.mps(machine, daemon)
        mps.configured, mps.collectors_on_gpu = CudaProcessSharing.MPS, True
        with connect(daemon):
            mps.scratch.started(0).write_text(str(daemon.pipe.directory))
            self.poll(mps, lambda: mps.report is not None and mps.report.ready)
        evidence = MpsEvidence.from_json(mps.scratch.mps_evidence(0).read_text())
        assert (evidence.configured, evidence.ambient_server) == ("mps", False)
        assert (evidence.collector_device, evidence.collector_gpu_uuid) == ("cuda:0", GPU)

    def test_evidence_that_does_not_hold_is_a_refusal(self, machine: Machine) -> None:
        daemon = machine.running()
        mps = self.mps(machine, daemon)
        mps.scratch.started(0).write_text("/somewhere/else")
        with connect(daemon):
            self.poll(mps, lambda: bool(mps._broken))
        assert self.verdict is not None
        assert self.verdict.exit_code is ExitCode.REFUSED
        assert "pointed at another pipe directory" in self.verdict.message
        assert mps.report is not None
        assert not mps.report.ready

    def test_ranks_that_never_connect_are_a_refusal(self, machine: Machine) -> None:
        mps = self.mps(machine, machine.running(), use_seconds=1.0)
        self.verdict = mps.poll({})
        assert self.verdict is None  # the rank has not started
        mps.scratch.started(0).touch()
        self.poll(mps, lambda: self.verdict is not None)
        assert self.verdict is not None
        assert self.verdict.exit_code is ExitCode.REFUSED
        assert "rank 0 is no client (no server was started)" in self.verdict.message

    def test_figures_shorten_the_wait(self, machine: Machine) -> None:
        mps = self.mps(machine, machine.running(), use_seconds=1000.0, figures_seconds=0.5)
        mps.scratch.started(0).touch()
        mps.scratch.progress.touch()
        self.verdict = None
        self.poll(mps, lambda: self.verdict is not None)

    def test_the_death_of_a_daemon_ends_the_attempt(self, machine: Machine) -> None:
        daemon = machine.running()
        mps = self.mps(machine, daemon)
        os.kill(daemon.pid, signal.SIGKILL)
        self.poll(mps, lambda: bool(mps._broken))
        assert self.verdict is not None
        assert self.verdict.exit_code is ExitCode.FAILED
        assert f"the MPS daemon of {GPU} was killed by signal 9 during" in self.verdict.message
        mps.stop()

    def test_an_end_before_the_proof_is_told(self, machine: Machine) -> None:
        mps = self.mps(machine, machine.running())
        with capture_logs() as logs:
            mps.stop()
        assert "MPS was never seen in use" in [entry["event"] for entry in logs]


class TestExternal:
    def mps(self, pipe: ControlPipe) -> ExternalMps:
        return ExternalMps(pipe, 30, MemoryLimits("4G"), 2, "note")

    def test_its_limits_go_by_the_environment(self, short: Path) -> None:
        assert self.mps(ControlPipe(short)).environment() == {
            "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "30",
            "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=4G,1=4G",
        }
        none = ExternalMps(ControlPipe(short), None, MemoryLimits(), 2, "note")
        assert none.environment() == {}

    def test_its_death_ends_the_attempt_and_it_is_never_stopped(self, machine: Machine) -> None:
        daemon = machine.running()
        mps = self.mps(daemon.pipe)
        assert mps.report is not None
        assert (mps.report.ready, mps.report.daemons) == (True, 1)
        mps._next_look = 0.0
        assert mps.poll({}) is None
        mps.stop()
        daemon.pipe.check_listening()
        os.kill(daemon.pid, signal.SIGKILL)
        os.waitpid(daemon.pid, 0)
        daemon.pid = 0
        assert mps.poll({}) is None  # not yet looked at again
        mps._next_look = 0.0
        verdict = mps.poll({})
        assert verdict is not None
        assert verdict.exit_code is ExitCode.FAILED
        assert "the injected MPS daemon is gone: no daemon listens at" in verdict.message
        assert (mps.report.ready, mps.report.daemons) == (False, 0)


@pytest.mark.parametrize(("local_rank", "gpu"), [(0, GPU), (1, OTHER), (2, GPU)])
def test_a_rank_takes_its_gpu_and_that_gpus_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, local_rank: int, gpu: str
) -> None:
    monkeypatch.setattr("drivetrain_trainer.launcher.rank.die_with_parent", lambda _: None)
    monkeypatch.setattr("drivetrain_trainer.launcher.rank.parent_of", lambda _: 1)
    environ = {
        "DRIVETRAIN_LAUNCHER_PID": "1",
        "DRIVETRAIN_SCRATCH": str(tmp_path),
        "DRIVETRAIN_MPS_PIPES": f'[["{GPU}", "/mps/0"], ["{OTHER}", "/mps/1"]]',
        "RANK": "5",
        "LOCAL_RANK": str(local_rank),
    }
    enter_rank(environ)
    pipe = f"/mps/{(GPU, OTHER).index(gpu)}"
    assert environ["CUDA_VISIBLE_DEVICES"] == gpu
    assert environ["CUDA_MPS_PIPE_DIRECTORY"] == pipe
    assert Scratch(tmp_path).started(5).read_text() == pipe
