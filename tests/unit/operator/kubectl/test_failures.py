"""What a command says when the cluster does not answer as hoped."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from kubectl_api import FakeApi

from drivetrain_operator.kubectl.main import cli

Call = Callable[..., Result]


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ((401, "Unauthorized", "no"), ["does not accept these credentials", "log in again"]),
        ((403, "Forbidden", "you cannot list"), ["you cannot list", "ask for that permission"]),
        ((404, "NotFound", "404"), ["serves no TrainingRuns", "drivetrain crd | kubectl apply"]),
        ((429, "TooManyRequests", "slow down"), ["is too busy: slow down", "try again"]),
        ((503, "ServiceUnavailable", "etcd"), ["no good answer from http://127", "$KUBECONFIG"]),
        ((422, "Invalid", "odd"), ["the API server refused it", "odd"]),
        ((400, "BadRequest", "what?"), ["what?"]),
    ],
)
def test_each_answer_is_explained(
    api: FakeApi, drivetrain: Call, answer: tuple[int, str, str], told: list[str]
) -> None:
    api.answers["GET", "trainingruns"] = answer
    done = drivetrain("list")
    assert done.exit_code == 1
    assert done.stdout == ""
    for words in told:
        assert words in done.stderr


def test_no_server_at_all(api: FakeApi, tmp_path: Path) -> None:
    elsewhere = tmp_path / "gone"
    text = api.kubeconfig.read_text().replace(f":{api.port}", ":1")
    elsewhere.write_text(text)
    done = CliRunner().invoke(cli, ["list", "--kubeconfig", str(elsewhere)])
    assert done.exit_code == 1
    assert "no good answer from http://127.0.0.1:1" in done.output


def test_no_kubeconfig(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["list", "--kubeconfig", str(tmp_path / "none")])
    assert done.exit_code == 1
    assert "--kubeconfig or $KUBECONFIG" in done.output


def test_no_such_context(drivetrain: Call) -> None:
    done = drivetrain("list", "--context", "prod")
    assert done.exit_code == 1
    assert "prod" in done.output


@pytest.mark.parametrize("text", ["", "5x", "m", "-3"])
def test_a_duration_that_is_none(drivetrain: Call, text: str) -> None:
    done = drivetrain("logs", "walk", f"--since={text}")
    assert done.exit_code == 2
    assert "write 90s, 5m, 1h30m or 2d" in done.output


@pytest.mark.parametrize("command", [None, *cli.commands])
def test_every_command_has_help_with_examples(command: str | None) -> None:
    done = CliRunner().invoke(cli, [*([command] if command else []), "--help"])
    assert done.exit_code == 0
    assert "  kubectl drivetrain " in done.output
    assert "..." not in done.output.split("Options:")[0].split("\n", 1)[1]
