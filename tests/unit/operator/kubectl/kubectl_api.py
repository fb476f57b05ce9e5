"""An API server in memory: objects by path, list selectors, merge patches, logs, scripted changes.

It runs on a loop of its own in a thread, so that commands may run theirs.
"""

from __future__ import annotations

import asyncio
import copy
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from aiohttp import web

Object = dict[str, Any]
KINDS = {
    "trainingruns": ("drivetrain.dev/v1alpha1", "TrainingRun"),
    "jobs": ("batch/v1", "Job"),
    "pods": ("v1", "Pod"),
    "events": ("v1", "Event"),
    "persistentvolumeclaims": ("v1", "PersistentVolumeClaim"),
}


@dataclass(frozen=True)
class Asked:
    """A request, before it is answered."""

    method: str
    plural: str
    name: str
    """Empty for a list."""


class FakeApi:
    """Start with `with`; `kubeconfig` then leads to it."""

    def __init__(self, folder: Path) -> None:
        self.kubeconfig = folder / "kubeconfig"
        self.objects: dict[tuple[str, str, str], Object] = {}
        self.logs: dict[str, list[str]] = {}
        self.requests: list[tuple[str, str, dict[str, str], Any]] = []
        self.answers: dict[tuple[str, str], tuple[int, str, str]] = {}
        """(method, plural) -> status, reason and message with which it is refused."""
        self.before: Callable[[Asked], None] | None = None
        """Called before each request: the cluster moves while a command waits."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.port = 0

    def __enter__(self) -> Self:
        self._thread.start()
        self.port = asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(10)
        self.kubeconfig.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "fake",
                    "clusters": [
                        {"name": "fake", "cluster": {"server": f"http://127.0.0.1:{self.port}"}}
                    ],
                    "users": [{"name": "me", "user": {"token": "t"}}],
                    "contexts": [
                        {
                            "name": "fake",
                            "context": {"cluster": "fake", "user": "me", "namespace": "lab"},
                        }
                    ],
                }
            )
        )
        return self

    def __exit__(self, *exception: object) -> None:
        asyncio.run_coroutine_threadsafe(self._runner.cleanup(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _start(self) -> int:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, shutdown_timeout=1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        port: int = self._runner.addresses[0][1]
        return port

    # --- what tests put in and read back ---------------------------------------------------

    def put(self, plural: str, obj: Object) -> Object:
        version, kind = KINDS[plural]
        held = {"apiVersion": version, "kind": kind, **copy.deepcopy(obj)}
        meta = held["metadata"]
        meta.setdefault("namespace", "lab")
        self.objects[plural, meta["namespace"], meta["name"]] = held
        return held

    def writes(self) -> list[tuple[str, str, dict[str, str], Any]]:
        return [request for request in self.requests if request[0] != "GET"]

    def held(self, plural: str) -> list[Object]:
        return [obj for key, obj in self.objects.items() if key[0] == plural]

    # --- the server ------------------------------------------------------------------------

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        parts = request.path.strip("/").split("/")
        parts = parts[3:] if parts[0] == "apis" else parts[2:]
        namespace = None
        if parts[0] == "namespaces":
            namespace, parts = parts[1], parts[2:]
        plural, name, subresource = (*parts, "", "")[:3]
        text = await request.text()
        body = json.loads(text) if text else None
        self.requests.append((request.method, request.path, dict(request.query), body))
        if self.before is not None:
            self.before(Asked(request.method, plural, name))
        refused = self.answers.get((request.method, plural))
        if refused is not None:
            return status(*refused)
        if subresource == "log":
            return self._log(request, name)
        if not name and request.method == "GET":
            return self._list(plural, namespace, request.query)
        return self._one(request.method, plural, namespace or "", name, body)

    def _list(self, plural: str, namespace: str | None, query: Any) -> web.Response:
        found = [
            obj
            for (kind, place, _), obj in self.objects.items()
            if kind == plural
            and namespace in (None, place)
            and _labels(obj, query.get("labelSelector", ""))
            and _fields(obj, query.get("fieldSelector", ""))
        ]
        start = int(query.get("continue", "0"))
        end = start + int(query.get("limit", "500"))
        meta = {"continue": str(end)} if end < len(found) else {}
        return web.json_response({"kind": "List", "metadata": meta, "items": found[start:end]})

    def _one(self, method: str, plural: str, namespace: str, name: str, body: Any) -> web.Response:
        if method == "POST":
            return web.json_response(self.put(plural, body), status=201)
        found = self.objects.get((plural, namespace, name))
        if found is None:
            return status(404, "NotFound", f'{plural} "{name}" not found')
        if method == "PATCH":
            merge(found, body)
        if method == "DELETE":
            del self.objects[plural, namespace, name]
        return web.json_response(found)

    def _log(self, request: web.Request, pod: str) -> web.Response:
        lines = self.logs.get(pod)
        if lines is None:
            words = f'container "trainer" in pod "{pod}" is waiting to start: ContainerCreating'
            return status(400, "BadRequest", words)
        tail = request.query.get("tailLines")
        shown = lines[-int(tail) :] if tail else lines
        return web.Response(text="".join(f"{line}\n" for line in shown))


def status(code: int, reason: str, message: str) -> web.Response:
    content = {
        "kind": "Status",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message,
    }
    return web.json_response(content, status=code)


def merge(target: Object, patch: Object) -> None:
    """A JSON merge patch."""
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        elif isinstance(value, dict):
            merge(target.setdefault(key, {}), value)
        else:
            target[key] = value


def _labels(obj: Object, selector: str) -> bool:
    held = obj["metadata"].get("labels", {})
    return all(held.get(k) == v for k, v in _pairs(selector))


def _fields(obj: Object, selector: str) -> bool:
    for path, wanted in _pairs(selector):
        value: Any = obj
        for part in path.split("."):
            value = value.get(part, {})
        if value != wanted:
            return False
    return True


def _pairs(selector: str) -> list[tuple[str, str]]:
    pairs = (part.partition("=") for part in selector.split(",") if part)
    return [(key, value) for key, _, value in pairs]
