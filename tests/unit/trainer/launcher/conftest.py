"""A pod's worth of environment, and the launcher in it with stand-in ranks."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from stand_in_api_server import StandInApiServer, make_certificate

from drivetrain_api.digest import PROGRESS_LIMIT, TERMINATION_LIMIT, Digest, decode

STAND_IN = Path(__file__).parent / "stand_in"
PATIENCE = 60.0


def eventually(condition: Callable[[], object], what: str = "condition") -> None:
    """Wait on a state."""
    ends = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < ends, f"waited {PATIENCE} s for {what}"
        time.sleep(0.02)


@dataclass
class Pod:
    """One pod in a folder of its own; its processes are found by the folder's name."""

    folder: Path
    ranks: int = 1
    spec: dict[str, Any] = field(default_factory=dict)
    environ: dict[str, str] = field(default_factory=dict)
    attempt: int = 1
    process: subprocess.Popen[str] | None = None
    scratch_folder: Path | None = None
    command: list[str] = field(default_factory=lambda: [sys.executable, "-m", "stand_in_launcher"])

    @property
    def scratch(self) -> Path:
        return self.scratch_folder or self.folder / "scratch"

    @property
    def storage(self) -> Path:
        return self.folder / "storage"

    def document(self) -> dict[str, Any]:
        return {
            "name": "run",
            "namespace": "default",
            "uid": "uid-1",
            "attempt": self.attempt,
            "created": "2026-03-09T18:30:00Z",
            "spec": {
                "algo": {"name": "sac", "numEnvs": 4, "batchSize": 64, "replayRows": 1000},
                "task": {"name": "stand_in", "entryPoint": "stand_in_task:TASK"},
                "training": {"totalEnvSteps": 1000},
                "gracePeriodSeconds": 30,
                "topology": {"ranksPerNode": self.ranks},
                **self.spec,
            },
        }

    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "PYTHONPATH": str(STAND_IN),
            "DRIVETRAIN_SPEC_FILE": str(self.folder / "run.json"),
            "DRIVETRAIN_STORAGE": str(self.storage),
            "DRIVETRAIN_SCRATCH": str(self.scratch),
            "DRIVETRAIN_PROGRESS_SINK": f"file:{self.folder / 'sink'}",
            "DRIVETRAIN_TERMINATION_LOG": str(self.folder / "termination"),
            "TMPDIR": str(self.folder),
            **self.environ,
        }

    def start(self, *ranks: list[str]) -> None:
        (self.folder / "run.json").write_text(json.dumps(self.document()))
        self.storage.mkdir(exist_ok=True)
        self.process = subprocess.Popen(
            self.command,
            env={**self.environment(), "STAND_IN": json.dumps(ranks)},
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def until(self, name: str) -> None:
        """Wait for a file in the scratch folder, or fail with what the launcher said."""
        assert self.process is not None
        process = self.process
        eventually(lambda: (self.scratch / name).exists() or process.poll() is not None, name)
        if process.poll() is not None and not (self.scratch / name).exists():
            pytest.fail(f"ended with {process.returncode}: {process.communicate()[1]}")

    def send(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def wait(self) -> int:
        assert self.process is not None
        self.stdout, self.stderr = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode

    def run(self, *ranks: list[str]) -> int:
        self.start(*ranks)
        return self.wait()

    def pid_of(self, rank: int) -> int:
        return int((self.scratch / f"up{rank}").read_text())

    def processes(self) -> list[int]:
        """Living processes that were started for this pod, wherever they went."""
        mark = f"DRIVETRAIN_SCRATCH={self.scratch}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                try:
                    environ = (entry / "environ").read_bytes().split(b"\0")
                except OSError:
                    continue
                if mark in environ:
                    found.append(int(entry.name))
        return found

    @property
    def termination(self) -> Digest:
        text = (self.folder / "termination").read_bytes()
        assert len(text) <= TERMINATION_LIMIT
        found = decode(text.decode("ascii"), TERMINATION_LIMIT)
        assert found is not None
        return found

    @property
    def sink(self) -> Digest | None:
        path = self.folder / "sink"
        return decode(path.read_text(), PROGRESS_LIMIT) if path.exists() else None


@contextlib.contextmanager
def in_pod(folder: Path) -> Iterator[Pod]:
    """A pod whose processes are gone afterwards."""
    made = Pod(folder)
    yield made
    for pid in made.processes():  # first: they hold the pipes that are read to their end
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    if made.process is not None:
        made.process.communicate(timeout=PATIENCE)


@pytest.fixture
def pod(tmp_path: Path) -> Iterator[Pod]:
    with in_pod(tmp_path) as made:
        yield made


@pytest.fixture
def make_pod() -> Iterator[Callable[[Path], Pod]]:
    with contextlib.ExitStack() as stack:
        yield lambda folder: stack.enter_context(in_pod(folder))


@pytest.fixture(scope="session")
def mps_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for PATH in which the stand-in daemon has the real program's name."""
    folder = tmp_path_factory.mktemp("bin")
    program = folder / "nvidia-cuda-mps-control"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S {STAND_IN}/stand_in_mps.py "$@"\n')
    program.chmod(0o755)
    return folder


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificate")
    make_certificate(folder)
    return folder


@pytest.fixture
def server(tmp_path: Path, certificate: Path) -> Iterator[StandInApiServer]:
    made = StandInApiServer(tmp_path, certificate)
    yield made
    made.close()
