"""What an API server says: an answer, or an event of a watch, as plain JSON values."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from drivetrain_operator.cluster.errors import (
    UnavailableError,
    error_from_response,
    error_from_status,
)
from drivetrain_operator.cluster.wire import WatchEvent, WatchType

if TYPE_CHECKING:
    import aiohttp

_FAILED: Final = "ERROR"
"""Type of the event whose object is a Status: the watch is over."""


def object_of(response: aiohttp.ClientResponse, content: bytes) -> dict[str, Any]:
    """The object that an answer holds.

    Raises:
        ApiError: the answer is a refusal.
        ValueError: it is no object.
    """
    if response.status >= HTTPStatus.MULTIPLE_CHOICES:
        raise error_from_response(response.status, content, response.headers.get("Retry-After", ""))
    found = json.loads(content)
    if not isinstance(found, dict):
        raise ValueError(f"the answer is no JSON object: {content[:100]!r}")  # noqa: TRY004 - as for no JSON at all
    return found


def event_of(line: bytes, path: str) -> WatchEvent:
    """One line of a watch.

    Raises:
        ApiError: it is an ERROR event, or none that can be read.
    """
    try:
        content = json.loads(line)
        kind, found = content["type"], dict(content["object"])
        if kind != _FAILED:
            return WatchEvent(WatchType(kind), found)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise UnavailableError(
            f"watch {path}: an event that cannot be read: {line[:100]!r}", reason="Unreadable"
        ) from error
    raise error_from_status(found, HTTPStatus.OK)
