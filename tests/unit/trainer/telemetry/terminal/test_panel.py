"""The panel at the edges of its width tiers, compared with stored drawings.

After a change that is meant, run with ``DRIVETRAIN_UPDATE_SNAPSHOTS=1`` and read the diff.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.panel.picture import PICTURE, picture
from tests.support.panel.stored import NAMES, stored_snapshot

from drivetrain_api.algorithms import AlgoName
from drivetrain_api.metrics import METRICS
from drivetrain_trainer.telemetry import timeline
from drivetrain_trainer.telemetry.facts import EvaluationFigures, SystemFacts
from drivetrain_trainer.telemetry.terminal.glyphs import ASCII, UNICODE, Glyphs, glyphs_for
from drivetrain_trainer.telemetry.terminal.model import PanelModel, Snapshot, build
from drivetrain_trainer.telemetry.terminal.panel import LEAST_COLUMNS, LEAST_LINES, render

WIDTHS = (60, 80, 95, 96, 119, 120, 200)
SNAPSHOTS = Path(__file__).with_name("snapshots")
SEPARATORS = {"│", "┬", "┴", "┼"}


def make_model(facts: SystemFacts, report: dict[str, float], **changes: object) -> PanelModel:
    snapshot = Snapshot(
        facts=facts,
        means=report,
        samples=24,
        peaks={"Train/mean_reward": 5200.123, "reward/forward": 1.22, "reward/ctrl": -0.01},
        env_steps=531_200,
        iteration=8300,
        elapsed_s=751.0,
        pace=7100.0,
        rows_per_second=260_000.0,
        buffer_rows=531_200,
        evaluation=EvaluationFigures(525_000, 5230.1, 101.2, 10, 5301.1, 500_000),
    )
    return build(replace(snapshot, **changes))


@pytest.fixture
def model(facts: SystemFacts, report: dict[str, float]) -> PanelModel:
    return make_model(facts, report)


def draw(model: PanelModel, width: int, height: int = 1000, glyphs: Glyphs = UNICODE) -> list[str]:
    return ["".join(part.text for part in line) for line in render(model, width, height, glyphs)]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", NAMES)
def test_drawing(name: str, width: int) -> None:
    drawn = "\n".join(line.rstrip() for line in draw(build(stored_snapshot(name)), width)) + "\n"
    path = SNAPSHOTS / f"{name}_{width}.txt"
    if os.environ.get("DRIVETRAIN_UPDATE_SNAPSHOTS"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(drawn, encoding="utf-8")
    assert drawn == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_cut(name: str, width: int) -> None:
    assert UNICODE.ellipsis not in "".join(draw(build(stored_snapshot(name)), width))


def test_the_picture_in_the_documentation_is_current() -> None:
    assert picture() == PICTURE.read_text(encoding="utf-8"), "run `make panel`"


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("algo", list(AlgoName))
def test_every_label_is_whole_beside_a_long_figure(algo: AlgoName, width: int) -> None:
    facts = replace(stored_snapshot("off_policy").facts, algo=algo.value)
    means = {tag: -98765.4321 for tag, row in METRICS.items() if algo in row.algorithms}
    means |= {tag: 98765.4 for tag in means if tag.endswith("_ms")}
    means |= {"Perf/iteration_time": 98.7, "Perf/learning_time": 12.3, "Perf/collection_time": 1.0}
    text = "\n".join(draw(build(Snapshot(facts, means, peaks=means)), width))
    assert UNICODE.ellipsis not in text
    labels = {METRICS[tag].label for tag in means if tag.startswith(("Loss/", "Policy/"))}
    labels |= {METRICS[tag].label for tag in timeline.learner_phases(algo.value) if tag in means}
    assert all(f" {label} " in text for label in labels)


@given(
    name=st.sampled_from(NAMES),
    width=st.integers(LEAST_COLUMNS, 240),
    height=st.integers(LEAST_LINES, 80),
)
def test_every_line_has_the_width_and_the_frame_is_closed(
    name: str, width: int, height: int
) -> None:
    lines = draw(STORED[name], width, height)
    assert {len(line) for line in lines} == {width}
    assert len(lines) <= height
    assert lines[0][0] + lines[0][-1] + lines[-1][0] + lines[-1][-1] == "╭╮╰╯"


@pytest.mark.parametrize("width", [80, 100, 130, 201])
def test_separators_meet_their_rules(model: PanelModel, width: int) -> None:
    lines = draw(model, width)
    for above, below in pairwise(lines):
        for column in range(1, width - 1):
            joins_up = below[column] in {"┴", "┼"}
            joins_down = above[column] in {"┬", "┼"}
            assert joins_up == (above[column] in SEPARATORS - {"┴"}) or below[column] == "│"
            assert not joins_down or below[column] == "│"


def test_below_96_columns_sections_are_stacked_with_one_timing_column(
    model: PanelModel,
) -> None:
    text = "\n".join(draw(model, 95))
    order = [text.index(f" {name} ") for name in ("Metrics", "Rewards", "Timing", "Learner")]
    assert order == sorted(order)
    assert "Iter Wall)" not in text
    assert "own clock" not in text


def test_from_96_metrics_and_rewards_share_a_row(model: PanelModel) -> None:
    lines = draw(model, 96)
    assert any("Metrics" in line and "Rewards" in line for line in lines)
    assert any("Learner " in line and "Collector " in line for line in lines)
    assert not any("Timing" in line for line in lines)
    assert not any("own clock" in line for line in lines)


def test_from_120_there_are_three_timing_columns(model: PanelModel) -> None:
    heading = next(line for line in draw(model, 120) if "Learner" in line)
    assert "Learner (Iter Wall)" in heading
    assert "Collector (own clock)" in heading
    assert "System" in heading


@pytest.mark.parametrize("width", [60, 96, 120])
def test_header_shows_gpus_window_progress_and_rates(
    facts: SystemFacts, report: dict[str, float], width: int
) -> None:
    lines = draw(make_model(replace(facts, gpus=4), report), width)
    assert lines[0].endswith(" GPUs 4 ─╮")
    text = "\n".join(lines[:6])
    for part in (
        "sac · half_cheetah · mujoco",
        facts.run_name,
        "Avg 2s (n=24)",
        "53.1 %",
        "531,200 / 1,000,000 steps",
        "ETA 0:01:06",
        "Steps/s 8,142",
        "Rows/s 260k",
    ):
        assert part in text


@pytest.mark.parametrize(("width", "peak"), [(95, "5.2k"), (96, "5,200.1"), (120, "5,200.1")])
def test_peaks_have_fewer_digits_below_96_columns(model: PanelModel, width: int, peak: str) -> None:
    line = next(line for line in draw(model, width) if "Mean Reward" in line)
    assert re.search(rf"5,123.2 +{re.escape(peak)} ", line)


@pytest.mark.parametrize(
    ("letters", "peak"), [(14, "  0.0667"), (22, "  0.0667"), (23, "  0.067"), (30, "  0.067")]
)
def test_peaks_lose_digits_before_labels_are_cut(
    facts: SystemFacts, letters: int, peak: str
) -> None:
    name = "r" * letters
    means = {"Train/mean_reward": 5.0, f"reward/{name}": -0.25}
    peaks = {"Train/mean_reward": 5200.123, f"reward/{name}": 1 / 15}
    lines = draw(build(Snapshot(facts, means, peaks=peaks)), 44)
    mean = next(line for line in lines if "Mean Reward" in line)
    assert "  5.2k" in mean
    term = next(line for line in lines if "rrr" in line)
    assert "-0.2500" in term
    assert (name in term) == (letters <= 23)
    assert term.rstrip(" │").endswith(peak)


def test_long_names_of_terms_are_cut_in_their_middle(
    facts: SystemFacts, report: dict[str, float]
) -> None:
    report["reward/penalty_of_joint_positions_left"] = 0.5
    report["reward/penalty_of_joint_positions_right"] = 0.25
    lines = draw(make_model(facts, report), 44)
    terms = [line for line in lines if "penalty" in line]
    assert [(line.count("…"), "left" in line, "right" in line) for line in terms] == [
        (1, True, False),
        (1, False, True),
    ]
    assert any("Mean Reward" in line and "5.2k" in line for line in lines)


@pytest.mark.parametrize(
    ("height", "listed", "more"), [(1000, 16, 4), (36, 8, 12), (32, 4, 16), (26, 4, 16)]
)
def test_terms_are_bounded_and_the_others_counted(
    facts: SystemFacts, height: int, listed: int, more: int
) -> None:
    means = {f"reward/term_{index:02}": 1.0 for index in range(20)}
    lines = draw(build(Snapshot(facts, STORED_MEANS | means)), 100, height)
    text = "\n".join(lines)
    assert len(lines) <= height
    assert text.count("term_") == listed
    assert f"+{more} more" in text


def test_never_one_more(facts: SystemFacts) -> None:
    means = {f"reward/term_{index:02}": 1.0 for index in range(17)}
    text = "\n".join(draw(build(Snapshot(facts, means)), 100))
    assert text.count("term_") == 17
    assert "more" not in text


def test_families_of_the_environment_keep_their_whole_tag(
    facts: SystemFacts, report: dict[str, float]
) -> None:
    report["Curriculum/terrain_level"] = 3.5
    for width in (60, 100, 130):
        lines = draw(make_model(facts, report), width)
        assert any("Environment" in line for line in lines)
        assert any("  Curriculum/terrain_level " in line and "3.5000" in line for line in lines)


@pytest.mark.parametrize("width", [60, 96, 120])
def test_phases_beyond_the_iteration_are_shown_as_a_violation(
    facts: SystemFacts, report: dict[str, float], width: int
) -> None:
    report["Perf/learning_time"] = 0.008
    lines = render(make_model(facts, report), width, 1000, UNICODE)
    parts = [part for line in lines for part in line if "Accounted > Wall" in part.text]
    assert len(parts) == 1
    assert "red" in str(parts[0].style)
    text = "\n".join(draw(make_model(facts, report), width))
    assert re.search(r"Other +0.00 +0.0", text)
    assert re.search(r"Accounted > Wall +9.98 +127.0", text)
    assert re.search(r"Iter Wall +7.86 +100.0", text)


def test_no_iteration_within_its_wall_is_a_violation(model: PanelModel) -> None:
    assert "Accounted" not in "".join(draw(model, 120))


def test_a_run_without_replay_shows_none_of_it() -> None:
    text = "\n".join(draw(STORED["ppo"], 120))
    for absent in ("Rows/s", "Ingress", "Replay", "Collector", "Inference", "Buffer", "Transport"):
        assert absent not in text
    assert re.search(r"Rollout Wall +811.7 +69.2", text)
    assert re.search(r"Learning +339.1 +28.9", text)


def test_appo_shows_its_own_phases_and_a_collector_without_shares() -> None:
    lines = draw(STORED["appo"], 120)
    text = "\n".join(lines)
    assert re.search(r"Replay Stage +4.12 +4.4", text)
    assert re.search(r"Weight Publish +1.23 +1.3", text)
    collector = next(line for line in lines if "own clock" in line).split("│")[2]
    assert collector.rstrip().endswith("ms")
    rollout = next(line for line in lines if "Rollout Wall" in line).split("│")[2]
    assert rollout.split() == ["Rollout", "Wall", "92.10"]
    assert "Cycle" not in text


def test_a_cpu_run_says_so(model: PanelModel) -> None:
    assert draw(model, 80)[0].endswith(" GPUs 0 (CPU) ─╮")


@pytest.mark.parametrize(("width", "height"), [(39, 24), (80, 5), (10, 3), (4, 1), (1, 1)])
def test_a_tiny_terminal_gets_a_few_words(model: PanelModel, width: int, height: int) -> None:
    lines = draw(model, width, height)
    assert 1 <= len(lines) <= height
    assert {len(line) for line in lines} == {width}
    assert lines[0][:2] == "53" or width == 1


@pytest.mark.parametrize(("width", "height"), [(80, 24), (100, 30), (130, 24), (200, 26)])
def test_a_low_terminal_gets_less_detail_but_the_core(
    model: PanelModel, width: int, height: int
) -> None:
    lines = draw(model, width, height)
    text = "\n".join(lines)
    assert len(lines) <= height
    assert "more lines" not in text
    for part in ("Actor Loss", "Mean Reward", "Evaluation", "Buffer", "ETA"):
        assert part in text


@pytest.mark.parametrize("width", [80, 130])
def test_a_low_terminal_keeps_diagnostics_that_cost_no_height(
    model: PanelModel, width: int
) -> None:
    text = "\n".join(draw(model, width, 24))
    assert "Actor Grad Norm" in text
    assert "Ingress Dropped Batches" not in text


def test_what_does_not_fit_at_all_is_counted(model: PanelModel) -> None:
    lines = draw(model, 80, 10)
    assert len(lines) == 10
    assert "more lines: enlarge the terminal" in lines[-1]
    assert "Steps/s" in "\n".join(lines)


def test_ascii_terminals_get_ascii_alone(model: PanelModel) -> None:
    text = "\n".join(draw(model, 120, glyphs=ASCII))
    assert text.isascii()
    assert "+/-" in text


@pytest.mark.parametrize(
    ("encoding", "term", "expected"),
    [
        ("utf-8", "xterm-256color", UNICODE),
        ("UTF8", "screen", UNICODE),
        ("ascii", "xterm", ASCII),
        ("latin-1", "xterm", ASCII),
        (None, "xterm", ASCII),
        ("utf-8", "linux", ASCII),
    ],
)
def test_glyphs(encoding: str | None, term: str, expected: Glyphs) -> None:
    assert glyphs_for(encoding, term) is expected


def test_a_run_without_reports_draws(facts: SystemFacts) -> None:
    for width in (60, 100, 130):
        text = "\n".join(draw(build(Snapshot(facts, {})), width))
        assert "Avg 2s (n=0)" in text
        assert "0.0 %" in text


def test_a_run_without_a_target_draws(facts: SystemFacts, report: dict[str, float]) -> None:
    open_ended = replace(facts, target_env_steps=None)
    text = "\n".join(draw(make_model(open_ended, report), 120))
    assert "531,200 steps" in text
    assert "ETA" not in text


def test_names_wider_than_the_panel_are_cut(facts: SystemFacts, report: dict[str, float]) -> None:
    long = replace(facts, run_name="r" * 300, task="t" * 63)
    for width in (40, 60, 130):
        lines = draw(make_model(long, report), width)
        assert {len(line) for line in lines} == {width}


def test_not_a_number_stands_out(facts: SystemFacts, report: dict[str, float]) -> None:
    report["Loss/actor"] = float("nan")
    lines = render(make_model(facts, report), 120, 1000, UNICODE)
    styles = {part.text: str(part.style) for line in lines for part in line}
    assert "red" in styles["nan"]


STORED_MEANS = {
    tag: value for tag, value in stored_snapshot("appo").means.items() if tag in METRICS
}
STORED = {name: build(stored_snapshot(name)) for name in NAMES}
