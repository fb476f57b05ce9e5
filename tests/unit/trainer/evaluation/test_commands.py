"""The commands on a real run directory, from the command line on."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from drivetrain_trainer.cli.export import export
from drivetrain_trainer.cli.play import play
from drivetrain_trainer.evidence.run_directory import RunDirectory

MakeRun = Callable[..., RunDirectory]


def test_play_prints_returns_and_lengths(make_run: MakeRun) -> None:
    run = make_run([1000, 2000], best=1000)
    result = CliRunner().invoke(play, [str(run.path), "--episodes", "3", "--no-video"])
    assert result.exit_code == 0, result.output
    first, returns, lengths = result.stdout.splitlines()
    assert first == "inverted_double_pendulum (mujoco), sac at step 1,000: 3 episodes"
    assert re.fullmatch(r"  return  [\d.]+ ± [\d.]+   min [\d.]+   max [\d.]+", returns)
    assert re.fullmatch(r"  length  [\d.]+   min \d+   max \d+", lengths)
    assert not (run.path / "play_video.mp4").exists()


def test_play_with_a_seed_repeats_itself(make_run: MakeRun) -> None:
    run = make_run()
    arguments = [str(run.path), "--episodes", "2", "--no-video", "--seed"]
    first, again, other = (
        CliRunner().invoke(play, [*arguments, seed]).stdout for seed in ("5", "5", "6")
    )
    assert first == again
    assert first != other


def test_play_refuses_a_truncated_checkpoint(make_run: MakeRun) -> None:
    run = make_run()
    file = run.checkpoints / "step_000000001000" / "learner.pt"
    file.write_bytes(file.read_bytes()[:500])
    result = CliRunner().invoke(play, [str(run.path), "--no-video"])
    assert result.exit_code == 2
    assert re.match(rf"Error: {re.escape(str(file))}: truncated: 500 bytes", result.stderr)


def test_export_writes_into_the_run_directory(make_run: MakeRun) -> None:
    run = make_run()
    result = CliRunner().invoke(export, [str(run.path), "--format", "torch"])
    assert result.exit_code == 0, result.output
    assert {path.name for path in (run.path / "export").iterdir()} == {
        "inverted_double_pendulum_policy.json",
        "inverted_double_pendulum_policy.pt2",
    }
    program, sidecar = result.stdout.splitlines()
    assert "largest difference from the live policy 0 of half the action range" in program
    assert sidecar == str(run.path / "export" / "inverted_double_pendulum_policy.json")


def test_export_refuses_a_folder_that_cannot_be_written(make_run: MakeRun, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    arguments = [str(make_run().path), "--format", "torch", "-o", str(blocked / "below")]
    result = CliRunner().invoke(export, arguments)
    assert result.exit_code == 2
    assert "Not a directory" in result.stderr


@pytest.mark.parametrize("command", [play, export])
def test_what_is_no_run_is_refused(command: play, tmp_path: Path) -> None:
    result = CliRunner().invoke(command, [str(tmp_path / "nowhere")])
    assert result.exit_code == 2
    assert result.stderr == f"Error: {tmp_path / 'nowhere'}: is not there\n"
