"""Figures from runs on disk: what is drawn, what is refused, what lands in the file."""

from __future__ import annotations

import builtins
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from click.testing import CliRunner, Result
from matplotlib.figure import Figure
from tests.support import example_figure
from tests.support.measured_run import make_measured_run, reports

from drivetrain_trainer.analysis import plot as plotting
from drivetrain_trainer.analysis import plot_curves
from drivetrain_trainer.analysis.curves import Axis, Spread
from drivetrain_trainer.analysis.grouping import GroupingError, parse_keys
from drivetrain_trainer.analysis.loading import load
from drivetrain_trainer.analysis.plot import Options, PlotError, PlottedRun
from drivetrain_trainer.analysis.runs import Series
from drivetrain_trainer.cli.plot import plot

COUNT = 12


def reward(offset: float = 0.0, count: int = COUNT) -> list[dict[str, float]]:
    return reports(
        count,
        lambda number: {
            "Train/mean_reward": offset + number,
            "Loss/actor": float(number),
            "Loss/critic": 2.0 * number,
        },
    )


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Three seeds of one task and one run of another."""
    for seed in range(3):
        make_measured_run(tmp_path / f"logs/a/{seed}", reward(seed), spec={"seed": seed})
    other = {"task": {"name": "hopper"}, "algo": {"batch_size": 64}}
    make_measured_run(tmp_path / "logs/b/run", reward(50.0), spec=other)
    return tmp_path / "logs"


def call(*arguments: str | Path) -> Result:
    return CliRunner().invoke(plot, [str(argument) for argument in arguments])


def svg_text(path: Path) -> str:
    return " ".join(" ".join(ET.parse(path).getroot().itertext()).split())


@pytest.mark.parametrize(
    ("name", "magic"), [("a.png", b"\x89PNG\r\n\x1a\n"), ("A.SVG", b"<?xml"), ("a.pdf", b"%PDF-")]
)
def test_each_format(runs: Path, tmp_path: Path, name: str, magic: bytes) -> None:
    result = call(runs, "--tag", "Loss/actor", "-o", tmp_path / name)
    assert result.exit_code == 0, result.output
    assert result.stdout == f"{tmp_path / name}: 4 runs in 2 groups\n"
    assert (tmp_path / name).read_bytes().startswith(magic)


def test_the_same_runs_give_the_same_svg(runs: Path, tmp_path: Path) -> None:
    for name in ("1.svg", "2.svg"):
        assert call(runs / "b", "-o", tmp_path / name).exit_code == 0
    assert (tmp_path / "1.svg").read_bytes() == (tmp_path / "2.svg").read_bytes()


def texts(figure: Figure) -> set[str]:
    found = set()
    for axes in figure.axes:
        found |= {axes.get_xlabel(), axes.get_ylabel(), axes.get_title()}
        legend = axes.get_legend()
        found |= {text.get_text() for text in legend.get_texts()} if legend else set()
    return found


def drawn(
    paths: Sequence[Path], options: Options, monkeypatch: pytest.MonkeyPatch, keys: str = "task"
) -> Figure:
    """The figure that would be written."""
    kept: list[Figure] = []
    monkeypatch.setattr(plotting, "save", lambda made, _: kept.append(made))
    found = load(paths, tags=("*",), keys=parse_keys(keys), tell=lambda _: None)
    plotting.render(found, options, Path("figure.svg"))
    return kept[0]


def test_one_group_has_areas_and_units(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figure = drawn([runs / "a"], Options(), monkeypatch)
    assert figure.get_suptitle() == "half_cheetah: 3 runs (mean, least to greatest)"
    assert {
        "environment steps",
        "Mean Reward, last 100 episodes",
        "Steps/s",
        "Learner, share of Iter Wall",
        "Learning 85.0 %",
        "Other 3.0 %",
        "Collector, share of its cycle",
        "Env Step 70.4 %",
        "share [%]",
    } <= texts(figure)


def test_several_groups_have_bars_side_by_side(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figure = drawn([runs], Options(spread=Spread.IQR), monkeypatch)
    assert figure.get_suptitle() == "Bands: median, quartiles"
    assert {"half_cheetah (3 runs)", "hopper", "share over the whole run [%]"} <= texts(figure)


def test_a_band_holds_the_seeds(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seeds are 0, 1 and 2 apart: mean one above the least."""
    options = Options(tags=("Train/mean_reward",))
    (axes,) = drawn([runs / "a"], options, monkeypatch).axes
    (middle,) = axes.get_lines()
    x, y = np.asarray(middle.get_xdata()), np.asarray(middle.get_ydata())
    np.testing.assert_allclose(y, x / 80 - 1 + 1)
    (band,) = axes.collections
    (outline,) = band.get_paths()
    assert outline.vertices[:, 1].min() == pytest.approx(0.0)
    assert outline.vertices[:, 1].max() == pytest.approx(COUNT - 1 + 2.0)


