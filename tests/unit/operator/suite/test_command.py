"""The command's own refusals, and what its help says."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest
from click.testing import CliRunner

from drivetrain_operator.cli.main import cli
from drivetrain_operator.suite import record_file


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--parallel", "2", "--cluster"], 2, "--parallel is for this machine"),
        (["--max-in-flight", "2"], 2, "--max-in-flight is for a cluster: add --cluster"),
        (["--namespace", "x"], 2, "--namespace is for a cluster: add --cluster"),
        (["--context", "x"], 2, "--context is for a cluster"),
        (["--parallel", "0"], 2, "0 is not in the range"),
    ],
)
def test_options_that_do_not_go_together(
    write: Callable[..., Path], words: list[str], code: int, said: str
) -> None:
    write()
    done = CliRunner().invoke(cli, ["suite", "-f", "suite.yaml", *words])
    assert done.exit_code == code
    assert said in done.output


def test_a_file_that_is_not_there_or_no_suite_is_refused(folder: Path) -> None:
    assert "No such file" in CliRunner().invoke(cli, ["suite", "-f", "none.yaml"]).output
    (folder / "run.yaml").write_text("kind: TrainingRun\nmetadata: {name: a}\nspec: {seeds: 1}\n")
    done = CliRunner().invoke(cli, ["suite", "-f", "run.yaml"])
    assert done.exit_code == 2
    assert "run.yaml:1: kind: Input should be 'Suite'; got \"TrainingRun\"" in done.output


def test_a_root_that_cannot_be_written_is_refused_before_anything_starts(
    write: Callable[..., Path],
) -> None:
    write(root="/proc/suites")
    done = CliRunner().invoke(cli, ["suite", "-f", "suite.yaml"])
    assert done.exit_code == 2
    assert "error: spec.root: /proc/suites cannot be written to: /proc: " in done.output


def test_a_disk_that_is_full_at_the_start_is_told(
    write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    write()
    monkeypatch.setenv("DRIVETRAIN_LAUNCHER", "true")

    def full(path: Path, text: str) -> NoReturn:
        del text
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(record_file, "write_text_atomically", full)
    done = CliRunner().invoke(cli, ["suite", "-f", "suite.yaml"])
    assert done.exit_code == 2
    assert "suites/swing/suite.json cannot be written: No space left on device" in done.output


def test_help_lists_it_and_has_examples() -> None:
    listed = CliRunner().invoke(cli, ["--help"]).output
    assert "Train every variant of a manifest with several seeds" in listed
    shown = CliRunner().invoke(cli, ["suite", "--help"]).output
    assert "drivetrain suite -f suite.yaml --cluster -n robots --max-in-flight 2" in shown
