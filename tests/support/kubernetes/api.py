"""The API server as a test sees it: plain requests, answers as they are.

It shares no code with the operator's own client, so that it can be a witness of what that did.
"""

from __future__ import annotations

import http.client
import json
import ssl
import threading
import time
import urllib.parse
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import yaml

T = TypeVar("T")
Object = dict[str, Any]
"""A Kubernetes object, or any other answer."""

FIELD_MANAGER = "tests"
_PLURALS = {
    "Endpoints": "endpoints",
    "Ingress": "ingresses",
    "NetworkPolicy": "networkpolicies",
    "PriorityClass": "priorityclasses",
    "RuntimeClass": "runtimeclasses",
    "StorageClass": "storageclasses",
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
}
_CLUSTER_SCOPED = frozenset(
    {
        "APIService",
        "ClusterQueue",
        "ClusterRole",
        "ClusterRoleBinding",
        "CustomResourceDefinition",
        "Namespace",
        "Node",
        "PersistentVolume",
        "PriorityClass",
        "ResourceFlavor",
        "StorageClass",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
    }
)


@dataclass(frozen=True)
class Answer:
    """Of one request."""

    code: int
    body: Any
    """Decoded where it is JSON, else the text."""
    warnings: tuple[str, ...] = ()
    """What the server warned of, such as unknown fields."""

    @property
    def message(self) -> str:
        """Of a refusal."""
        return str(self.body.get("message", "")) if isinstance(self.body, dict) else str(self.body)

    @property
    def causes(self) -> list[tuple[str, str]]:
        """Field and message of each cause of a refusal."""
        details = self.body.get("details") or {} if isinstance(self.body, dict) else {}
        return [
            (cause.get("field", ""), cause.get("message", ""))
            for cause in details.get("causes") or ()
        ]


class RefusedError(Exception):
    """The server answered with an error; `answer` has it."""

    def __init__(self, request: str, answer: Answer) -> None:
        super().__init__(f"{request}: {answer.code} {answer.message}")
        self.answer = answer


