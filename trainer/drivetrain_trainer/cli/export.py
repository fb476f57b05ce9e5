"""``drivetrain export``."""

from __future__ import annotations

from pathlib import Path

import click

from drivetrain_api.artifacts.policy_export import ExportFormat
from drivetrain_trainer.cli.refusal import refusing

BOTH = "both"


@click.command()
@click.argument("checkpoint", type=click.Path(path_type=Path))
@click.option(
    "--format",
    "wanted",
    type=click.Choice([*(form.value for form in ExportFormat), BOTH]),
    default=BOTH,
    show_default=True,
    help="onnx for onnxruntime and others, torch for torch.export.load.",
)
@click.option(
    "--latest",
    is_flag=True,
    help="Of a run directory, export the latest checkpoint instead of the best one.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of the exported files.  [default: export in the run directory]",
)
def export(checkpoint: Path, *, wanted: str, latest: bool, output: Path | None) -> None:
    """Export a trained policy as ONNX and as a torch.export program.

    CHECKPOINT is a run directory (its best checkpoint is exported) or one checkpoint folder.
    Both forms take raw observations (batch, o) and give actions (batch, a) in the actuators'
    own units; a JSON file beside them says which, and is checked against the live policy.
    """
    # Torch and the simulator are imported once a command runs, never for --help.
    from drivetrain_trainer.evaluation import export as exporting  # noqa: PLC0415

    formats = list(ExportFormat) if wanted == BOTH else [ExportFormat(wanted)]
    with refusing(*exporting.REFUSALS):
        loaded = exporting.load(checkpoint, latest=latest)
        result = exporting.export_policy(
            loaded, formats, output or loaded.run_directory / exporting.FOLDER
        )
    for file in result.export.files:
        click.echo(
            f"{result.sidecar.parent / file.name}: {file.bytes:,} bytes, largest difference "
            f"from the live policy {file.max_abs_difference:.2g} of half the action range"
        )
    click.echo(str(result.sidecar))
