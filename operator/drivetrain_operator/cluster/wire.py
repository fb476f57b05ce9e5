"""The words of the API server's protocol, and who listens to what is said."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol


class Method(StrEnum):
    """HTTP methods."""

    GET = "GET"
    POST = "POST"
    PUT = "PUT"
    PATCH = "PATCH"
    DELETE = "DELETE"


class ContentType(StrEnum):
    """What a body is: an object, or one of the patches."""

    JSON = "application/json"
    APPLY_PATCH = "application/apply-patch+yaml"
    """Server-side apply; JSON is YAML."""
    MERGE_PATCH = "application/merge-patch+json"


class WatchType(StrEnum):
    """What happened to a watched object."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"
    """Nothing: the object holds the resourceVersion that the watch has reached."""


@dataclass(frozen=True)
class WatchEvent:
    """One event of a watch."""

    type: WatchType
    object: dict[str, Any]


class CallObserver(Protocol):
    """Whoever counts calls."""

    def __call__(self, verb: str, resource: str, code: str, seconds: float) -> None:
        """Take note of a call.

        Args:
            verb: RBAC's word: get, list, watch, create, update, patch, delete.
            resource: Plural, with its subresource: ``trainingruns/status``.
            code: HTTP status, or ``error`` where no answer came.
            seconds: Until the answer was read; until it began for a watch or a log.
        """
