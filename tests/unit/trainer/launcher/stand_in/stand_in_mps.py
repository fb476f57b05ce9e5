"""A STAND-IN for nvidia-cuda-mps-control, for tests alone: no GPU, no CUDA, no NVIDIA code.

It behaves as the real program is documented to: with ``-f`` or ``-d`` it is the daemon, makes
``control`` (a socket) and its pid file in CUDA_MPS_PIPE_DIRECTORY and writes ``control.log`` in
CUDA_MPS_LOG_DIRECTORY; without, it sends the commands on its standard input and prints the
answers. A rank becomes a client by connecting and saying ``client``. STAND_IN_MPS names
faults, separated by commas.
"""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

FAULTS = os.environ.get("STAND_IN_MPS", "").split(",")
PIPES = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"))
LOGS = Path(os.environ.get("CUDA_MPS_LOG_DIRECTORY", "/var/log/nvidia-mps"))
CONTROL = PIPES / "control"


class Daemon:
    """Servers, clients, limits."""

    def __init__(self) -> None:
        self.server: subprocess.Popen[bytes] | None = None
        self.clients: set[int] = set()
        self.percentage = "100.0"
        self.memory: dict[str, str] = {}
        self.log = (LOGS / "control.log").open("a", buffering=1)

    def say(self, words: str) -> None:
        self.log.write(f"[Control {os.getpid()}] {words}\n")

    def answer(self, line: str) -> tuple[int, str]:
        """Exit code and answer of a command."""
        self.say(f"Cmd:{line}")
        if "refuse" in FAULTS:
            return 1, "Access denied"
        name, *words = line.split()
        command = getattr(self, f"do_{name}", None)
        if command is None:
            return 1, f"Unknown command {line}"
        return 0, command(*words)

    def do_get_server_list(self) -> str:
        return str(self.server.pid) if self.server is not None else ""

    def do_get_server_status(self, pid: str) -> str:
        assert pid == self.do_get_server_list()
        return "FAULT" if "fault" in FAULTS else "ACTIVE"

    def do_get_client_list(self, pid: str) -> str:
        assert pid == self.do_get_server_list()
        return "\n".join(map(str, sorted(self.clients)))

    def do_set_default_active_thread_percentage(self, value: str) -> str:
        self.percentage = self.percentage if "forget" in FAULTS else f"{float(value)}"
        return self.percentage

    def do_get_default_active_thread_percentage(self) -> str:
        return self.percentage

    def do_set_default_device_pinned_mem_limit(self, device: str, value: str) -> str:
        self.memory[device] = value
        return ""

    def do_get_default_device_pinned_mem_limit(self, device: str) -> str:
        return self.memory.get(device, "0G")

    def do_quit(self) -> str:
        if "stubborn" not in FAULTS:
            self.end()
        return ""

    def end(self) -> None:
        self.say("Exit")
        if self.server is not None:
            self.server.kill()
        os._exit(0)

    def serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rw", buffering=1) as file:
            for line in file:
                if line == "client\n":
                    self.admit(connection)
                    continue
                if "deaf" in FAULTS:
                    time.sleep(1000)
                code, said = self.answer(line.strip())
                file.write(f"{code} {len(said)}\n{said}")
                file.flush()

    def admit(self, connection: socket.socket) -> None:
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        pid, user, _ = struct.unpack("3i", credentials)
        self.say(f"NEW CLIENT {pid} from user {user}")
        self.server = self.server or subprocess.Popen(["sleep", "1000"])
        self.clients.add(pid)
        connection.sendall(b"welcome\n")
        connection.recv(1)  # until it closes
        self.clients.discard(pid)


def run_daemon() -> None:
    daemon = Daemon()
    daemon.say(f"Starting control daemon using socket {CONTROL}")
    daemon.say(f"CUDA_VISIBLE_DEVICES is {os.environ['CUDA_VISIBLE_DEVICES']}")
    if "exit" in FAULTS:
        daemon.say("Failed to initialize the driver")
        sys.exit(1)
    if "silent" in FAULTS:
        time.sleep(1000)
    if "stubborn" in FAULTS:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(str(CONTROL))
        server.listen(16)
        (PIPES / "nvidia-cuda-mps-control.pid").write_text(str(os.getpid()))
        while True:
            connection, _ = server.accept()
            threading.Thread(target=daemon.serve, args=(connection,), daemon=True).start()


def run_client() -> int:
    worst = 0
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            connection.connect(str(CONTROL))
        except OSError:
            print("Cannot find MPS control daemon process")
            return 1
        with connection.makefile("rw", buffering=1) as file:
            for line in sys.stdin:
                file.write(line)
                file.flush()
                head = file.readline().split()
                if not head:  # it quit
                    return worst
                worst = max(worst, int(head[0]))
                print(file.read(int(head[1])))
    return worst


if __name__ == "__main__":
    if sys.argv[1:] in (["-f"], ["-d"]):
        run_daemon()
    else:
        sys.exit(run_client())
