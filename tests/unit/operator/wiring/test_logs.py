from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from drivetrain_operator.wiring.logs import configure, get_logger, run_logger
from drivetrain_operator.wiring.settings import LogFormat, LogLevel


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    for name in ("kopf", "asyncio", "aiohttp", "kubernetes"):
        logging.getLogger(name).setLevel(logging.NOTSET)
    structlog.reset_defaults()


def fail() -> None:
    secret = ("not for", "the log")
    raise ValueError("no such thing" if secret else "")


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_our_lines_are_objects_with_run_and_attempt(capsys: pytest.CaptureFixture[str]) -> None:
    configure(LogLevel.INFO, LogFormat.JSON)
    run_logger(get_logger("ours"), "lab", "walk", 2).info("attempt 2 begins", reason="Because")
    (line,) = lines(capsys)
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": "attempt 2 begins",
        "level": "info",
        "logger": "ours",
        "namespace": "lab",
        "run": "walk",
        "attempt": 2,
        "reason": "Because",
    }


def test_libraries_log_in_the_same_form(capsys: pytest.CaptureFixture[str]) -> None:
    """kopf tells its object in a field of its own; a line of ours names it as ours do."""
    configure(LogLevel.INFO, LogFormat.JSON)
    reference = {"namespace": "lab", "name": "walk", "uid": "1"}
    logging.getLogger("kopf.objects").warning("odd: %s", "x", extra={"k8s_ref": reference})
    logging.getLogger("kopf").info("usual course")
    (line,) = lines(capsys)
    assert (line["event"], line["level"], line["logger"]) == ("odd: x", "warning", "kopf.objects")
    assert (line["namespace"], line["run"]) == ("lab", "walk")


def test_an_exception_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    configure(LogLevel.INFO, LogFormat.JSON)
    try:
        fail()
    except ValueError:
        get_logger("ours").exception("failed")
    (line,) = lines(capsys)
    assert "ValueError: no such thing" in line["exception"]


@pytest.mark.parametrize(
    ("level", "seen"),
    [
        (LogLevel.DEBUG, ["debug", "info", "warning", "kopf"]),
        (LogLevel.INFO, ["info", "warning"]),
        (LogLevel.WARNING, ["warning"]),
        (LogLevel.ERROR, []),
    ],
)
def test_levels(capsys: pytest.CaptureFixture[str], level: LogLevel, seen: list[str]) -> None:
    configure(level, LogFormat.JSON)
    log = get_logger(f"ours.{level}")
    log.debug("debug")
    log.info("info")
    log.warning("warning")
    logging.getLogger("kopf").debug("kopf")
    assert [line["event"] for line in lines(capsys)] == seen


def test_a_line_for_a_person_shows_no_variables(capsys: pytest.CaptureFixture[str]) -> None:
    configure(LogLevel.INFO, LogFormat.CONSOLE)
    try:
        fail()
    except ValueError:
        get_logger("console").exception("failed", run="walk")
    text = capsys.readouterr().err
    assert "failed" in text
    assert "run=walk" in text
    assert "ValueError: no such thing" in text
    assert "not for" not in text
