"""What trials of the Weights & Biases backend share: a key, reports, and what became of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from wandb_file import OfflineRun, read_offline_run
from wandb_server import WandbServer, wandb_server

from drivetrain_trainer.telemetry.backends.base import BackendContext
from drivetrain_trainer.telemetry.backends.wandb import WandbBackend
from drivetrain_trainer.telemetry.record import Record

KEY = "local-" + "5ec7e7" * 10
"""As long as a real one."""

MakeContext = Callable[..., BackendContext]


@contextmanager
def reachable_server(monkeypatch: pytest.MonkeyPatch, home: Path) -> Iterator[WandbServer]:
    """A service, a key to it, and no other credentials."""
    monkeypatch.delenv("WANDB_MODE", raising=False)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    with wandb_server() as found:
        monkeypatch.setenv("WANDB_BASE_URL", found.url)
        yield found


def reports(*steps: int) -> list[Record]:
    return [
        Record(
            env_steps=step,
            iteration=step // 10,
            wall_time=1_700_000_000.0 + step,
            values={"Loss/actor": step / 7, "Perf/learner_inference_ms": 0.1 * step},
        )
        for step in steps
    ]


def log(backend: WandbBackend, records: list[Record]) -> None:
    backend.open()
    for record in records:
        backend.write(record)
    backend.close()


def offline_run(directory: Path) -> OfflineRun:
    (path,) = directory.glob("wandb/offline-run-*/*.wandb")
    return read_offline_run(path)


def tracked(backend: WandbBackend) -> list[psutil.Process]:
    """The client's process and its service."""
    assert backend._session is not None
    client = psutil.Process(backend._session._link.pid)
    return [client, *client.children(recursive=True)]


def assert_no_key(directory: Path, *texts: str) -> None:
    encoded = [KEY.encode(), KEY[6:30].encode()]
    for path in directory.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            assert not [secret for secret in encoded if secret in data], path
    for text in texts:
        assert KEY[6:30] not in text
