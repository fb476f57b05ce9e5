"""The real `drivetrain-operator`, as a process of a test."""

from __future__ import annotations

import json
import os
import signal
import sys
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from prometheus_client.parser import text_string_to_metric_families
from tests.support.kubernetes.api import wait_for
from tests.support.kubernetes.processes import Process

PROGRAM = Path(sys.executable).with_name("drivetrain-operator")
READY_S = 60.0


class OperatorProcess:
    """One replica, on free ports; to be started again after a stop.

    Args:
        folder: Its log, and its home.
        kubeconfig: What it connects with.
        flags: Added to its command line.
    """

    def __init__(self, folder: Path, kubeconfig: Path, *flags: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        argv: list[str | Path] = [
            PROGRAM,
            "--kubeconfig",
            kubeconfig,
            "--health-port",
            "0",
            "--metrics-port",
            "0",
        ]
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("DRIVETRAIN_")}
        inherited.pop("KUBECONFIG", None)
        environment = inherited | {"HOME": str(folder)}
        self.log = folder / "operator.log"
        self.process = Process(PROGRAM.name, [*argv, *flags], self.log, environment)
        self._start_of_log = 0

    def start(self, *, ready: bool = True) -> Self:
        """Start it; wait until it is ready, where asked to."""
        self._start_of_log = self.log.stat().st_size if self.log.exists() else 0
        self.process.start()
        if ready:
            self.wait_ready()
        return self

    def wait_ready(self, timeout_s: float = READY_S) -> None:
        """Wait until `/readyz` says ok and it works (a standby is ready, too)."""
        wait_for(self._works, "operator that works", timeout_s)

    def _works(self) -> bool:
        self.process.check()
        synced = any(line.get("event") == "synced" for line in self.lines())
        return synced and self.probe("readyz")[0] == 200

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """End it; its exit status (minus the signal that killed it)."""
        self.process.stop(number)
        assert self.process._child is not None
        return int(self.process._child.returncode)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop(signal.SIGKILL)
        if kind is not None:
            sys.stdout.write(f"--- {self.log}\n{self.process.tail(60)}\n")

    def lines(self) -> list[dict[str, Any]]:
        """What it logged since it was started."""
        with self.log.open("rb") as log:
            log.seek(self._start_of_log)
            whole = [line for line in log if line.endswith(b"\n")]
        return [json.loads(line) for line in whole if line.startswith(b"{")]

    def port(self, what: str) -> int | None:
        """The port that it serves `health` or `metrics` on; None before it does."""
        ports = (line["port"] for line in self.lines() if line.get("what") == what)
        return next(ports, None)

    def probe(self, name: str) -> tuple[int, str]:
        """Status and text of `livez` or `readyz`; 0 while nothing answers."""
        return self._fetch("health", name)

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples that have these labels."""
        return sum(
            sample.value
            for family in text_string_to_metric_families(self.metrics())
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    def metrics(self) -> str:
        """All its metrics, as Prometheus reads them; empty while nothing answers."""
        return self._fetch("metrics", "metrics")[1]

    def resident_bytes(self) -> int:
        """Memory that it holds."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
        return int(line.split()[1]) * 1024

    def _fetch(self, what: str, path: str) -> tuple[int, str]:
        port = self.port(what)
        if port is None:
            return 0, ""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError:
            return 0, ""
