"""Whoever dies, however: no process, no name in /dev/shm and no shared memory is left."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from rank_command import COMMAND, environment, write_attempt
from tiny_run import TINY

from drivetrain_api.artifacts.outcome import RANK_LOST, RankOutcome
from drivetrain_api.artifacts.run_summary import RunSummary
from drivetrain_api.artifacts.shutdown import (
    Classification,
    LifePhase,
    Owner,
    ShutdownReport,
)
from drivetrain_api.compose import layered

pytestmark = pytest.mark.slow
TIMEOUT = 90.0
DRIVETRAIN = str(Path(sys.executable).with_name("drivetrain"))
SHM = Path("/dev/shm")
SPEC: dict[str, Any] = {
    "training": {"total_env_steps": 10**6},
    "checkpoint": {"interval": 20, "keep": 2},
}
EXTERNAL: dict[str, Any] = {
    "task": {"name": "fake_external", "entry_point": "fake_backends:external"}
}


class Life:
    """A rank in a process of its own, and everything that it started or shares."""

    def __init__(self, folder: Path, *, rank: int = 0, ranks: int = 1, port: int = 0) -> None:
        self.folder = folder
        self.number = rank
        self.shm = set(SHM.iterdir())
        self.processes: list[psutil.Process] = []
        self.memory: set[int] = set()
        support = str(Path(__file__).parents[3] / "support")
        variables = environment() | {"PYTHONPATH": support}
        if ranks > 1:
            variables |= {
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(ranks),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
            }
        self._log = (folder / f"log{rank}").open("wb")
        self.process = subprocess.Popen(
            [*COMMAND, "--scratch", "scratch"],
            cwd=folder,
            env=variables,
            stdout=self._log,
            stderr=self._log,
        )

    @property
    def words(self) -> str:
        return (self.folder / f"log{self.number}").read_text(errors="replace")

    @property
    def collector(self) -> psutil.Process:
        return psutil.Process(self.process.pid).children()[0]

    def until(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + TIMEOUT
        while not condition():
            assert self.process.poll() is None, self.words
            assert time.monotonic() < deadline, self.words
            time.sleep(0.005)

    def training(self) -> bool:
        return any(self.folder.glob("logs/*/*/*/checkpoints/step_*"))

    def look(self) -> None:
        """Note what there is now, to be missed later."""
        learner = psutil.Process(self.process.pid)
        self.processes = [learner, *learner.children(recursive=True)]
        self.memory = set(_memory_files(self.process.pid))

    def end(self) -> int:
        code = self.process.wait(TIMEOUT)
        self._log.close()
        return code

    def left(self) -> list[str]:
        """What is left of it; asked until nothing is, or the time is up."""
        deadline = time.monotonic() + 10.0
        while (found := list(self._left())) and time.monotonic() < deadline:
            time.sleep(0.02)
        return found

    def _left(self) -> Iterator[str]:
        for process in self.processes:
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                yield str(process)
        for path in set(SHM.iterdir()) - self.shm:
            if path.name.startswith("drivetrain"):
                yield str(path)
        for pid in psutil.pids():
            if self.memory & set(_memory_files(pid)):
                yield f"shared memory held by process {pid}"

    def shutdown(self) -> ShutdownReport:
        path = self.folder / "scratch" / f"outcome-rank{self.number}.json"
        found = RankOutcome.from_json(path.read_text()).shutdown
        assert found is not None
        return found

    def summary(self) -> RunSummary:
        (path,) = self.folder.glob("logs/*/*/*/run_summary.json")
        return RunSummary.from_json(path.read_text())


def _memory_files(pid: int) -> Iterator[int]:
    """Inodes of the shared memory that a process holds open or mapped."""
    try:
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            if "memfd:drivetrain-" in str(entry.readlink()):
                yield entry.stat().st_ino
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            if "memfd:drivetrain-" in line:
                yield int(line.split()[4])
    except OSError:
        return


def write(folder: Path, **sections: Any) -> None:
    write_attempt(folder, layered(layered(TINY, SPEC), sections))
    (folder / "scratch").mkdir()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    others = set(psutil.Process().children(recursive=True))  # such as a whole control plane
    yield tmp_path
    for process in set(psutil.Process().children(recursive=True)) - others:
        process.kill()


@pytest.mark.parametrize("task", [{}, EXTERNAL], ids=["in process", "external simulator"])
@pytest.mark.parametrize("moment", ["start up", "training"])
def test_a_learner_that_is_killed(folder: Path, task: dict[str, Any], moment: str) -> None:
    write(folder, **task)
    life = Life(folder)
    if moment == "start up":
        life.until(lambda: list(folder.glob("logs/*/*/*/run_summary.json")))
    else:
        life.until(life.training)
    life.look()
    assert len(life.processes) >= 2
    assert moment == "start up" or life.memory
    life.process.kill()
    assert life.end() == -signal.SIGKILL
    assert life.left() == []
    assert life.summary().status == "running", "it had no time to write more, and it is whole"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV], ids=lambda n: n.name)
def test_a_collector_that_is_killed(folder: Path, number: signal.Signals) -> None:
    write(folder, **EXTERNAL)
    life = Life(folder)
    life.until(life.training)
    life.look()
    life.collector.send_signal(number)
    assert life.end() == 1
    assert life.left() == []
    report = life.shutdown()
    assert (report.classification, report.owner) == (
        Classification.COLLECTOR_FAILURE,
        Owner.COLLECTOR,
    )
    assert report.collector is not None
    assert report.collector.signal == number
    manifest = life.summary().runtime_manifest
    assert manifest is not None
    assert manifest["shutdown"] == report.model_dump(mode="json")


def test_a_simulator_that_hangs_is_left_to_nobody(folder: Path) -> None:
    write(folder, **EXTERNAL)
    life = Life(folder)
    life.until(life.training)
    life.look()
    (worker,) = life.collector.children()
    worker.send_signal(signal.SIGSTOP)
    life.collector.kill()
    assert life.end() == 1
    assert life.left() == []


def test_a_rank_that_lost_another_does_not_take_the_blame(folder: Path) -> None:
    write(folder, topology={"nodes": 1, "ranks_per_node": 2})
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    lives = [Life(folder, rank=rank, ranks=2, port=port) for rank in range(2)]
    lives[0].until(lives[0].training)
    for life in lives:
        life.look()
    lives[1].process.kill()
    assert lives[1].end() == -signal.SIGKILL
    assert lives[0].end() == 1, lives[0].words
    assert [life.left() for life in lives] == [[], []]
    report = lives[0].shutdown()
    assert (report.classification, report.owner) == (
        Classification.UNKNOWN_FAILURE,
        Owner.OTHER_RANK,
    )
    assert report.exception is not None
    assert report.exception.type == RANK_LOST
    assert report.learner_coordination.world_size == 2


def test_a_stop_ends_the_wait_for_a_rank_that_never_comes(folder: Path) -> None:
    write(folder, topology={"nodes": 1, "ranks_per_node": 2})
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    life = Life(folder, ranks=2, port=port)
    life.until(lambda: _listens(life.process.pid))
    life.look()
    life.process.terminate()
    assert life.end() == 75, life.words
    assert life.left() == []
    report = life.shutdown()
    assert report.classification is Classification.EXTERNAL_CANCELLATION
    assert report.learner_coordination.stop_signal == "SIGTERM"


def _listens(pid: int) -> bool:
    return any(
        connection.status == psutil.CONN_LISTEN
        for connection in psutil.Process(pid).net_connections()
    )


def test_the_command_tells_where_a_rank_was_when_it_was_killed(folder: Path) -> None:
    settings = ["training.total_env_steps=1000000", "training.logger=none", "algo.num_envs=2"]
    settings += ["algo.learning_starts=8", "checkpoint.interval=50", "restart.max_restarts=0"]
    command = [DRIVETRAIN, "run", "--algo", "sac", "--task", "inverted_pendulum", *settings]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, env=environment(), stdout=log, stderr=log)
    deadline = time.monotonic() + TIMEOUT
    while not any(folder.glob("logs/*/*/*/checkpoints/step_*")):
        assert process.poll() is None, (folder / "log").read_text()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    (rank,) = [
        child
        for child in psutil.Process(process.pid).children(recursive=True)
        if "drivetrain_trainer.train" in child.cmdline()
        and "drivetrain_trainer.launcher.agent" not in child.cmdline()
    ]
    rank.kill()
    assert process.wait(TIMEOUT) == 1, (folder / "log").read_text()
    (path,) = folder.glob("logs/*/*/*/run_summary.json")
    manifest = RunSummary.from_json(path.read_text()).runtime_manifest
    assert manifest is not None
    report = ShutdownReport.model_validate_json(json.dumps(manifest["shutdown"]))
    assert (report.classification, report.owner) == (
        Classification.LEARNER_FAILURE,
        Owner.LEARNER,
    )
    assert report.phase not in (LifePhase.START_UP, LifePhase.FINISH)
    assert report.coordination_tick
    assert "SIGKILL" in (folder / "log").read_text()
