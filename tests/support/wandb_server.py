"""A stand-in for the service of Weights & Biases: the requests that its client makes of it.

It keeps runs as the service does (config, tags, history by line, files), answers what a
resumed run asks, and can be slow, refuse, fail or be gone.
"""

from __future__ import annotations

import gzip
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

ENTITY = "lab"
"""The key's own team."""


@dataclass
class StoredRun:
    """A run as the service holds it."""

    name: str
    project: str
    entity: str
    display_name: str | None = None
    group: str | None = None
    notes: str | None = None
    tags: list[str] = field(default_factory=list)
    config: dict[str, Any] = field(default_factory=dict)
    lines: dict[str, dict[int, str]] = field(default_factory=dict)
    """File -> line number -> line, of the files that are streamed."""
    files: dict[str, bytes] = field(default_factory=dict)
    exit_codes: list[int] = field(default_factory=list)
    """One a finished attempt."""

    @property
    def history(self) -> list[dict[str, Any]]:
        """Steps in the order of their lines."""
        found = self.lines.get("wandb-history.jsonl", {})
        return [json.loads(found[number]) for number in sorted(found)]

    def tail(self, file: str) -> str:
        found = self.lines.get(file, {})
        return json.dumps([found[max(found)]] if found else [])


@dataclass
class Behaviour:
    """How the service is at the moment."""

    delay_s: float = 0.0
    fail: Callable[[str], int | None] = lambda _path: None
    """Path -> status to answer with instead; None is well."""


class WandbServer:
    """Serves from a thread; `stop` and `start` again at the same address."""

    def __init__(self) -> None:
        self.runs: dict[str, StoredRun] = {}
        self.keys: set[str] = set()
        """Authorization headers seen."""
        self.operations: list[str] = []
        """Names of GraphQL operations, and paths of others, in order."""
        self.behaviour = Behaviour()
        self.lock = threading.Lock()
        self._port = 0
        self._server: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        handler = type("Handler", (_Handler,), {"service": self})
        self._server = _Server(("127.0.0.1", self._port), handler)
        self._port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def graphql(self, query: str, variables: dict[str, Any]) -> dict[str, Any] | None:
        """Data of an answer; None for what this service does not have, such as artifacts."""
        if "RunResumeStatus" in query:
            return {"model": self._resume_status(variables)}
        if "UpsertBucket" in query:
            return {"upsertBucket": self._upsert(variables)}
        if "CreateRunFiles" in query:
            files = [
                {"name": name, "uploadUrl": f"{self.url}/upload/{variables['run']}/{name}"}
                for name in variables["files"]
            ]
            made = {"runID": variables["run"], "uploadHeaders": [], "files": files}
            return {"createRunFiles": made}
        return None

    def stream(self, run: str, body: dict[str, Any]) -> None:
        stored = self.runs[run]
        for file, chunk in body.get("files", {}).items():
            lines = stored.lines.setdefault(file, {})
            for number, line in enumerate(chunk["content"], chunk["offset"]):
                lines[number] = line
        if body.get("complete"):
            stored.exit_codes.append(body["exitcode"])

    def _resume_status(self, variables: dict[str, Any]) -> dict[str, Any] | None:
        run = self.runs.get(variables["name"])
        if run is None:
            return None
        summary = run.lines.get("wandb-summary.json", {0: "{}"})
        bucket = {
            "id": f"id-{run.name}",
            "name": run.name,
            "summaryMetrics": summary[max(summary)],
            "displayName": run.display_name,
            "logLineCount": len(run.lines.get("output.log", {})),
            "historyLineCount": len(run.lines.get("wandb-history.jsonl", {})),
            "eventsLineCount": len(run.lines.get("wandb-events.jsonl", {})),
            "historyTail": run.tail("wandb-history.jsonl"),
            "eventsTail": run.tail("wandb-events.jsonl"),
            "config": json.dumps(run.config),
            "tags": run.tags,
            "notes": run.notes,
            "wandbConfig": json.dumps({"t": run.config.get("_wandb", {}).get("value", {})}),
        }
        return {
            "id": "id-project",
            "name": run.project,
            "entity": {"id": "id-entity", "name": run.entity},
            "bucket": bucket,
        }

    def _upsert(self, given: dict[str, Any]) -> dict[str, Any]:
        name = given["name"]
        inserted = name not in self.runs
        run = self.runs.setdefault(
            name, StoredRun(name, given["project"] or "uncategorized", given["entity"] or ENTITY)
        )
        run.display_name = given["displayName"] or run.display_name
        run.group = given["groupName"] or run.group
        run.notes = given["notes"] or run.notes
        run.tags = given["tags"] or run.tags
        run.config |= json.loads(given["config"] or "{}")
        bucket = {
            "id": f"id-{name}",
            "name": name,
            "displayName": run.display_name,
            "description": None,
            "config": json.dumps(run.config),
            "sweepName": None,
            "project": {
                "id": "id-project",
                "name": run.project,
                "entity": {"id": "id-entity", "name": run.entity},
            },
            "historyLineCount": len(run.lines.get("wandb-history.jsonl", {})),
        }
        return {"bucket": bucket, "inserted": inserted}


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 64

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that has left is no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    service: WandbServer

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as inherited
        """Quiet."""

    def do_POST(self) -> None:
        body = json.loads(self._body() or b"{}")
        query = body.get("query", "")
        operation = query.split("(")[0].split("{")[0].strip() or self.path
        if not self._well(operation):
            return
        service = self.service
        with service.lock:
            if query:
                data = service.graphql(query, body.get("variables") or {})
                unknown = [{"message": f"no {operation} here"}] if data is None else []
                self._answer(200, {"data": data} | ({"errors": unknown} if unknown else {}))
                return
            if self.path.endswith("/file_stream"):
                service.stream(self.path.split("/")[-2], body)
        self._answer(200, {})

    def do_PUT(self) -> None:
        body = self._body()
        if self._well(self.path):
            _, run, name = unquote(self.path).strip("/").split("/", 2)
            with self.service.lock:
                self.service.runs[run].files[name] = body
            self._answer(200, {})

    def _body(self) -> bytes:
        data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        return gzip.decompress(data) if self.headers.get("Content-Encoding") == "gzip" else data

    def _well(self, operation: str) -> bool:
        behaviour = self.service.behaviour
        with self.service.lock:
            self.service.operations.append(operation)
            if "Authorization" in self.headers:
                self.service.keys.add(self.headers["Authorization"])
        time.sleep(behaviour.delay_s)
        status = behaviour.fail(operation)
        if status is not None:
            self._answer(status, {"errors": [{"message": f"stand-in says {status}"}]})
        return status is None

    def _answer(self, status: int, content: object) -> None:
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@contextmanager
def wandb_server() -> Iterator[WandbServer]:
    server = WandbServer()
    server.start()
    try:
        yield server
    finally:
        server.stop()
