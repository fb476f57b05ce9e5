"""The program of the `helm test` pod, against a stand-in for the operator."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from tests.support.chart import CHART, Object, only

PROGRAM = (CHART / "files" / "ready.py").read_text(encoding="utf-8")


@contextmanager
def operator(*answers: tuple[int, str]) -> Iterator[str]:
    """Gives each answer once, and the last one for ever."""
    left = list(answers)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            code, text = left.pop(0) if len(left) > 1 else left[0]
            self.send_response(code)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/readyz"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def ask(url: str, seconds: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", PROGRAM, url, seconds],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )


@pytest.mark.parametrize(
    "answers",
    [[(200, "ok\n")], [(503, "runs: not listed yet"), (200, "ok\n")]],
    ids=["at once", "later"],
)
def test_a_ready_operator_passes(answers: list[tuple[int, str]]) -> None:
    with operator(*answers) as url:
        done = ask(url, "20")

    assert (done.returncode, done.stdout, done.stderr) == (0, "ready: ok\n", "")


def test_one_that_never_is_fails_with_its_own_words() -> None:
    with operator((503, "watch of jobs is silent for 90 s")) as url:
        done = ask(url, "0")

    assert done.returncode == 1
    assert "/readyz is not ready after 0 s: 503 watch of jobs is silent for 90 s" in done.stderr


def test_one_that_is_not_there_fails() -> None:
    with operator((200, "")) as url:
        pass
    done = ask(url, "0")

    assert done.returncode == 1
    assert "Connection refused" in done.stderr


def test_the_pod_runs_this_program_and_applies_nothing(default: list[Object]) -> None:
    pod = only(default, "Pod")
    (container,) = pod["spec"]["containers"]

    assert container["command"][:3] == ["python3", "-c", f"{PROGRAM.strip()}\n"]
    assert container["command"][3:] == [
        "http://drivetrain.drivetrain-system.svc:8081/readyz",
        "60",
    ]
    assert pod["metadata"]["annotations"]["helm.sh/hook"] == "test"
    assert pod["spec"]["restartPolicy"] == "Never"
