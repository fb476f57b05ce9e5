"""What a request to an API server means, and which requests are meant."""

from __future__ import annotations

import fnmatch
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Verb(StrEnum):
    """Kubernetes' verbs; server-side apply is told from other patches."""

    GET = "get"
    LIST = "list"
    WATCH = "watch"
    CREATE = "create"
    UPDATE = "update"
    PATCH = "patch"
    APPLY = "apply"
    DELETE = "delete"
    DELETE_COLLECTION = "deletecollection"
    OTHER = "other"
    """Not on a resource: ``/readyz``, discovery."""


WRITES = frozenset(
    {
        Verb.CREATE,
        Verb.UPDATE,
        Verb.PATCH,
        Verb.APPLY,
        Verb.DELETE,
        Verb.DELETE_COLLECTION,
    }
)
_BY_METHOD = {"POST": Verb.CREATE, "PUT": Verb.UPDATE, "PATCH": Verb.PATCH}
_NAMESPACE_PARTS = frozenset({"status", "finalize"})


@dataclass(frozen=True)
class Call:
    """One request."""

    verb: Verb
    resource: str
    """Plural, with its subresource: ``jobs``, ``trainingruns/status``; else the path."""
    namespace: str | None
    name: str | None
    """From the path; of an object that is created, a proxy takes it from the body."""
    dry_run: bool
    code: int = 0
    """Of the answer; 0 where there was none."""
    body: bytes = b""
    """What was sent, where the proxy keeps bodies."""

    @property
    def writes(self) -> bool:
        """Whether it is meant to change anything."""
        return self.verb in WRITES and not self.dry_run

    @classmethod
    def parse(
        cls, method: str, path: str, params: Mapping[str, str], content_type: str = ""
    ) -> Call:
        """From a request as it is on the wire."""
        parts = [urllib.parse.unquote(part) for part in path.strip("/").split("/")]
        rest = _resource_parts(parts)
        if not rest:
            return cls(Verb.OTHER, path, None, None, dry_run=False)
        namespace = None
        if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in _NAMESPACE_PARTS:
            namespace, rest = rest[1], rest[2:]
        name = rest[1] if len(rest) > 1 else None
        return cls(
            _verb(method, name, params, content_type),
            "/".join([rest[0], *rest[2:]]),
            namespace,
            name,
            dry_run="dryRun" in params,
        )


def _resource_parts(parts: list[str]) -> list[str]:
    if parts[0] == "api":
        return parts[2:]
    return parts[3:] if parts[0] == "apis" else []


def _verb(method: str, name: str | None, params: Mapping[str, str], content_type: str) -> Verb:
    if method == "GET":
        if params.get("watch", "").lower() in ("1", "true"):
            return Verb.WATCH
        return Verb.LIST if name is None else Verb.GET
    if method == "DELETE":
        return Verb.DELETE_COLLECTION if name is None else Verb.DELETE
    if method == "PATCH" and content_type.startswith("application/apply-patch"):
        return Verb.APPLY
    return _BY_METHOD.get(method, Verb.OTHER)


@dataclass(frozen=True)
class Selector:
    """Chooses calls; what is not said matches all. Names are shell patterns."""

    resource: str | None = None
    """``jobs`` or ``trainingruns/status``; ``*/status`` for any status."""
    verbs: frozenset[Verb] | None = None
    namespace: str | None = None
    name: str | None = None
    writes: bool | None = None
    """Only what changes something (a dry run does not), or only what does not."""

    def matches(self, call: Call) -> bool:
        """Whether the call is meant."""
        return (
            _fits(self.resource, call.resource)
            and (self.verbs is None or call.verb in self.verbs)
            and _fits(self.namespace, call.namespace)
            and _fits(self.name, call.name)
            and (self.writes is None or call.writes == self.writes)
        )


def calls(
    resource: str | None = None,
    *verbs: Verb,
    namespace: str | None = None,
    name: str | None = None,
) -> Selector:
    """``calls("jobs", Verb.CREATE, namespace="a")``, short for a `Selector`."""
    return Selector(resource, frozenset(verbs) or None, namespace, name)


EVERYTHING = Selector()
EVERY_WRITE = Selector(writes=True)
EVERY_WATCH = Selector(verbs=frozenset({Verb.WATCH}))


def _fits(pattern: str | None, value: str | None) -> bool:
    return pattern is None or (value is not None and fnmatch.fnmatchcase(value, pattern))
