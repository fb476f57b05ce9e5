"""``drivetrain plot``."""

from __future__ import annotations

from pathlib import Path

import click

from drivetrain_trainer.cli.refusal import refusing


@click.command(
    epilog="""\b
Examples:
  drivetrain plot logs/sac/half_cheetah
  drivetrain plot RUN --tag 'Loss/*' --smooth 20 -o losses.svg
  drivetrain plot RUN_A RUN_B --group algo.batchSize --x wall
"""
)
@click.argument("runs", nargs=-1, required=True, metavar="RUN...", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("plot.png"),
    show_default=True,
    help="File to write: .png, .svg or .pdf.",
)
@click.option(
    "--tag",
    "tags",
    multiple=True,
    metavar="TAG",
    help="Draw this tag, or those that fit a pattern (Loss/*), in place of the default panels; "
    "may be repeated.",
)
@click.option(
    "--x",
    "axis",
    type=click.Choice(["env_steps", "wall", "iterations"]),
    default="env_steps",
    show_default=True,
    help="What curves are drawn over.",
)
@click.option(
    "--smooth",
    type=click.IntRange(1, 100_000),
    default=1,
    show_default=True,
    metavar="N",
    help="Mean of the last N reports.",
)
@click.option(
    "--group",
    default="algo,task,sim",
    show_default=True,
    metavar="KEYS",
    help="Runs with equal values of these settings are seeds of one curve; 'none' draws each run.",
)
@click.option(
    "--band",
    type=click.Choice(["minmax", "iqr", "sd", "none"]),
    default="minmax",
    show_default=True,
    help="Over seeds: mean with least and greatest, median with quartiles, mean with one "
    "standard deviation, or the mean alone.",
)
@click.option("--title", help="Above the figure.")
def plot(
    runs: tuple[Path, ...],
    *,
    output: Path,
    tags: tuple[str, ...],
    axis: str,
    smooth: int,
    group: str,
    band: str,
    title: str | None,
) -> None:
    """Draw learning curves with seed bands, throughput and timelines.

    RUN is a run directory, or a folder: then all runs below it are drawn. Exits with 2 where a
    run is refused (its metric schema is missing, mixed or not supported) or nothing fits.
    """
    # NumPy and matplotlib are imported once a command runs, never for --help.
    from drivetrain_trainer.analysis import plot as plotting  # noqa: PLC0415
    from drivetrain_trainer.analysis.curves import Axis, Spread  # noqa: PLC0415
    from drivetrain_trainer.analysis.grouping import parse_keys  # noqa: PLC0415
    from drivetrain_trainer.analysis.loading import REFUSALS, load  # noqa: PLC0415

    options = plotting.Options(
        tags=tags, axis=Axis(axis), smooth=smooth, spread=Spread(band), title=title
    )
    with refusing(*REFUSALS, plotting.PlotError, OSError):
        plotting.check_format(output)
        plotting.check_matplotlib()
        loaded = load(
            runs,
            tags=(*tags, "Train/iteration") if tags else plotting.NEEDED,
            keys=parse_keys(group),
            tell=lambda text: click.echo(text, err=True),
        )
        plotting.render(loaded, options, output)
    count, groups = len(loaded), len({run.group for run in loaded})
    click.echo(
        f"{output}: {count} run{'s' if count > 1 else ''}"
        f" in {groups} group{'s' if groups > 1 else ''}"
    )
