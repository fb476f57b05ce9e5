"""Options that several commands share, and the values that they take."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from drivetrain_operator.kubectl.output import Format
from drivetrain_operator.kubectl.session import Connection

if TYPE_CHECKING:
    from collections.abc import Callable

    from click.shell_completion import CompletionItem

Command = TypeVar("Command", bound="Callable[..., Any]")
_SPAN: Final = re.compile(r"(?:([0-9]+)d)?(?:([0-9]+)h)?(?:([0-9]+)m)?(?:([0-9]+)s?)?")
_SECONDS: Final = (86_400, 3_600, 60, 1)


class Span(click.ParamType[int]):
    """A length of time in seconds, written `90`, `90s`, `5m`, `1h30m` or `2d`."""

    name = "duration"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """Seconds."""
        if isinstance(value, int):
            return value
        match = _SPAN.fullmatch(str(value))
        if match is None or not match[0]:
            self.fail(f"{value!r} is no duration: write 90s, 5m, 1h30m or 2d", param, ctx)
        return sum(
            int(part) * unit for part, unit in zip(match.groups(), _SECONDS, strict=True) if part
        )


def connected(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that say which cluster and namespace; they come as one `connection`."""

    @functools.wraps(command)
    def with_connection(
        *args: Any,  # noqa: ANN401 - whatever else the command takes
        namespace: str | None,
        context: str | None,
        kubeconfig: Path | None,
        **options: Any,  # noqa: ANN401 - likewise
    ) -> None:
        ctx = click.get_current_context()
        connection = connection_of(ctx, namespace, context, kubeconfig)
        command(*args, connection=connection, **options)

    made: Callable[..., None] = with_connection
    for option in (
        click.option(
            "--kubeconfig",
            type=click.Path(dir_okay=False, path_type=Path),
            help="Kubeconfig file.",
        ),
        click.option("--context", help="Context of the kubeconfig."),
        click.option("-n", "--namespace", help="Namespace; the context's when not given."),
    ):
        made = option(made)
    return made


def connection_of(
    ctx: click.Context, namespace: str | None, context: str | None, kubeconfig: Path | None
) -> Connection:
    """The options of the command, over those before its name."""
    own = Connection(namespace, context, kubeconfig)
    outer = ctx.find_object(Connection)
    return own.over(outer) if outer is not None else own


def formatted(command: Command) -> Command:
    """Add `-o json|yaml`."""
    option = click.option(
        "-o", "--output", type=click.Choice([f.value for f in Format]), help="As data."
    )
    return option(command)


def form_of(output: str | None) -> Format | None:
    """What `-o` asks for."""
    return Format(output) if output is not None else None


def complete_runs(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Names of the namespace's runs."""
    del param
    from drivetrain_operator.kubectl.completion import run_names  # noqa: PLC0415 - on demand

    given = ctx.params
    connection = connection_of(
        ctx, given.get("namespace"), given.get("context"), given.get("kubeconfig")
    )
    return run_names(connection, incomplete)
