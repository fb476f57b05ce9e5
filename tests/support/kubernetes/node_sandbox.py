"""Namespaces of one node: network, mounts and processes of its own.

The first process of a process namespace takes all others with it, in the kernel. It is tied
to the test process, so that nothing of a node outlives the tests: no container, no mount, no
link, whatever way they end.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

import psutil
from tests.support.kubernetes.api import wait_for
from tests.support.kubernetes.node_slot import Slot
from tests.support.kubernetes.processes import Process

_FIRST = """
for folder in /run /var/lib /var/log; do mount -t tmpfs tmpfs $folder; done
mkdir -p /run/lock /run/containerd
ip link set lo up
echo 1 > /proc/sys/net/ipv4/ip_forward
echo ready
while :; do sleep 3600 & wait $!; done
"""
"""The first process: it reaps what containers leave to it."""


class Sandbox:
    """The namespaces, with the link between the host and them."""

    def __init__(self, slot: Slot, log: Path) -> None:
        self.slot = slot
        self._log = log
        self._holder = Process(
            "sandbox",
            [
                _path("unshare"),
                *("--net", "--mount", "--ipc", "--uts", "--pid", "--mount-proc"),
                *("--propagation", "private", "--kill-child=KILL"),
                *(_path("bash"), "-c", _FIRST),
            ],
            log,
        )

    def start(self) -> None:
        """Make the namespaces and join them to the host by one link."""
        self._holder.start()
        wait_for(self._ready, "namespaces of the node", 10.0)
        self.first = only_child(self._holder.pid)
        slot = self.slot
        _ip(
            "link",
            "add",
            slot.link,
            "type",
            "veth",
            "peer",
            "name",
            "node",
            "netns",
            str(self.first),
        )
        _ip("address", "add", f"{slot.host}/30", "dev", slot.link)
        _ip("link", "set", slot.link, "up")
        self.run("ip", "address", "add", f"{slot.node}/30", "dev", "node")
        self.run("ip", "link", "set", "node", "up")
        # Addresses of Services are rewritten only once a route for them was found.
        self.run("ip", "route", "add", "default", "via", slot.host)

    def _ready(self) -> bool:
        self._holder.check()
        return "ready" in self._log.read_text()

    def stop(self) -> None:
        """End everything in them, and wait until it is gone."""
        self._holder.stop()

    def enter(self, argv: Sequence[str | Path]) -> list[str]:
        """The command line that runs `argv` inside."""
        return [
            _path("nsenter"),
            *("--target", str(self.first), "--net", "--mount", "--ipc", "--uts", "--pid", "--"),
            *(str(word) for word in argv),
        ]

    def run(self, *argv: str | Path) -> str:
        """Run a command inside and give its output.

        Raises:
            RuntimeError: It failed; with what it wrote.
        """
        done = subprocess.run(self.enter(argv), capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(map(str, argv))}: {done.stderr.strip() or done.stdout}")
        return done.stdout


class InsideProcess(Process):
    """A server inside the namespaces; signals reach it, not the program that entered them."""

    @property
    def pid(self) -> int:
        """Of the server, as the host counts."""
        return wait_for(lambda: find_child(super(InsideProcess, self).pid), self.name, 10.0)

    def send(self, number: signal.Signals) -> None:
        """Send it a signal; nothing where it is gone."""
        if not self.running:
            return
        server = find_child(super().pid)
        if server is None:
            super().send(number)
            return
        os.kill(server, number)
        if number is not signal.SIGSTOP:
            super().send(signal.SIGCONT)  # who waits for it stopped with it

    def pause(self) -> None:
        """Freeze it; returns once who waits for it noticed, so that `resume` is not lost."""
        super().pause()
        waiting = psutil.Process(super().pid)
        wait_for(lambda: waiting.status() == psutil.STATUS_STOPPED, f"paused {self.name}", 10.0)


def only_child(pid: int) -> int:
    """The child that a program forked, once it did."""
    return wait_for(lambda: find_child(pid), f"child of process {pid}", 10.0)


def find_child(pid: int) -> int | None:
    """The first child of a process; None where it has none."""
    try:
        children = psutil.Process(pid).children()
    except psutil.NoSuchProcess:
        return None
    return children[0].pid if children else None


def _path(command: str) -> str:
    found = shutil.which(command)
    assert found is not None, f"{command} is not on PATH"
    return found


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"ip {' '.join(words)}: {done.stderr.strip()}")
