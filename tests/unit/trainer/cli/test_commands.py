from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points

import click
import pytest

from drivetrain_trainer.cli.refusal import Refusal, refusing

COMMANDS = ("diagnose", "export", "extract", "play", "plot", "timings", "trace")


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_are_registered(name: str) -> None:
    (point,) = entry_points(group="drivetrain.commands", name=name)
    command = point.load()
    assert isinstance(command, click.Command)
    assert command.name == name


def test_listing_a_command_imports_nothing_heavy() -> None:
    code = (
        "import importlib, sys;"
        f"[importlib.import_module('drivetrain_trainer.cli.' + name) for name in {COMMANDS}];"
        "print(sorted({'torch', 'mujoco', 'numpy', 'matplotlib'} & set(sys.modules)))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"


def test_only_the_named_errors_become_refusals() -> None:
    with pytest.raises(Refusal, match="mend me") as refusal, refusing(KeyError, ValueError):
        raise ValueError("mend me")
    assert refusal.value.exit_code == 2
    with pytest.raises(TypeError), refusing(ValueError):
        raise TypeError("a defect")
