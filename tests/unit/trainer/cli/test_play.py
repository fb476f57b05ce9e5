"""What the command does with a film that cannot be made; the rest runs on real runs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from drivetrain_trainer.cli.play import play
from drivetrain_trainer.evaluation import play as playing
from drivetrain_trainer.evaluation.evaluator import EvaluationError, EvaluationResult
from drivetrain_trainer.evaluation.video import GlBackend, VideoError

MISSING = "no video: off-screen OpenGL is not available\n  apt-get install libosmesa6"


@pytest.fixture
def film(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """How the film of a policy that needs no loading ends."""
    wanted = SimpleNamespace(error=None, asked=[], page=None, uploads=0)

    def make(_loaded: object, **options: Any) -> playing.PlayedVideo:
        wanted.asked.append(options)
        if wanted.error is not None:
            raise wanted.error
        return playing.PlayedVideo(Path("/runs/play_video.mp4"), 12.5, GlBackend.EGL)

    def upload(_loaded: object, _video: playing.PlayedVideo) -> str | None:
        wanted.uploads += 1
        page: str | Exception | None = wanted.page
        if isinstance(page, Exception):
            raise page
        return page

    monkeypatch.setattr(playing, "upload", upload)
    monkeypatch.setattr(playing, "load", lambda *_, **__: object())
    monkeypatch.setattr(playing, "evaluate", lambda *_, **__: EvaluationResult((1.0,), (5,), 0.1))
    monkeypatch.setattr(playing, "describe", lambda *_: "the figures")
    monkeypatch.setattr(playing, "film", make)
    return wanted


def test_the_film_is_named_after_the_figures(film: SimpleNamespace) -> None:
    result = CliRunner().invoke(play, ["run", "--seed", "4", "-o", "here.mp4"])
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "the figures",
        "  video   /runs/play_video.mp4 (12.5 s, egl)",
    ]
    assert film.asked == [{"seed": 4, "output": Path("here.mp4")}]


@pytest.mark.parametrize(("option", "code"), [([], 0), (["--video"], 2)])
def test_a_missing_opengl_is_reported_and_refused_only_where_a_video_was_insisted_on(
    film: SimpleNamespace, option: list[str], code: int
) -> None:
    film.error = VideoError(MISSING)
    result = CliRunner().invoke(play, ["run", *option])
    assert result.exit_code == code
    assert result.stdout == "the figures\n"
    assert MISSING in result.stderr


def test_no_film_is_made_where_none_is_wanted(film: SimpleNamespace) -> None:
    assert CliRunner().invoke(play, ["run", "--no-video"]).exit_code == 0
    assert film.asked == []


@pytest.mark.parametrize(
    ("found", "option", "code", "told"),
    [
        ("https://w/r", [], 0, "  page    https://w/r\n"),
        ("https://w/r", ["--upload"], 0, "  page    https://w/r\n"),
        (None, [], 0, ""),
        (None, ["--upload"], 2, "Error: the run has no page in Weights & Biases"),
        (playing.UploadError("no network"), [], 0, "no network\n"),
        (playing.UploadError("no network"), ["--upload"], 2, "Error: no network\n"),
    ],
)
def test_the_video_is_added_to_the_page_of_a_run_that_has_one(
    film: SimpleNamespace, found: str | Exception | None, option: list[str], code: int, told: str
) -> None:
    film.page = found
    result = CliRunner().invoke(play, ["run", *option])
    assert result.exit_code == code
    assert told in result.output
    assert film.uploads == 1


def test_nothing_is_sent_where_that_is_not_wanted(film: SimpleNamespace) -> None:
    film.page = "https://w/r"
    result = CliRunner().invoke(play, ["run", "--no-upload"])
    assert result.exit_code == 0
    assert film.uploads == 0


def test_a_policy_that_cannot_act_is_refused(
    film: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise EvaluationError("the policy gives actions that are not finite")

    monkeypatch.setattr(playing, "evaluate", fail)
    result = CliRunner().invoke(play, ["run"])
    assert result.exit_code == 2
    assert result.stderr == "Error: the policy gives actions that are not finite\n"
    assert film.asked == []


@pytest.mark.parametrize("arguments", [["run", "--episodes", "0"], ["run", "--seed", "-1"], []])
def test_options_out_of_range_are_refused(arguments: list[str]) -> None:
    assert CliRunner().invoke(play, arguments).exit_code == 2
