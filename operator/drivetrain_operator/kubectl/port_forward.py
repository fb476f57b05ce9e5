"""`kubectl port-forward` as a child process: its own protocol is kubectl's business."""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from drivetrain_operator.kubectl.failure import Failure
from drivetrain_operator.kubectl.tensorboard_pod import PORT

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import AsyncIterator, Sequence

_FORWARDING: Final = re.compile(rb"Forwarding from 127\.0\.0\.1:([0-9]+) ")
_STARTED_S: Final = 30.0
"""Seconds that it may take to open its port."""
_STOPPED_S: Final = 5.0
"""Seconds between SIGTERM and SIGKILL."""


@dataclass(frozen=True)
class Forward:
    """A port that leads into a pod."""

    process: Process
    port: int

    @property
    def url(self) -> str:
        """To look at."""
        return f"http://127.0.0.1:{self.port}/"

    async def broken(self) -> str:
        """Wait until it ends, which it does only when something broke; says why."""
        return f"the port-forward ended: {await _last_words(self.process)}"


def find_kubectl() -> str:
    """The kubectl that forwards.

    Raises:
        Failure: there is none.
    """
    found = shutil.which("kubectl")
    if found is None:
        raise Failure("kubectl is not on the PATH, and port-forward needs it")
    return found


@contextlib.asynccontextmanager
async def forwarded(
    kubectl: str, pod: str, port: int, arguments: Sequence[str]
) -> AsyncIterator[Forward]:
    """Forward a local port to TensorBoard's in `pod`, until the context is left.

    Args:
        kubectl: Path of the program.
        pod: The pod.
        port: Port on this machine; 0 for any that is free.
        arguments: Which namespace and cluster.

    Raises:
        Failure: it did not start: the port is taken, for one.
    """
    process = await asyncio.create_subprocess_exec(
        kubectl,
        *("port-forward", *arguments, "--address", "127.0.0.1"),
        *(f"pod/{pod}", f"{port or ''}:{PORT}"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        yield Forward(process, await _opened(process, port))
    finally:
        await _stop(process)


async def _opened(process: Process, port: int) -> int:
    """The local port, once it is open."""
    assert process.stdout is not None
    seen = b""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_STARTED_S):
            async for line in process.stdout:
                match = _FORWARDING.search(line)
                if match is not None:
                    return int(match[1])
                seen += line
    words = seen.decode(errors="replace").strip() or "it said nothing"
    hint = "choose another port by --port, or 0 for any" if "unable to listen" in words else ""
    raise Failure(f"kubectl port-forward to port {port} did not start: {words}", hint)


async def _last_words(process: Process) -> str:
    """What it says until it ends; the lines about single connections are many, so the last."""
    assert process.stdout is not None
    last = b""
    async for line in process.stdout:
        last = line.strip() or last
    code = await process.wait()
    return last.decode(errors="replace") or f"exit code {code}"


async def _stop(process: Process) -> None:
    if process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(_STOPPED_S):
            await process.wait()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
