"""A whole process on a terminal, on a pipe, and on what is neither any more."""

from __future__ import annotations

import fcntl
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import IO, Any

import pytest

MakePair = Callable[[int, int], Any]
Start = Callable[..., subprocess.Popen[str]]
ROOT = Path(__file__).parents[5]


@pytest.fixture
def figures(tmp_path: Path) -> Path:
    return tmp_path / "figures.json"


@pytest.fixture
def start(figures: Path) -> Iterator[Start]:
    started: list[subprocess.Popen[str]] = []

    def run(stdout: int | IO[str], **environ: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.panel.child", str(figures)],
            cwd=ROOT,
            env={**os.environ, "TERM": "xterm-256color", **environ},
            stdin=subprocess.PIPE,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


def end(process: subprocess.Popen[str]) -> str:
    """Tell it to end; its standard error."""
    assert process.stdin is not None
    assert process.stderr is not None
    process.stdin.write("end\n")
    process.stdin.flush()
    assert process.wait(20) == 0
    return process.stderr.read()


def seen_after(drawn: int, pattern: str, text: str) -> bool:
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text[drawn:])
    return re.search(pattern, plain) is not None


@pytest.mark.parametrize(
    ("size", "seen"),
    [((60, 80), "Timing"), ((100, 60), "Collector "), ((140, 50), r"Collector \(own clock\)")],
)
def test_a_terminal_shows_the_tier_of_its_width(
    make_terminal_pair: MakePair, start: Start, size: tuple[int, int], seen: str
) -> None:
    pair = make_terminal_pair(*size)
    process = start(pair.stream)
    pair.wait_for(lambda text: re.search(seen, text) is not None)
    assert end(process) == ""
    lines = pair.screen().text.splitlines()
    assert {len(line) for line in lines} == {size[0]}
    assert any("n=" in line and "n=0" not in line for line in lines)


def test_it_follows_the_size_of_its_terminal(
    make_terminal_pair: MakePair, start: Start, figures: Path
) -> None:
    pair = make_terminal_pair(140, 50)
    process = start(pair.stream)
    for size, seen in [
        ((140, 50), r"own clock"),
        ((80, 60), r"│ Timing "),
        ((110, 60), r"│ Learner +ms +% +│ Collector +ms"),
        ((12, 2), r"61\.4 % +\r\n"),
        ((140, 50), r"own clock"),
    ]:
        drawn = len(pair.received)
        pair.resize(*size)
        pair.wait_for(partial(seen_after, drawn, seen))
    assert end(process) == ""
    lines = pair.screen().text.splitlines()
    assert lines[0].startswith("╭─ Drivetrain")
    assert lines[-1].startswith("╰")
    assert {len(line) for line in lines} == {140}
    assert json.loads(figures.read_text())["resized"] == 4


def test_training_spends_microseconds_on_the_panel(
    make_terminal_pair: MakePair, start: Start, figures: Path
) -> None:
    pair = make_terminal_pair(140, 50)
    process = start(pair.stream)
    pair.wait_for(lambda text: text.count("Drivetrain") >= 4)
    end(process)
    measured = json.loads(figures.read_text())
    assert measured["updates"] > 1000
    assert measured["median_us"] < 50


@pytest.mark.parametrize("term", ["dumb", "xterm-256color"])
def test_without_a_panel_there_are_lines(
    make_terminal_pair: MakePair, start: Start, term: str
) -> None:
    if term == "dumb":
        pair = make_terminal_pair(140, 50)
        process = start(pair.stream, TERM=term)
        pair.wait_for(lambda text: "training sac" in text)
        end(process)
        text = pair.screen().text
    else:
        process = start(subprocess.PIPE, TERM=term)
        assert process.stdout is not None
        first = process.stdout.readline()
        end(process)
        text = first + process.stdout.read()
    opening, *progress = text.splitlines()
    assert opening.startswith("training sac on half_cheetah (mujoco)")
    assert progress[-1].startswith("step 6,144,000/10,000,000  61.4 %  44,873 steps/s")
    assert "\x1b" not in text


def test_a_reader_that_is_gone_is_no_error_of_the_run(start: Start) -> None:
    reading, writing = os.pipe()
    process = start(writing)
    os.close(writing)
    assert os.read(reading, 8) == b"training"
    os.close(reading)
    errors = end(process)
    assert "terminal output ended; training goes on" in errors
    assert "Traceback" not in errors
    assert "Exception ignored" not in errors


def test_a_reader_that_reads_nothing_does_not_hold_up_the_end(start: Start) -> None:
    reading, writing = os.pipe()
    size = fcntl.fcntl(writing, fcntl.F_GETPIPE_SZ)
    os.write(writing, b"x" * size)
    process = start(writing)
    os.close(writing)
    errors = end(process)
    os.close(reading)
    assert "Exception ignored" not in errors
    assert "Traceback" not in errors
