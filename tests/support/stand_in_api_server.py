"""A STAND-IN for an API server: HTTPS for real, one ConfigMap, answers as a test scripts them."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Answer:
    """What a request gets; nothing at all, for ever, where the status is 0."""

    status: int = 200
    message: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    raw: bytes | None = None
    """Sent in place of a Status."""


@dataclass(frozen=True)
class Request:
    """What came."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any

    @property
    def progress(self) -> str:
        return str(self.body["data"]["progress"])


class StandInApiServer:
    """Listens on loopback; `account` is what a pod would have mounted."""

    def __init__(self, folder: Path, certificate: Path, *, family: int = socket.AF_INET) -> None:
        self.requests: list[Request] = []
        self.answers: list[Answer] = []
        self.on_request: Callable[[Request], None] = lambda _: None
        self.account = folder / "account"
        self.account.mkdir()
        (self.account / "token").write_text("token-1\n")
        (self.account / "namespace").write_text("team-a")
        (self.account / "ca.crt").write_bytes((certificate / "cert.pem").read_bytes())
        self._released = threading.Event()
        self._server = self._listen(certificate, family)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    @property
    def environ(self) -> dict[str, str]:
        host, port = self._server.server_address[:2]
        return {
            "KUBERNETES_SERVICE_HOST": str(host),
            "KUBERNETES_SERVICE_PORT": str(port),
            "DRIVETRAIN_SERVICE_ACCOUNT": str(self.account),
        }

    def script(self, answers: Iterable[Answer]) -> None:
        """Answers of the next requests; 200 after them."""
        self.answers = list(answers)

    def close(self) -> None:
        if self._released.is_set():
            return
        self._released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _listen(self, certificate: Path, family: int) -> ThreadingHTTPServer:
        stand_in = self

        class Handler(BaseHTTPRequestHandler):
            def do_PATCH(self) -> None:
                stand_in._answer(self)

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            address_family = family
            daemon_threads = True

            def handle_error(self, *_: object) -> None:
                """Clients that give up are part of the tests."""

        host = "::1" if family == socket.AF_INET6 else "127.0.0.1"
        server = Server((host, 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
        server.socket = context.wrap_socket(server.socket, server_side=True)
        return server

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        body = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        request = Request(handler.command, handler.path, dict(handler.headers), body)
        self.on_request(request)
        answer = self.answers.pop(0) if self.answers else Answer()
        if answer.status == 0:
            self._released.wait()
            return
        content = answer.raw
        if content is None:
            content = json.dumps({"kind": "Status", "message": answer.message}).encode()
        handler.send_response(answer.status)
        for name, value in {**answer.headers, "Content-Length": str(len(content))}.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(content)
        self.requests.append(request)


def make_certificate(folder: Path) -> None:
    """A certificate for loopback that is its own authority."""
    names = "subjectAltName=IP:127.0.0.1,IP:::1"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-days", "2", "-subj", "/CN=stand-in", "-addext", names]
    command += ["-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")]
    subprocess.run(command, check=True, capture_output=True)
