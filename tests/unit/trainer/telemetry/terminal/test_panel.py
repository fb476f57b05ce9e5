"""The panel at the edges of its width tiers, compared with stored drawings.

After a change that is meant, run with ``DRIVETRAIN_UPDATE_SNAPSHOTS=1`` and read the diff.
"""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain_trainer.telemetry.facts import EvaluationFigures, SystemFacts
from drivetrain_trainer.telemetry.terminal.glyphs import ASCII, UNICODE, Glyphs, glyphs_for
from drivetrain_trainer.telemetry.terminal.model import PanelModel, Snapshot, build
from drivetrain_trainer.telemetry.terminal.panel import render

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


@pytest.mark.parametrize("width", [60, 80, 95, 96, 119, 120, 200])
def test_drawing(model: PanelModel, width: int) -> None:
    drawn = "\n".join(line.rstrip() for line in draw(model, width)) + "\n"
    path = SNAPSHOTS / f"panel_{width}.txt"
    if os.environ.get("DRIVETRAIN_UPDATE_SNAPSHOTS"):
        path.write_text(drawn, encoding="utf-8")
    assert drawn == path.read_text(encoding="utf-8")


@given(width=st.integers(40, 240), height=st.integers(5, 80))
def test_every_line_has_the_width_and_the_frame_is_closed(width: int, height: int) -> None:
    lines = draw(STATIC_MODEL, width, height)
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


@pytest.mark.parametrize(("width", "peak"), [(46, "5,200.1"), (40, "   5.2k")])
def test_peaks_lose_digits_before_labels_are_cut(
    facts: SystemFacts, report: dict[str, float], width: int, peak: str
) -> None:
    report["reward/twenty_letters_long_"] = 0.5
    lines = draw(make_model(facts, report), width)
    line = next(line for line in lines if "Mean Reward" in line)
    assert "5,123.2" in line
    assert peak in line
    assert any("twenty_letters_long_ " in line for line in lines)


def test_labels_are_cut_last(facts: SystemFacts, report: dict[str, float]) -> None:
    report["reward/a_very_long_name_of_a_reward_term"] = 0.5
    lines = draw(make_model(facts, report), 44)
    line = next(line for line in lines if "a_very_long" in line)
    assert "0.5000" in line
    assert "a_very_long_name_of_a_reward_te" in line
    assert not any("peak" in line for line in lines)


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


STATIC_MODEL = build(
    Snapshot(
        SystemFacts("run", "sac", "hopper", "mujoco", 4, 256, target_env_steps=1000),
        {
            "Loss/actor": 1.0,
            "Train/mean_reward": 2.0,
            "Train/target_q_max": 3.0,
            "Perf/iteration_time": 0.1,
            "Perf/learning_time": 0.05,
            "reward/a": 1.0,
            "Perf/collector_env_step_ms": 1.0,
            "Perf/collector_env_step_backend_ms": 0.5,
        },
        env_steps=100,
    )
)
