from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from click.testing import CliRunner

from drivetrain_operator.cluster.credentials import ConnectionSettingsError
from drivetrain_operator.wiring import logs, program
from drivetrain_operator.wiring.main import main
from drivetrain_operator.wiring.program import Ending
from drivetrain_operator.wiring.settings import OperatorSettings, flag, variable


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Settings that `serve` was called with; an exception in it is raised the next time."""
    seen: list[Any] = []

    async def serve(settings: OperatorSettings) -> Ending:
        if seen and isinstance(seen[0], Exception):
            raise seen.pop(0)
        seen.append(settings)
        return Ending.FAILED if settings.workers == 2 else Ending.STOPPED

    monkeypatch.setattr(program, "serve", serve)
    monkeypatch.setattr(logs, "configure", lambda *_: None)
    return seen


def test_a_flag_goes_before_its_variable(served: list[Any]) -> None:
    environment = {variable("workers"): "3", variable("namespaces"): "lab,team"}
    done = CliRunner().invoke(main, ["--workers", "5", "--leader-elect=false"], env=environment)
    assert done.exit_code == 0, done.output
    assert served[0].workers == 5
    assert served[0].namespaces == ("lab", "team")
    assert served[0].leader_elect is False


def test_a_boolean_flag_alone_means_true(served: list[Any]) -> None:
    CliRunner().invoke(main, ["--leader-elect"], env={variable("leader_elect"): "false"})
    assert served[0].leader_elect is True


def test_the_exit_status_is_how_it_ended(served: list[Any]) -> None:
    assert CliRunner().invoke(main, ["--workers", "2"]).exit_code == 1
    assert CliRunner().invoke(main, []).exit_code == 0
    assert len(served) == 2


def test_a_wrong_value_is_a_usage_error(served: list[Any]) -> None:
    done = CliRunner().invoke(main, ["--workers", "0"], env={variable("log_format"): "xml"})
    assert done.exit_code == 2
    assert "--workers (DRIVETRAIN_OPERATOR_WORKERS): '0' is not allowed" in done.output
    assert "--log-format (DRIVETRAIN_OPERATOR_LOG_FORMAT): 'xml' is not allowed" in done.output
    assert served == []


@pytest.mark.parametrize("error", [ConnectionSettingsError("no kubeconfig"), OSError("port taken")])
def test_what_keeps_it_from_starting_is_said_in_a_line(served: list[Any], error: Exception) -> None:
    served.append(error)
    done = CliRunner().invoke(main, [])
    assert (done.exit_code, done.output) == (1, f"Error: {error}\n")


def test_help_names_every_setting_and_its_variable() -> None:
    text = " ".join(CliRunner().invoke(main, ["--help"], terminal_width=200).output.split())
    for name in OperatorSettings.model_fields:
        assert flag(name) in text
        assert variable(name) in text
    assert "drivetrain-operator --namespaces team-a,team-b" in text


@pytest.mark.parametrize(
    "module", ["drivetrain_operator.cli.main", "drivetrain_operator.wiring.main"]
)
def test_help_waits_for_no_framework(module: str) -> None:
    heavy = ("kopf", "kubernetes", "aiohttp")
    code = f"import sys, {module}; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
