"""Training's end of the line to the process that holds the client of Weights & Biases."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, Final

import psutil

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

LOG_FILE: Final = "drivetrain-wandb.log"
"""What the client prints, in the ``wandb`` folder of the run directory."""
EXIT_GRACE_S: Final = 3.0
"""Seconds between the last answer and the end of the process, before it is killed."""
_DECIDED_HERE: Final = (
    *("PROJECT", "ENTITY", "RUN_GROUP", "NAME", "TAGS", "NOTES", "MODE", "DIR", "RUN_ID"),
    *("RESUME", "JOB_TYPE", "SERVICE", "SWEEP_ID", "SWEEP_PARAM_PATH", "CONFIG_PATHS"),
    *("SILENT", "QUIET", "CONSOLE", "SAVE_CODE", "DISABLE_CODE", "DISABLE_GIT", "INIT_TIMEOUT"),
)
"""Variables whose meaning the spec or this package decides; `WANDB_BASE_URL`, proxies,
certificates and credentials stay the environment's."""
_PIECE: Final = 65_536


class WandbError(Exception):
    """The client refused, failed, or is gone; the message is the client's, without secrets."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}" if message else kind)
        self.kind = kind
        """Name of the client's own exception, or `ProcessEnded`, `NoAnswer`."""


class WandbLink:
    """One process, asked one thing at a time; every wait is bounded."""

    def __init__(self, directory: Path) -> None:
        """Start the process.

        Args:
            directory: The run directory; everything the client writes is below its ``wandb``.

        Raises:
            OSError: the folder cannot be written, or no process started.
        """
        self.folder = directory / "wandb"
        self.folder.mkdir(parents=True, exist_ok=True)
        self._key = os.environ.get("WANDB_API_KEY", "")
        self._unread = b""
        module = "drivetrain_trainer.telemetry.backends.wandb_process"
        self._process = subprocess.Popen(  # noqa: S603 - our own module
            [sys.executable, "-P", "-m", module, str(self.folder / LOG_FILE)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=client_environment(os.environ, self.folder),
            # Ctrl-C at the terminal is for training, which then finishes the run.
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    def ask(self, request: Mapping[str, Any], timeout_s: float) -> Mapping[str, Any]:
        """Send a request and wait for its answer.

        Raises:
            WandbError: refused, or no answer within `timeout_s`: then the process is killed.
        """
        assert self._process.stdin is not None
        if self._process.stdin.closed:
            raise WandbError("ProcessEnded", "earlier")
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
            answer: Mapping[str, Any] = json.loads(self._line(timeout_s))
        except (OSError, EOFError):
            self.kill()
            raise WandbError("ProcessEnded", f"see {self.folder / LOG_FILE}") from None
        if not answer["ok"]:
            raise WandbError(answer["kind"], self._without_key(answer["error"]))
        return answer

    def end(self) -> None:
        """Wait briefly for the process to end by itself, and kill it otherwise."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(EXIT_GRACE_S)
        except subprocess.TimeoutExpired:
            self.kill()
        self._close_output()

    def kill(self) -> None:
        """End the process and the client's service now."""
        assert self._process.stdin is not None
        with contextlib.suppress(psutil.NoSuchProcess):
            for service in psutil.Process(self.pid).children(recursive=True):
                service.kill()
        self._process.kill()
        self._process.wait()
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        self._close_output()

    def _close_output(self) -> None:
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _line(self, timeout_s: float) -> bytes:
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        deadline = time.monotonic() + timeout_s
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        while b"\n" not in self._unread:
            left = deadline - time.monotonic()
            if left <= 0 or not poll.poll(left * 1e3):
                self.kill()
                raise WandbError("NoAnswer", f"none within {timeout_s:g} s")
            piece = os.read(descriptor, _PIECE)
            if not piece:
                raise EOFError
            self._unread += piece
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def _without_key(self, text: str) -> str:
        return text.replace(self._key, "***") if self._key else text


def client_environment(environment: Mapping[str, str], folder: Path) -> dict[str, str]:
    """The client's environment: ours, less what is decided here, and its files below `folder`."""
    decided = {f"WANDB_{name}" for name in _DECIDED_HERE}
    kept = {name: value for name, value in environment.items() if name not in decided}
    if not kept.get("WANDB_API_KEY"):
        kept.pop("WANDB_API_KEY", None)  # empty is how an optional Secret reads; it is no key
    hidden = folder / ".client"
    kept.setdefault("WANDB_ERROR_REPORTING", "false")  # nothing to third parties unasked
    return kept | {
        "WANDB_CACHE_DIR": str(hidden / "cache"),
        "WANDB_DATA_DIR": str(hidden / "data"),
        "WANDB_ARTIFACT_DIR": str(hidden / "artifacts"),
    }
