"""What goes wrong between us and an API server, and the one place that names it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

from drivetrain_operator.reconcile.fields import count, items, mapping, text

UNREACHABLE: Final = "Unreachable"
"""Our reason where a connection was refused or broke."""
TIMEOUT: Final = "Timeout"
"""Reason where no answer came in time; the server's own is the same."""
_SHOWN: Final = 300
"""Characters of an answer that is no Status (a proxy's page, say) which messages quote."""


@dataclass(frozen=True)
class Cause:
    """One of the server's reasons for a refusal."""

    field: str
    """Path of the field as the server names it, such as ``spec.template.spec``."""
    message: str


class ApiError(Exception):
    """A request that failed.

    Attributes:
        status: HTTP status; 0 where no answer came.
        reason: Kubernetes' machine-readable word, such as AlreadyExists.
        message: The server's words, or ours where there was no answer.
        causes: The server's reasons field by field.
        retry_after: Seconds that the server asked to wait; None where it did not.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 0,
        reason: str = "",
        causes: tuple[Cause, ...] = (),
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.reason = reason
        self.causes = causes
        self.retry_after = retry_after

    @property
    def kind(self) -> str:
        """The reason where it is a known one, else the error's class: few values, as metrics need.

        A webhook may answer with any text for a reason.
        """
        return self.reason if self.reason in _REASONS else type(self).__name__

    def __str__(self) -> str:
        """The message, after the status and reason where there are some."""
        marks = " ".join(part for part in (str(self.status or ""), self.reason) if part)
        return f"{marks}: {self.message}" if marks else self.message


_REASONS: Final = frozenset(
    {
        *("Unauthorized", "Forbidden", "NotFound", "AlreadyExists", "Conflict", "Gone", "Invalid"),
        *("Expired", "ServerTimeout", "Timeout", "TooManyRequests", "BadRequest", "InternalError"),
        *("MethodNotAllowed", "NotAcceptable", "RequestEntityTooLarge", "UnsupportedMediaType"),
        *("ServiceUnavailable", "StoreReadError", "OldDefinition", "Unreadable", UNREACHABLE),
    }
)
"""Kubernetes' own, and ours."""


class NotFoundError(ApiError):
    """404: no such object, or no such resource."""


class ConflictError(ApiError):
    """409 Conflict: a precondition failed, or the object was changed meanwhile."""


class AlreadyExistsError(ApiError):
    """409 AlreadyExists: an object of that name is there already."""


class InvalidError(ApiError):
    """422: the object is refused, the causes say why."""


class ForbiddenError(ApiError):
    """401 or 403: no or wrong credentials, no permission, quota or admission."""


class ThrottledError(ApiError):
    """429: too many requests."""


class ExpiredError(ApiError):
    """410: a resourceVersion or continue token is too old; list anew."""


class UnavailableError(ApiError):
    """5xx, a time-out, a refused or broken connection, an answer that cannot be read.

    Whether a write was carried out is unknown.
    """


_BY_STATUS: Final[Mapping[int, type[ApiError]]] = {
    HTTPStatus.UNAUTHORIZED: ForbiddenError,
    HTTPStatus.FORBIDDEN: ForbiddenError,
    HTTPStatus.NOT_FOUND: NotFoundError,
    HTTPStatus.REQUEST_TIMEOUT: UnavailableError,
    HTTPStatus.CONFLICT: ConflictError,
    HTTPStatus.GONE: ExpiredError,
    HTTPStatus.UNPROCESSABLE_ENTITY: InvalidError,
    HTTPStatus.TOO_MANY_REQUESTS: ThrottledError,
}
_ALREADY_EXISTS: Final = "AlreadyExists"


def error_from_status(status: Mapping[str, Any], code: int, retry_after: str = "") -> ApiError:
    """The error that a ``Status`` object tells.

    Args:
        status: The ``Status`` object.
        code: HTTP status of the answer; the object's own where this is 200 (in a watch).
        retry_after: The header of that name, in seconds; empty without one.
    """
    if code == HTTPStatus.OK:
        code = count(status, "code") or int(HTTPStatus.INTERNAL_SERVER_ERROR)
    reason, details = text(status, "reason"), mapping(status, "details")
    return _class_of(code, reason)(
        text(status, "message") or reason or f"HTTP status {code}",
        status=code,
        reason=reason,
        causes=tuple(Cause(text(c, "field"), text(c, "message")) for c in items(details, "causes")),
        retry_after=_seconds(retry_after) or float(count(details, "retryAfterSeconds")) or None,
    )


def error_from_response(code: int, body: bytes, retry_after: str = "") -> ApiError:
    """The error that an answer with a status from 400 on tells, whatever its body holds."""
    try:
        status = json.loads(body)
    except (ValueError, RecursionError):
        status = None
    if not isinstance(status, Mapping) or status.get("kind") != "Status":
        shown = body[:_SHOWN].decode(errors="replace").strip()
        status = {"message": shown}
    return error_from_status(status, code, retry_after)


def error_from_exception(error: Exception, doing: str) -> UnavailableError:
    """The error for a request that got no answer, or none that can be read.

    Args:
        error: What the transport raised.
        doing: What was tried: method and path.
    """
    if isinstance(error, TimeoutError):
        return UnavailableError(f"{doing}: no answer in time", reason=TIMEOUT)
    words = str(error) or type(error).__name__
    return UnavailableError(f"{doing}: {words}", reason=UNREACHABLE)


def _class_of(code: int, reason: str) -> type[ApiError]:
    if code == HTTPStatus.CONFLICT and reason == _ALREADY_EXISTS:
        return AlreadyExistsError
    if code >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return UnavailableError
    return _BY_STATUS.get(code, ApiError)


def _seconds(header: str) -> float | None:
    """The header in seconds; None without one, and for a date, which no API server sends."""
    return float(header) if header.isascii() and header.isdigit() else None
