"""``drivetrain play``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from drivetrain_trainer.cli.refusal import refusing

if TYPE_CHECKING:
    from drivetrain_trainer.evaluation.play import PlayedVideo
    from drivetrain_trainer.evaluation.policy_loading import LoadedPolicy


@click.command()
@click.argument("checkpoint", type=click.Path(path_type=Path))
@click.option("--episodes", type=click.IntRange(1, 10_000), default=10, show_default=True)
@click.option(
    "--seed",
    type=click.IntRange(0, 2**32 - 1),
    default=0,
    show_default=True,
    help="Seed of the evaluation's own environments.",
)
@click.option(
    "--latest",
    is_flag=True,
    help="Of a run directory, play the latest checkpoint instead of the best one.",
)
@click.option(
    "--video/--no-video",
    default=None,
    help="Insist on a video, or make none; without either, a missing OpenGL is only reported.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File of the video.  [default: play_video.mp4 in the run directory]",
)
@click.option(
    "--upload/--no-upload",
    default=None,
    help="Insist on adding the video to the run's page in Weights & Biases, or do not; without "
    "either, it is added where the run has one.",
)
def play(
    checkpoint: Path,
    *,
    episodes: int,
    seed: int,
    latest: bool,
    video: bool | None,
    output: Path | None,
    upload: bool | None,
) -> None:
    """Evaluate a trained policy and film one episode.

    CHECKPOINT is a run directory (its best checkpoint is played) or one checkpoint folder.
    Exits with 2 where the checkpoint, the task or the video is refused.
    """
    # Torch and the simulator are imported once a command runs, never for --help.
    from drivetrain_trainer.evaluation import play as playing  # noqa: PLC0415

    with refusing(*playing.REFUSALS):
        loaded = playing.load(checkpoint, latest=latest)
        result = playing.evaluate(loaded, episodes=episodes, seed=seed)
        click.echo(playing.describe(loaded, result))
        if video is False:
            return
        try:
            filmed = playing.film(loaded, seed=seed, output=output)
        except playing.VideoError as error:
            if video:
                raise
            click.echo(str(error), err=True)
            return
        click.echo(f"  video   {filmed.path} ({filmed.seconds:.1f} s, {filmed.backend})")
        if upload is not False:
            _upload(loaded, filmed, insist=upload is True)


def _upload(loaded: LoadedPolicy, filmed: PlayedVideo, *, insist: bool) -> None:
    from drivetrain_trainer.evaluation import play as playing  # noqa: PLC0415 - as above

    try:
        where = playing.upload(loaded, filmed)
    except playing.UploadError as error:
        if insist:
            raise
        click.echo(str(error), err=True)
        return
    if where is not None:
        click.echo(f"  page    {where}")
    elif insist:
        raise playing.UploadError("the run has no page in Weights & Biases to add the video to")