def test_patterns_draw_a_panel_a_tag(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figure = drawn([runs / "a" / "0"], Options(tags=("Loss/*", "Perf/iteration_time")), monkeypatch)
    assert [axes.get_ylabel() for axes in figure.axes] == [
        "Actor Loss",
        "Critic Loss",
        "Iter Wall [s]",
    ]


@pytest.mark.parametrize(
    ("axis", "label", "last"),
    [
        (Axis.ENV_STEPS, "environment steps", 80.0 * COUNT),
        (Axis.WALL, "seconds since the first report", COUNT - 1.0),
        (Axis.ITERATIONS, "learner iterations", 10.0 * COUNT),
    ],
)
def test_axes(
    runs: Path, monkeypatch: pytest.MonkeyPatch, axis: Axis, label: str, last: float
) -> None:
    options = Options(tags=("Loss/actor",), axis=axis)
    (axes,) = drawn([runs / "b"], options, monkeypatch).axes
    assert axes.get_xlabel() == label
    assert np.asarray(axes.get_lines()[0].get_xdata())[-1] == pytest.approx(last)


@pytest.mark.parametrize(
    ("seconds", "label"), [(100.0, "seconds"), (600.0, "minutes"), (36_000.0, "hours")]
)
def test_wall_time_has_the_unit_that_fits(
    monkeypatch: pytest.MonkeyPatch, seconds: float, label: str
) -> None:
    series = Series(np.array([1, 2]), np.array([0.0, seconds]), np.array([0.0, 1.0]))
    run = PlottedRun("run", "run", {"Loss/actor": series})
    kept: list[Figure] = []
    monkeypatch.setattr(plotting, "save", lambda made, _: kept.append(made))
    plotting.render([run], Options(tags=("Loss/actor",), axis=Axis.WALL), Path("figure.png"))
    assert kept[0].axes[0].get_xlabel() == f"{label} since the first report"


def test_smoothing_keeps_what_was_logged_in_sight(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = Options(tags=("Loss/actor",), smooth=3)
    (axes,) = drawn([runs / "b"], options, monkeypatch).axes
    logged, smooth = axes.get_lines()
    assert np.asarray(logged.get_ydata()).tolist() == list(map(float, range(COUNT)))
    assert np.asarray(smooth.get_ydata())[:4].tolist() == [0.0, 0.5, 1.0, 2.0]


def test_a_longer_seed_goes_on_alone_as_a_thin_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, count in (("short", 5), ("long", 9)):
        make_measured_run(tmp_path / name, reward(count=count))
    (axes,) = drawn([tmp_path], Options(tags=("Loss/actor",)), monkeypatch).axes
    middle, alone = axes.get_lines()
    assert np.asarray(middle.get_xdata())[-1] == 5 * 80
    assert np.asarray(alone.get_xdata()).tolist() == [400, 480, 560, 640, 720]
    assert alone.get_linewidth() < middle.get_linewidth()


@pytest.mark.parametrize(
    ("keys", "groups"),
    [
        ("algo,task,sim", {"sac · half_cheetah · mujoco", "sac · hopper · mujoco"}),
        ("algo.batchSize", {"batch_size=256", "batch_size=64"}),
        ("task,seed", {f"half_cheetah · seed={n}" for n in range(3)} | {"hopper · seed=0"}),
        ("none", {"0", "1", "2", "run"}),
    ],
)
def test_groups(runs: Path, keys: str, groups: set[str]) -> None:
    found = load([runs], tags=("Loss/actor",), keys=parse_keys(keys), tell=lambda _: None)
    assert {run.group for run in found} == groups


def test_runs_are_named_by_what_tells_them_apart(tmp_path: Path) -> None:
    for name in ("x/run", "y/run"):
        make_measured_run(tmp_path / name, reward())
    found = load([tmp_path, tmp_path / "x" / "run"], tags=("*",), keys=(), tell=lambda _: None)
    assert sorted(run.name for run in found) == ["x/run", "y/run"]


def test_a_run_without_a_configuration_is_grouped_by_its_summary(tmp_path: Path) -> None:
    run = make_measured_run(tmp_path, reward(), config=False)
    (found,) = load([run], tags=("*",), keys=parse_keys("algo,task,sim"), tell=lambda _: None)
    assert found.group == "sac · half_cheetah · mujoco"
    with pytest.raises(GroupingError, match=r"has no run_config\.json to read 'seed'"):
        load([run], tags=("*",), keys=("seed",), tell=lambda _: None)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--tag", "Loss/acter"], "no run has reported 'Loss/acter': did you mean Loss/actor"),
        (["--group", "algo.nope"], "has no 'nope' below algo; it has activation,"),
        (["--group", ","], "names no key"),
        (["-o", "a.gif"], "a.gif: the name must end with .png, .svg, .pdf"),
        (["-o", "absent/a.png"], "absent/a.png"),
    ],
)
def test_what_cannot_be_drawn_is_refused(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = call(runs, *arguments)
    assert result.exit_code == 2
    assert says in result.stderr
    assert not (tmp_path / "plot.png").exists()


def test_a_mixed_schema_is_refused(runs: Path, tmp_path: Path) -> None:
    summary = runs / "a" / "1" / "run_summary.json"
    summary.write_text(json.dumps({**json.loads(summary.read_text()), "metric_schema_version": 7}))
    result = call(runs, "-o", tmp_path / "a.png")
    assert result.exit_code == 2
    assert "metric_schema_version is 7" in result.stderr
    assert not (tmp_path / "a.png").exists()


def test_too_many_groups_are_refused() -> None:
    found = [PlottedRun(str(n), str(n), {}) for n in range(plotting.MOST_GROUPS + 1)]
    with pytest.raises(PlotError, match="13 groups of runs; a figure tells at most 12 apart"):
        plotting.grouped(found)


def test_every_group_of_a_figure_is_drawn_differently() -> None:
    pens = [plot_curves._Pen.of(index, "") for index in range(plotting.MOST_GROUPS)]
    assert len({(pen.color, pen.style) for pen in pens}) == plotting.MOST_GROUPS


def test_an_absent_matplotlib_names_the_extra(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def absent(name: str, *rest: Any, **more: Any) -> Any:
        if name.partition(".")[0] == "matplotlib":
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", absent)
    result = call(runs, "-o", tmp_path / "a.png")
    assert result.exit_code == 2
    assert "pip install 'drivetrain[analysis]'" in result.stderr


def test_the_guide_s_figure_can_be_drawn_anew(tmp_path: Path) -> None:
    example_figure.main(tmp_path / "figure.svg")
    shown = svg_text(tmp_path / "figure.svg")
    for words in (
        "sac · half_cheetah · mujoco: 4 runs",
        "Evaluated Return",
        "Collector Wait 5.7 %",
    ):
        assert words in shown


def test_performance_is_drawn_from_zero(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a change of a hundredth fills the panel."""
    options = Options(tags=("Perf/total_fps",))
    (axes,) = drawn([runs / "b"], options, monkeypatch).axes
    assert axes.get_ylim()[0] == 0.0


def test_words_in_an_svg_stay_words(runs: Path, tmp_path: Path) -> None:
    options = ("--title", "Two tasks", "--tag", "Loss/actor")
    assert call(runs, "-o", tmp_path / "a.svg", *options).exit_code == 0
    assert "Two tasks" in svg_text(tmp_path / "a.svg")
