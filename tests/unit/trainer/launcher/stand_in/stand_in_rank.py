"""A rank without Torch: behaves as ``STAND_IN`` says, a JSON list of words for each rank."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from drivetrain_api.artifacts.outcome import RankOutcome, RunStatus
from drivetrain_api.atomic import write_text_atomically
from drivetrain_api.digest import Digest
from drivetrain_api.status import Progress
from drivetrain_trainer.launcher.rank import enter_rank

RANK = int(os.environ["RANK"])
SCRATCH = Path(os.environ["DRIVETRAIN_SCRATCH"])
OUTCOME = SCRATCH / f"outcome-rank{RANK}.json"
STATUS = {0: RunStatus.COMPLETED, 75: RunStatus.INTERRUPTED}

stopped: list[int] = []
clients: list[socket.socket] = []


def outcome(code: int) -> None:
    failed = code not in STATUS
    write_text_atomically(
        OUTCOME,
        RankOutcome(
            rank=RANK,
            exit_code=code,
            status=STATUS.get(code, RunStatus.FAILED),
            error_type="StandInError" if failed else None,
            error=f"as told: {code}" if failed else None,
            env_steps=640,
            checkpoint="checkpoints/step_000000000640" if code == 75 else None,
        ).to_json(),
    )


def progress() -> None:
    digest = Digest(attempt=99, progress=Progress(iteration=3, env_steps=640))
    path = SCRATCH / "progress.json"
    write_text_atomically(path, digest.model_dump_json(by_alias=True, exclude_none=True))


def wait_until(condition: Callable[[], object]) -> None:
    while not condition():
        time.sleep(0.02)


def sleep(value: str) -> None:
    ends = time.monotonic() + float(value)
    wait_until(lambda: time.monotonic() > ends)


def connect(_: str) -> None:
    """Become a client of the MPS stand-in, as CUDA would of the real one."""
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    client.connect(f"{os.environ['CUDA_MPS_PIPE_DIRECTORY']}/control")
    client.sendall(b"client\n")
    clients.append(client)
    write_text_atomically(SCRATCH / f"gpu{RANK}", os.environ.get("CUDA_VISIBLE_DEVICES", ""))


def kill(value: str) -> None:
    os.kill(os.getpid(), signal.Signals[value])
    time.sleep(1000)


VERBS: dict[str, Callable[[str], object]] = {
    "wait": lambda _: wait_until(lambda: stopped),
    "ignore": lambda _: signal.signal(signal.SIGTERM, signal.SIG_IGN),
    "sleep": sleep,
    "outcome": lambda value: outcome(int(value)),
    "huge": lambda _: OUTCOME.write_bytes(b" " * 100_000_000),
    "progress": lambda _: progress(),
    "child": lambda _: subprocess.Popen(
        ["sh", "-c", "trap '' TERM; exec sleep 1000"], start_new_session=True
    ),
    "mps": connect,
    "await": lambda value: wait_until((SCRATCH / value).exists),
    "kill": kill,
    "exit": lambda value: sys.exit(int(value)),
}


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
    enter_rank()
    (SCRATCH / f"up{RANK}").write_text(str(os.getpid()))
    print(f"rank {RANK} on stdout", flush=True)
    for word in json.loads(os.environ["STAND_IN"])[RANK]:
        verb, _, value = word.partition("=")
        VERBS[verb](value)
