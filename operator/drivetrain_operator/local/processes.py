"""Finding and ending the processes of a pod, wherever they went.

Every process of a pod carries `TOKEN_VARIABLE` in its environment, which children inherit
whatever session or parent they choose; `sweep` kills by it. Run as a program, this module is
the guard of an executor: it outlives the executor by the moment it takes to kill what that
left behind. Standard library alone, so that the guard starts in milliseconds.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

TOKEN_VARIABLE = "DRIVETRAIN_PROCESS_OF"  # noqa: S105 - names an owner, no secret
"""Written by the local backend into each process of a pod. Value: ``<run>/<executor>/<pod>``."""

_GUARD_SECONDS = 30.0
_CLEAN_SWEEPS = 2
_PAUSE_SECONDS = 0.05


def token(run_uid: str, executor: str, pod_uid: str) -> str:
    """The value of `TOKEN_VARIABLE`; each part alone selects its processes in `sweep`."""
    return f"{run_uid}/{executor}/{pod_uid}"


def owned(part: str) -> Iterator[int]:
    """Ids of living processes whose token has `part` as one of its parts; never our own."""
    for entry in os.listdir("/proc"):  # noqa: PTH208 - names alone are wanted, 1000 a sweep
        if entry.isdigit() and int(entry) != os.getpid() and _carries(int(entry), part):
            yield int(entry)


def sweep(part: str) -> int:
    """SIGKILL to each of `owned`; how many there were. Only 0 tells that none is left."""
    found = 0
    for pid in owned(part):
        try:
            pidfd = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            # Asked again now that the descriptor holds the process: its id cannot pass on.
            if _carries(pid, part):
                found += 1
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        except ProcessLookupError:
            continue
        finally:
            os.close(pidfd)
    return found


def sweep_until_clean(part: str, seconds: float = _GUARD_SECONDS) -> bool:
    """Sweep until nothing is found twice in a row; False where that took too long."""
    clean = 0
    ends = time.monotonic() + seconds
    while clean < _CLEAN_SWEEPS:
        clean = 0 if sweep(part) else clean + 1
        if time.monotonic() > ends:
            return False
        time.sleep(_PAUSE_SECONDS)
    return True


def _carries(pid: int, part: str) -> bool:
    """A zombie has no environment any more, nor has a process of somebody else to us."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123 - the guard stays lean
            environment = file.read()
    except OSError:
        return False
    prefix = f"{TOKEN_VARIABLE}=".encode()
    return any(
        part.encode() in variable.removeprefix(prefix).split(b"/")
        for variable in environment.split(b"\0")
        if variable.startswith(prefix)
    )


class Guard:
    """A process that kills what an executor leaves behind, however the executor ends.

    It waits for the end of a pipe whose only writer is the executor, so that it needs neither
    a signal nor a parent: SIGKILL of the executor closes the pipe too.
    """

    def __init__(self, executor: str) -> None:
        self._executor = executor
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(  # noqa: S603 - our own interpreter and file
            [sys.executable, "-I", "-S", __file__, self._executor],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        assert process.stdout is not None
        ready = process.stdout.read(1)
        process.stdout.close()
        if not ready:
            raise RuntimeError("the guard of the local executor did not start")
        return process

    @property
    def pid(self) -> int:
        """Process id of the guard."""
        return self._process.pid

    def ensure(self) -> None:
        """Start another guard where somebody killed this one."""
        if self._process.poll() is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process = self._start()

    def close(self) -> None:
        """Let it sweep what is left, and wait for it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def main() -> None:
    """Wait for the executor's end, then sweep; signals of the terminal do not count."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.write(sys.stdout.fileno(), b"1")
    sys.stdin.buffer.read()
    sweep_until_clean(sys.argv[1])


if __name__ == "__main__":
    main()
