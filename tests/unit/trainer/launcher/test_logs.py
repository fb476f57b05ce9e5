"""Logs are JSON lines for a collector, with the run in each."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap


def test_json_lines_with_context_and_traceback() -> None:
    script = """
        import structlog
        from drivetrain_trainer.launcher.logs import configure_logging
        log = structlog.get_logger()
        configure_logging(run="a", attempt=2)
        log.debug("of no use to a person")
        log.info("hello", figure=3)
        try:
            1 / 0
        except ZeroDivisionError:
            log.exception("oh")
        configure_logging(process="launcher")
        log.warning("later")
    """
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], check=True, capture_output=True, text=True
    )
    assert ended.stdout == ""
    hello, oh, later = (json.loads(line) for line in ended.stderr.splitlines())
    assert (hello["event"], hello["figure"], hello["run"], hello["attempt"]) == ("hello", 3, "a", 2)
    assert hello["level"] == "info"
    assert hello["timestamp"].endswith("Z")
    assert oh["exception"][0]["exc_type"] == "ZeroDivisionError"
    assert "run" not in later
