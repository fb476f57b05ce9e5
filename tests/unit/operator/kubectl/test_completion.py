from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from kubectl_api import FakeApi
from kubectl_objects import training_run

from drivetrain_operator.kubectl.completion import proposals
from drivetrain_operator.kubectl.main import cli


def test_commands_are_proposed_with_what_they_do() -> None:
    *lines, directive = proposals(cli, ["de"])
    assert lines == ["describe\tShow one run in full."]
    assert directive == ":4"


def test_nothing_typed_yet() -> None:
    assert len(proposals(cli, [])) == len(cli.commands) + 1


def test_runs_are_proposed_with_their_phase(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(api.kubeconfig))
    api.put("trainingruns", training_run("wander", phase="Failed"))
    api.put("trainingruns", training_run("crawl"))
    assert proposals(cli, ["logs", "wa"]) == ["walk\tRunning", "wander\tFailed", ":4"]
    assert proposals(cli, ["suspend", "walk", "cr"]) == ["crawl\tRunning", ":4"]


def test_options_before_the_name_count(api: FakeApi) -> None:
    words = ["describe", "--kubeconfig", str(api.kubeconfig), "-n", "empty", ""]
    assert proposals(cli, words) == [":4"]
    words[4] = "lab"
    assert proposals(cli, words) == ["walk\tRunning", ":4"]


def test_a_cluster_that_does_not_answer_proposes_nothing(tmp_path: Path) -> None:
    words = ["describe", "--kubeconfig", str(tmp_path / "none"), ""]
    assert proposals(cli, words) == [":4"]


def test_the_program_that_kubectl_asks() -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from drivetrain_operator.kubectl.completion import main; main()",
            "tens",
        ],
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout == "tensorboard\tOpen TensorBoard on this machine.\n:4\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_for_the_bare_program(shell: str) -> None:
    done = CliRunner().invoke(cli, ["completion", shell])
    assert done.exit_code == 0
    assert "kubectl-drivetrain" in done.output
    assert "_KUBECTL_DRIVETRAIN_COMPLETE" in done.output


def test_help_imports_no_client_of_a_cluster() -> None:
    program = (
        "import sys; from drivetrain_operator.kubectl.main import cli\n"
        "try: cli(['--help'])\n"
        "except SystemExit: pass\n"
        "assert not {'kubernetes', 'aiohttp', 'torch', 'kopf'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
