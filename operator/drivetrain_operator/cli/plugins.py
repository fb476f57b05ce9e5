"""Commands of installed packages: entry points of group ``drivetrain.commands``."""

from __future__ import annotations

import ast
import importlib.util
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Final

import click

COMMAND_GROUP: Final = "drivetrain.commands"


def plugin_names() -> list[str]:
    """Names of the commands that are installed beside ours, sorted."""
    return sorted(point.name for point in entry_points(group=COMMAND_GROUP))


def load_plugin(name: str) -> click.Command | None:
    """The command of that name; None where there is none.

    Raises:
        click.ClickException: it cannot be imported, or is no command.
    """
    point = _find(name)
    if point is None:
        return None
    try:
        command = point.load()
    except Exception as error:
        raise click.ClickException(f"command {name!r} cannot be loaded: {error}") from error
    if not isinstance(command, click.Command):
        raise click.ClickException(f"command {name!r}: {point.value} is no click command")
    return command


def plugin_help(name: str) -> str:
    """First line of the command's help, read from its source: listing imports nothing heavy."""
    point = _find(name)
    if point is None:
        return ""
    try:
        spec = importlib.util.find_spec(point.module)
        assert spec is not None
        assert spec.origin is not None
        module = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
    except (ImportError, OSError, SyntaxError, AssertionError):
        return "(cannot be read)"
    for node in module.body:
        if isinstance(node, ast.FunctionDef) and node.name == point.attr:
            return (ast.get_docstring(node) or "").partition("\n")[0]
    return ""


def _find(name: str) -> EntryPoint | None:
    return next(iter(entry_points(group=COMMAND_GROUP, name=name)), None)
