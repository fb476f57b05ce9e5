"""`drivetrain-operator`: the settings by flags and variables; imports the rest when it runs."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any, Final

import click

from drivetrain_operator.wiring.settings import (
    OperatorSettings,
    SettingsError,
    allowed,
    default_text,
    flag,
    variable,
)

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

PROGRAM: Final = "drivetrain-operator"
_EXAMPLES: Final = """\b
Examples:
  drivetrain-operator --kubeconfig ~/.kube/config --log-format console
  drivetrain-operator --namespaces team-a,team-b
  DRIVETRAIN_OPERATOR_WORKERS=16 drivetrain-operator
"""


def _option(name: str, field: FieldInfo) -> click.Option:
    """The flag of a setting; its value is judged by the settings, which know what is allowed."""
    text = default_text(field)
    default = f"default {text}" if text else "unset by default"
    return click.Option(
        [flag(name), name],
        envvar=variable(name),
        metavar="VALUE",
        help=f"{field.description} [{default}; {allowed(field)}; {variable(name)}]",
        is_flag=False,
        # --leader-elect alone means true, as with Kubernetes' own programs.
        flag_value="true" if field.annotation is bool else None,
    )


def _run(**given: Any) -> None:  # noqa: ANN401 - what click found
    try:
        settings = OperatorSettings.read(given)
    except SettingsError as error:
        raise click.UsageError(str(error)) from error
    # Late: kopf and the Kubernetes client take a second, which --help need not wait for.
    from drivetrain_operator.cluster.credentials import (  # noqa: PLC0415
        ConnectionSettingsError,
    )
    from drivetrain_operator.wiring import logs  # noqa: PLC0415
    from drivetrain_operator.wiring.program import serve  # noqa: PLC0415

    logs.configure(settings.log_level, settings.log_format)
    try:
        ending = asyncio.run(serve(settings))
    except (ConnectionSettingsError, OSError) as error:
        raise click.ClickException(str(error)) from error
    sys.exit(int(ending))


main = click.version_option(package_name="drivetrain", message=f"{PROGRAM} %(version)s")(
    click.Command(
        PROGRAM,
        callback=_run,
        params=[_option(name, field) for name, field in OperatorSettings.model_fields.items()],
        help="Work on the TrainingRuns of a cluster, or of some of its namespaces.",
        epilog=_EXAMPLES,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
)
"""The entry point."""
