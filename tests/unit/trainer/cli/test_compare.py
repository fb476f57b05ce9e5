"""``drivetrain compare``: its table, its options, and what it refuses."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.support.compared_runs import MadeUp, write_seeds, write_timings

from drivetrain_trainer.cli.compare import compare

TABLE = """\
new seems better on hopper: interquartile mean of final evaluated returns 139 [138, 140] against
98.8 [97.8, 99.8] of old; a run of new ends above one of old in 100 % [100, 100] of cases.

- Few seeds a task (old 3 and new 3): bootstrap intervals are too narrow then. Of one task, 95 %
  intervals hold the true value in about 50, 75 and 90 of 100 cases with 2, 3 and 5 seeds.

hopper, evaluated return at 100k steps  RUNS   FINAL IQM [95 %]  OVER TRAINING [95 %]  STEPS TO 90.0
old                                        3  98.8 [97.8, 99.8]     63.6 [63.0, 64.2]   70k (3 of 3)
new                                        3     139 [138, 140]     89.3 [88.6, 89.9]   50k (3 of 3)

PAIR       P(IMPROVEMENT) [95 %]  IQM DIFFERENCE [95 %]
new > old       100 % [100, 100]      39.9 [38.3, 41.6]

STAGE                                  RUNS  MEAN   SUM  HARDWARE
old: training loop (run_summary.json)     3   9 s  27 s  a CPU, 4 CPUs, learner on cpu
new: training loop (run_summary.json)     3   9 s  27 s  a CPU, 4 CPUs, learner on cpu

DIFFERS          old  new
algo.batch_size   64  128
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")


def two_sides() -> None:
    for side, best, batch in (("old", 98.0, 64), ("new", 138.0, 128)):

        def made(seed: int, best: float = best, batch: int = batch) -> MadeUp:
            spec = {"algo": {"batch_size": batch}}
            return MadeUp(best + seed, spec=spec, summary={"training_wall_time_sec": 9.0})

        write_seeds(Path(side), made, range(3), "hopper")


def call(*arguments: str) -> Result:
    return CliRunner().invoke(compare, [*arguments])


def test_the_table() -> None:
    two_sides()
    result = call("old", "new", "--threshold", "90")
    assert result.exit_code == 0, result.output
    assert result.stdout == TABLE
    assert call("old", "new", "--threshold", "hopper=90").stdout == TABLE
    assert call("x=old", "new").stdout.count("STEPS TO") == 0


def test_commands_of_the_terminal_in_a_runs_words_are_none() -> None:
    two_sides()
    write_timings(Path("old/run_0_seed_0"), {"sac_train": [5.0]}, cpu="\x1b[2J a CPU")
    result = call("old", "new")
    assert "\x1b" not in result.output
    assert "?[2J a CPU" in result.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere"], "nowhere does not exist"),
        (["old", "--group", "algo.nothing"], "has no 'nothing' below algo"),
        (["old", "-o", "report.pdf"], "report.pdf: the name must end with .html"),
        (["old", "--plot", "figure.gif"], "figure.gif: the name must end with .png, .svg, .pdf"),
        (["old", "--reference", "hopper=1"], "'hopper=1': give TASK=LOW,HIGH"),
        (["old", "--reference", "1,2"], "'1,2': give TASK=LOW,HIGH"),
        (["old", "--reference", "hopper=nan,2"], "give TASK=LOW,HIGH"),
        (["old", "--reference", "hopper=2,1"], "the lower return comes first"),
        (["old", "--threshold", "hopper=high"], "give a number, or TASK=NUMBER"),
        (["old", "--reference", "ant=1,2"], "no compared runs are of that task, but hopper"),
        (["old", "--last", "1.5"], "--last"),
        (["old", "-o", "missing/report.html"], "missing"),
    ],
)
def test_refusals_write_nothing(arguments: list[str], words: str) -> None:
    two_sides()
    before = sorted(Path().rglob("*"))
    result = call(*arguments)
    assert result.exit_code == 2
    assert words in " ".join(result.stderr.split())
    assert "Traceback" not in result.output
    assert sorted(Path().rglob("*")) == before


def test_without_matplotlib_the_table_is_there_and_figures_name_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    two_sides()
    real = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name.partition(".")[0] == "matplotlib":
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    assert call("old", "new").exit_code == 0
    result = call("old", "new", "-o", "r.html")
    assert result.exit_code == 2
    assert "pip install 'drivetrain[analysis]'" in result.stderr


def test_unfinished_runs_take_part_when_asked_for() -> None:
    two_sides()
    half = MadeUp(1.0, reports=25, spec={"task": {"name": "hopper"}}, summary={"status": "running"})
    half.write(Path("old/half"), 5)

    def told(extra: Sequence[str]) -> str:
        return call("old", "new", *extra).stdout

    assert "old: old/half: running" in told([])
    assert "evaluated return at 50k steps" in told(["--unfinished"])
