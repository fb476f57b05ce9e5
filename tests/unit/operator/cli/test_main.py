from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from drivetrain_api import __version__
from drivetrain_api.crd import custom_resource_definition
from drivetrain_operator.cli import plugins
from drivetrain_operator.cli.main import cli

if TYPE_CHECKING:
    from click.testing import Result

Call = Callable[..., "Result"]
HEAVY = ("pydantic", "yaml", "torch", "asyncio", "psutil", "drivetrain_api", "drivetrain_trainer")
EXAMPLES = Path(__file__).parents[4] / "examples"


@pytest.mark.parametrize("command", [None, *cli.commands])
def test_help_imports_nothing_heavy(command: str | None) -> None:
    words = [command, "--help"] if command else ["--help"]
    program = (
        "import sys\n"
        "from drivetrain_operator.cli.main import cli\n"
        f"try: cli.main({words!r})\n"
        f"finally: print('HEAVY', [m for m in {HEAVY!r} if m in sys.modules])\n"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True
    )
    loaded = found.stdout.splitlines()[-1]
    # The package of an installed command is looked up, its modules are not imported.
    assert loaded in ("HEAVY []", "HEAVY ['drivetrain_trainer']")
    assert "Example" in found.stdout


def test_help_is_fast() -> None:
    """In seconds of CPU: the wall clock would measure whatever else runs here."""

    def seconds() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        words = [sys.executable, "-m", "drivetrain_operator.cli.main", "--help"]
        subprocess.run(words, stdout=subprocess.DEVNULL, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime

    assert min(seconds() for _ in range(3)) < 0.3


def test_commands_of_other_packages_are_listed_and_run(
    call: Call, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "extra_commands.py").write_text(
        "import click\nimport nothing_that_is_installed\n"
        "@click.command()\ndef dance() -> None:\n    '''Dance a little.\n\n    More.'''\n"
    )
    (folder / "good_commands.py").write_text(
        "import click\n@click.command()\ndef sing(): click.echo('la')\n"
    )
    monkeypatch.syspath_prepend(str(folder))
    points = EntryPoints(
        EntryPoint(name, value, plugins.COMMAND_GROUP)
        for name, value in [
            ("dance", "extra_commands:dance"),
            ("sing", "good_commands:sing"),
            ("gone", "no_such_module_here:gone"),
            ("odd", "os:sep"),
            ("run", "good_commands:sing"),
        ]
    )
    monkeypatch.setattr(plugins, "entry_points", points.select)
    listed = call("--help").stdout
    assert "dance       Dance a little\n" in listed
    assert "gone        (cannot be read)" in listed
    assert listed.count("\n  run ") == 1
    assert call("sing").stdout == "la\n"
    broken = call("dance")
    assert broken.exit_code == 1
    assert "command 'dance' cannot be loaded: No module named 'nothing_that" in broken.stderr
    assert "os:sep is no click command" in call("odd").stderr
    assert "Train on this machine" in call("run", "--help").stdout


def test_an_unknown_command_is_refused(call: Call) -> None:
    result = call("trian")
    assert result.exit_code == 2
    assert "No such command 'trian'" in result.stderr


def test_version(call: Call) -> None:
    assert call("version").stdout == f"{__version__}\n"
    assert call("--version").stdout == f"drivetrain {__version__}\n"


def test_crd(call: Call) -> None:
    assert yaml.safe_load(call("crd").stdout) == custom_resource_definition()


def test_new_keeps_a_null_that_was_set_since_it_outweighs_a_preset(call: Call) -> None:
    result = call("new", "--algo", "sac", "--task", "inverted_pendulum", "evaluator.target=null")
    assert result.exit_code == 0
    assert yaml.safe_load(result.stdout)["spec"]["evaluator"] == {"target": None}


def test_new_writes_what_validate_accepts(call: Call, folder: Path) -> None:
    words = ["--algo", "sac", "--task", "ant", "--sim", "mujoco", "--name", "mine"]
    path = folder / "out/run.yaml"
    result = call("new", *words, "training.total_env_steps=100000", "-o", str(path))
    assert result.exit_code == 0
    content = yaml.safe_load(path.read_text())
    assert list(content) == ["apiVersion", "kind", "metadata", "spec"]
    assert content["metadata"] == {"name": "mine"}
    assert content["spec"] == {
        "algo": {"name": "sac"},
        "task": {"name": "ant"},
        "sim": "mujoco",
        "training": {"totalEnvSteps": 100000},
    }
    assert call("validate", "-f", str(path)).stdout == f"{path}: ok (mine)\n"


def test_new_never_overwrites_by_accident(call: Call, folder: Path) -> None:
    path = folder / "run.yaml"
    path.write_text("precious")
    words = ["new", "--algo", "sac", "--task", "ant", "-o", str(path)]
    result = call(*words)
    assert result.exit_code == 2
    assert f"error: {path} exists" in result.stderr
    assert path.read_text() == "precious"
    assert call(*words, "--force").exit_code == 0
    assert yaml.safe_load(path.read_text())["kind"] == "TrainingRun"


def test_new_checks_before_it_writes(call: Call, folder: Path) -> None:
    result = call("new", "--algo", "sac", "--task", "aunt", "-o", "run.yaml")
    assert result.exit_code == 2
    assert "unknown task 'aunt': did you mean ant?" in result.stderr
    assert not (folder / "run.yaml").exists()


def test_new_names_a_file_it_cannot_write(call: Call) -> None:
    result = call("new", "--algo", "sac", "--task", "ant", "-o", "/proc/none/run.yaml")
    assert result.exit_code == 2
    assert "/proc/none/run.yaml cannot be written: No such file" in result.stderr


def test_validate_tells_of_each_file(call: Call, manifest: Callable[..., Path]) -> None:
    good, bad = manifest("good.yaml"), manifest("bad.yaml", seed="7", sim="gazebo")
    result = call("validate", "-f", str(bad), "-f", str(good), "-f", "none.yaml")
    assert result.exit_code == 2
    assert result.stdout == f"{good}: ok (half-cheetah-sac)\n"
    assert f'{bad}:12: seed: must be an integer from 0 to 4294967295; got "7"' in result.stderr
    assert f"{bad}:13: sim: must be one of" in result.stderr
    assert "none.yaml: No such file or directory" in result.stderr


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.name)
def test_the_examples_are_valid(call: Call, path: Path) -> None:
    result = call("validate", "-f", str(path))
    if path.stem == "suite":
        assert result.exit_code == 2
        assert "suite.yaml:8: kind: is Suite, not TrainingRun" in result.stderr
        assert "drivetrain suite trains it" in result.stderr
        result = call("suite", "-f", str(path), "--dry-run")
    assert result.exit_code == 0, result.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_the_shells_code(call: Call, shell: str) -> None:
    result = call("completion", shell)
    assert result.exit_code == 0
    assert "_DRIVETRAIN_COMPLETE" in result.stdout


def completed(words: list[str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("COMP_WORDS", " ".join(["drivetrain", *words]))
    monkeypatch.setenv("COMP_CWORD", str(len(words)))
    found = subprocess.run(
        [sys.executable, "-c", "from drivetrain_operator.cli.main import main; main()"],
        env={**os.environ, "_DRIVETRAIN_COMPLETE": "bash_complete"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return [line.partition(",")[2] for line in found.stdout.splitlines()]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["ru"], ["run"]),
        (["run", "--task", "half"], ["half_cheetah"]),
        (["new", "--algo", "s"], ["sac"]),
        (["run", "--sim", ""], ["mjwarp", "mujoco"]),
        (["run", "eval"], ["evaluator."]),
        (["run", "algo.num_e"], ["algo.num_envs="]),
        (["run", "see"], ["seed="]),
        (["status", "ch"], ["cheetah"]),
    ],
)
def test_completion_knows_tasks_and_settings(
    monkeypatch: pytest.MonkeyPatch, folder: Path, words: list[str], offered: list[str]
) -> None:
    stored = folder / ".drivetrain/runs/cheetah"
    stored.mkdir(parents=True)
    (stored / "trainingrun.json").touch()
    assert completed(words, monkeypatch) == offered
