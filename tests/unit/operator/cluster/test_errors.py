from __future__ import annotations

import json
from typing import Any

import aiohttp
import pytest

from drivetrain_operator.cluster.errors import (
    AlreadyExistsError,
    ApiError,
    Cause,
    ConflictError,
    ExpiredError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    ThrottledError,
    UnavailableError,
    error_from_exception,
    error_from_response,
    error_from_status,
)

CLASSES = [
    (400, "BadRequest", ApiError),
    (401, "Unauthorized", ForbiddenError),
    (403, "Forbidden", ForbiddenError),
    (404, "NotFound", NotFoundError),
    (405, "MethodNotAllowed", ApiError),
    (408, "Timeout", UnavailableError),
    (409, "Conflict", ConflictError),
    (409, "AlreadyExists", AlreadyExistsError),
    (410, "Expired", ExpiredError),
    (410, "Gone", ExpiredError),
    (413, "RequestEntityTooLarge", ApiError),
    (422, "Invalid", InvalidError),
    (429, "TooManyRequests", ThrottledError),
    (500, "InternalError", UnavailableError),
    (503, "ServiceUnavailable", UnavailableError),
    (504, "Timeout", UnavailableError),
]


@pytest.mark.parametrize(("code", "reason", "expected"), CLASSES)
def test_class_by_status_and_reason(code: int, reason: str, expected: type[ApiError]) -> None:
    body = {"kind": "Status", "code": code, "reason": reason, "message": "words"}
    answered = error_from_response(code, json.dumps(body).encode())
    watched = error_from_status(body, 200)
    for error in (answered, watched):
        assert type(error) is expected
        assert (error.status, error.reason, error.message) == (code, reason, "words")
        assert str(error) == f"{code} {reason}: words"


def test_causes_and_waits_come_from_the_details() -> None:
    body = {
        "kind": "Status",
        "message": "m",
        "reason": "Invalid",
        "details": {
            "causes": [{"reason": "FieldValueInvalid", "message": "too big", "field": "spec.x"}, 7],
            "retryAfterSeconds": 3,
        },
    }
    error = error_from_response(422, json.dumps(body).encode())
    assert error.causes == (Cause("spec.x", "too big"),)
    assert error.retry_after == 3.0
    assert error_from_response(429, json.dumps(body).encode(), "7").retry_after == 7.0


@pytest.mark.parametrize("header", ["", "soon", "-1", "Wed, 21 Oct 2026 07:28:00 GMT", "1.5"])
def test_a_wait_that_is_no_number_of_seconds_is_none(header: str) -> None:
    assert error_from_response(429, b"", header).retry_after is None


BODIES: list[tuple[bytes, str]] = [
    (b"", "HTTP status 502"),
    (b"<html>bad gateway</html>\n", "<html>bad gateway</html>"),
    (b"\xff\xfe", "��"),
    (b"null", "null"),
    (b"[1]", "[1]"),
    (b'{"kind": "Status"}', "HTTP status 502"),
    (b'{"kind": "Status", "message": 5, "reason": [], "details": "x"}', "HTTP status 502"),
    (b"x" * 9999, "x" * 300),
    (b"[" * 100_000, "[" * 300),
]


@pytest.mark.parametrize(("body", "message"), BODIES)
def test_any_body_makes_an_error(body: bytes, message: str) -> None:
    error = error_from_response(502, body)
    assert type(error) is UnavailableError
    assert error.message == message


def test_an_error_event_without_a_code_is_unavailable() -> None:
    assert type(error_from_status({}, 200)) is UnavailableError


EXCEPTIONS: list[tuple[Any, str, str]] = [
    (TimeoutError(), "Timeout", "GET /x: no answer in time"),
    (aiohttp.ServerTimeoutError(), "Timeout", "GET /x: no answer in time"),
    (ConnectionResetError("reset"), "Unreachable", "GET /x: reset"),
    (aiohttp.ServerDisconnectedError(), "Unreachable", "GET /x: Server disconnected"),
    (OSError(), "Unreachable", "GET /x: OSError"),
]


@pytest.mark.parametrize(("raised", "reason", "message"), EXCEPTIONS)
def test_no_answer(raised: Exception, reason: str, message: str) -> None:
    error = error_from_exception(raised, "GET /x")
    assert (error.status, error.reason, error.message) == (0, reason, message)
    assert str(error) == f"{reason}: {message}"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ConflictError("stale", status=409, reason="Conflict"), "Conflict"),
        (error_from_exception(TimeoutError(), "GET /"), "Timeout"),
        (error_from_exception(OSError("refused"), "GET /"), "Unreachable"),
        (ForbiddenError("no", status=403, reason="walk is against rule 7"), "ForbiddenError"),
        (ApiError("odd"), "ApiError"),
    ],
)
def test_kinds_are_few_whatever_a_webhook_answers(error: ApiError, kind: str) -> None:
    assert error.kind == kind
