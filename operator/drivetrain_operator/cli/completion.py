"""Shell completion of what only the models and the installed packages know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from click.shell_completion import CompletionItem, get_completion_class

from drivetrain_operator.cli.refusal import Refusal

if TYPE_CHECKING:
    import click

SHELLS: Final = ("bash", "zsh", "fish")


def script(command: click.Command, program: str, shell: str) -> str:
    """The shell's own code for completing `program`."""
    found = get_completion_class(shell)
    if found is None:
        raise Refusal([f"no completion for {shell}; known: {', '.join(SHELLS)}"])
    variable = f"_{program.upper()}_COMPLETE".replace("-", "_")
    return found(command, {}, program, variable).source()


def tasks(prefix: str) -> list[CompletionItem]:
    """Registered tasks."""
    from drivetrain_api.tasks import registered_tasks  # noqa: PLC0415 - on demand: pydantic

    return [CompletionItem(name) for name in registered_tasks() if name.startswith(prefix)]


def algorithms(prefix: str) -> list[CompletionItem]:
    """Algorithms of this release."""
    from drivetrain_api.algorithms import AVAILABLE_ALGORITHMS  # noqa: PLC0415 - on demand

    return _starting(sorted(AVAILABLE_ALGORITHMS), prefix)


def simulators(prefix: str) -> list[CompletionItem]:
    """Simulators of this release."""
    from drivetrain_api.training import AVAILABLE_SIMULATORS  # noqa: PLC0415 - on demand

    return _starting(sorted(AVAILABLE_SIMULATORS), prefix)


def overrides(prefix: str) -> list[CompletionItem]:
    """Keys of ``key=value``, a section's once its name is typed."""
    from drivetrain_api.explain import known_paths  # noqa: PLC0415 - on demand: pydantic

    paths = known_paths()
    sections = {path for path in paths if any(p.startswith(f"{path}.") for p in paths)}
    wanted = [path for path in paths if path.startswith(prefix)]
    leaves = [path for path in wanted if path not in sections]
    deep = "." in prefix
    offered = leaves if deep else [p for p in wanted if "." not in p]
    return [CompletionItem(f"{p}." if p in sections else f"{p}=") for p in offered]


def runs(state: str, prefix: str) -> list[CompletionItem]:
    """Stored runs."""
    from pathlib import Path  # noqa: PLC0415 - on demand

    from drivetrain_operator.local.store import LocalStore  # noqa: PLC0415 - on demand

    return _starting(LocalStore(Path(state)).names(), prefix)


def _starting(names: list[str] | tuple[str, ...], prefix: str) -> list[CompletionItem]:
    return [CompletionItem(str(name)) for name in names if name.startswith(prefix)]