class Api:
    """Requests to one API server, from any thread; a connection a thread."""

    def __init__(
        self,
        url: str,
        token: str,
        authority: Path | None = None,
        *,
        accept: str = "application/json",
    ) -> None:
        parts = urllib.parse.urlsplit(url)
        assert parts.hostname is not None
        self._address = (parts.hostname, parts.port or 443)
        self._headers = {"Authorization": f"Bearer {token}", "Accept": accept}
        self._authority = authority
        self._local = threading.local()
        self._connections: list[http.client.HTTPSConnection] = []

    # -- requests --------------------------------------------------------------------------

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        content_type: str = "application/json",
        accept: str | None = None,
        timeout_s: float = 30.0,
        **params: str,
    ) -> Answer:
        """Send one request; an error of the server is an answer like any other.

        Raises:
            OSError: The server is not there, or did not answer in time.
        """
        target = f"{path}?{urllib.parse.urlencode(params)}" if params else path
        headers = dict(self._headers)
        if accept is not None:
            headers["Accept"] = accept
        data = None
        if body is not None:
            headers["Content-Type"] = content_type
            data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        response, text = self._exchange(method, target, data, headers, timeout_s)
        is_json = (response.getheader("Content-Type") or "").startswith("application/json")
        return Answer(
            response.status,
            json.loads(text) if is_json else text.decode(errors="replace"),
            tuple(response.headers.get_all("Warning") or ()),
        )

    def _exchange(
        self,
        method: str,
        target: str,
        data: bytes | None,
        headers: Mapping[str, str],
        timeout_s: float,
    ) -> tuple[http.client.HTTPResponse, bytes]:
        kept = getattr(self._local, "connection", None) is not None
        try:
            return self._once(method, target, data, headers, timeout_s)
        except (http.client.HTTPException, ConnectionError, ssl.SSLEOFError):
            if not kept:
                raise
        return self._once(method, target, data, headers, timeout_s)  # the kept one was stale

    def _once(
        self,
        method: str,
        target: str,
        data: bytes | None,
        headers: Mapping[str, str],
        timeout_s: float,
    ) -> tuple[http.client.HTTPResponse, bytes]:
        connection: http.client.HTTPSConnection | None = getattr(self._local, "connection", None)
        if connection is None:
            context = ssl.create_default_context(cafile=self._authority)
            connection = http.client.HTTPSConnection(*self._address, context=context)
            self._local.connection = connection
            self._connections.append(connection)
        connection.timeout = timeout_s
        if connection.sock is not None:
            connection.sock.settimeout(timeout_s)
        try:
            connection.request(method, target, body=data, headers=dict(headers))
            response = connection.getresponse()
            return response, response.read()
        except BaseException:
            connection.close()
            self._local.connection = None
            raise

    def lines(self, target: str, timeout_s: float = 60.0) -> Generator[bytes, None, None]:
        """Lines of an answer as they come, such as a watch's; on a connection of its own.

        Raises:
            OSError: The connection broke, or nothing came in time.
        """
        context = ssl.create_default_context(cafile=self._authority)
        connection = http.client.HTTPSConnection(*self._address, context=context, timeout=timeout_s)
        with closing(connection):
            connection.request("GET", target, headers=self._headers)
            with connection.getresponse() as response:
                yield from response

    def close(self) -> None:
        """Close the connections of all threads, once none of them asks any more."""
        for connection in self._connections:
            connection.close()
        self._connections.clear()
        self._local = threading.local()

    def request(self, method: str, path: str, body: object = None, **options: Any) -> Any:
        """As `ask`, for a request that is to succeed.

        Raises:
            RefusedError: The server answered with an error.
        """
        answer = self.ask(method, path, body, **options)
        if answer.code >= 400:
            raise RefusedError(f"{method} {path}", answer)
        return answer.body

    # -- objects ---------------------------------------------------------------------------

    def apply(self, *objects: Object, namespace: str | None = None, **params: str) -> list[Object]:
        """Server-side apply, as ``kubectl apply --server-side`` does it; one after another."""
        return [
            self.request(
                "PATCH",
                path_of(item, namespace),
                item,
                content_type="application/apply-patch+yaml",
                **{"fieldManager": FIELD_MANAGER, "force": "true"} | params,
            )
            for item in objects
        ]

    def apply_file(self, path: Path, *, namespace: str | None = None) -> list[Object]:
        """Apply every document of a YAML file."""
        documents: Iterable[Object] = yaml.safe_load_all(path.read_text(encoding="utf-8"))
        return self.apply(*(item for item in documents if item), namespace=namespace)

    def create(
        self,
        item: Object,
        *,
        namespace: str | None = None,
        timeout_s: float = 30.0,
        **params: str,
    ) -> Object:
        """POST it; `metadata.generateName` works."""
        folder = collection_of(item["apiVersion"], item["kind"], _namespace(item, namespace))
        created: Object = self.request("POST", folder, item, timeout_s=timeout_s, **params)
        return created

    def get(self, api: str, kind: str, name: str, namespace: str | None = None) -> Object:
        """One object, such as ``get("batch/v1", "Job", "a", "default")``."""
        found: Object = self.request("GET", f"{collection_of(api, kind, namespace)}/{name}")
        return found

    def find(self, api: str, kind: str, name: str, namespace: str | None = None) -> Object | None:
        """As `get`; None where it does not exist."""
        answer = self.ask("GET", f"{collection_of(api, kind, namespace)}/{name}")
        if answer.code == 404:
            return None
        if answer.code >= 400:
            raise RefusedError(f"GET {kind} {name}", answer)
        found: Object = answer.body
        return found

    def objects(
        self, api: str, kind: str, namespace: str | None = None, **params: str
    ) -> list[Object]:
        """All of a namespace, or of all; `labelSelector` and the like by name."""
        listed = self.request("GET", collection_of(api, kind, namespace), **params)
        items: list[Object] = listed["items"]
        return items

    def patch(
        self,
        api: str,
        kind: str,
        name: str,
        change: Object,
        namespace: str | None = None,
        *,
        subresource: str | None = None,
        **params: str,
    ) -> Object:
        """A merge patch, of the object or of a subresource such as ``status``."""
        path = f"{collection_of(api, kind, namespace)}/{name}"
        if subresource is not None:
            path = f"{path}/{subresource}"
        patched: Object = self.request(
            "PATCH", path, change, content_type="application/merge-patch+json", **params
        )
        return patched

    def delete(
        self,
        api: str,
        kind: str,
        name: str,
        namespace: str | None = None,
        *,
        propagation: str = "Background",
        grace_s: int | None = None,
    ) -> None:
        """Delete it; nothing where it is gone already."""
        options: Object = {"kind": "DeleteOptions", "apiVersion": "v1"}
        options["propagationPolicy"] = propagation
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        path = f"{collection_of(api, kind, namespace)}/{name}"
        answer = self.ask("DELETE", path, options)
        if answer.code >= 400 and answer.code != 404:
            raise RefusedError(f"DELETE {path}", answer)


# -- paths ---------------------------------------------------------------------------------


def collection_of(api: str, kind: str, namespace: str | None = None) -> str:
    """Path of the objects of a kind, such as ``/apis/batch/v1/namespaces/default/jobs``."""
    root = f"/apis/{api}" if "/" in api else f"/api/{api}"
    plural = _PLURALS.get(kind, f"{kind.lower()}s")
    if namespace is None or kind in _CLUSTER_SCOPED:
        return f"{root}/{plural}"
    return f"{root}/namespaces/{namespace}/{plural}"


def path_of(item: Object, namespace: str | None = None) -> str:
    """Path of an object; `namespace` is for one that names none itself."""
    folder = collection_of(item["apiVersion"], item["kind"], _namespace(item, namespace))
    return f"{folder}/{item['metadata']['name']}"


def _namespace(item: Object, otherwise: str | None) -> str | None:
    namespace: str | None = item["metadata"].get("namespace", otherwise)
    return namespace


def wait_for(
    look: Callable[[], T | None], what: str, timeout_s: float = 30.0, every_s: float = 0.05
) -> T:
    """What `look` gives once it gives anything true.

    Raises:
        TimeoutError: It never did; names `what`.
    """
    end = time.monotonic() + timeout_s
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > end:
            raise TimeoutError(f"no {what} within {timeout_s:g} s; last seen: {found!r}")
        time.sleep(every_s)
