from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from drivetrain_trainer.telemetry.facts import SystemFacts
from drivetrain_trainer.telemetry.record import Record
from drivetrain_trainer.telemetry.terminal.glyphs import UNICODE
from drivetrain_trainer.telemetry.terminal.live import LiveTerminal
from drivetrain_trainer.telemetry.terminal.model import build
from drivetrain_trainer.telemetry.terminal.panel import render
from drivetrain_trainer.telemetry.terminal.state import TerminalState

MakeRecord = Callable[..., Record]
MakePair = Callable[[int, int], Any]
FAST = 0.02


def open_live(pair: Any, facts: SystemFacts) -> tuple[LiveTerminal, TerminalState]:
    state = TerminalState(facts, clock=lambda: 100.0)
    return LiveTerminal(state, pair.stream, interval_s=FAST), state


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def expected(state: TerminalState, width: int, height: int = 1000) -> str:
    lines = render(build(state.snapshot()), width, height, UNICODE)
    return "\n".join("".join(part.text for part in line).rstrip() for line in lines)


@pytest.mark.parametrize("columns", [60, 100, 130])
def test_the_last_panel_stays_on_screen_alone(
    make_terminal_pair: MakePair, facts: SystemFacts, make_record: MakeRecord, columns: int
) -> None:
    pair = make_terminal_pair(columns, 70)
    live, state = open_live(pair, facts)
    live.start()
    live.update(make_record())
    pair.wait_for(lambda text: text.count("Actor Loss") >= 3)
    live.close()
    screen = pair.screen()
    assert screen.text == expected(state, columns)
    assert screen.cursor_visible


def test_a_low_terminal_shows_less_and_leaves_everything_at_the_end(
    make_terminal_pair: MakePair, facts: SystemFacts, make_record: MakeRecord
) -> None:
    pair = make_terminal_pair(80, 24)
    live, state = open_live(pair, facts)
    live.start()
    live.update(make_record())
    drawn = pair.wait_for(lambda text: text.count("Actor Loss") >= 2)
    assert "Iter Wall" not in drawn
    live.close()
    assert pair.screen().text.endswith(expected(state, 80))


def test_what_training_prints_scrolls_above_the_panel(
    make_terminal_pair: MakePair,
    facts: SystemFacts,
    make_record: MakeRecord,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pair = make_terminal_pair(130, 60)
    monkeypatch.setattr(sys, "stdout", pair.stream)
    live, state = open_live(pair, facts)
    live.start()
    live.update(make_record())
    pair.wait_for(lambda text: "Actor Loss" in text)
    print("one line of training")
    live.close()
    assert sys.stdout is pair.stream
    print("after the run")
    lines = pair.screen().text.splitlines()
    assert lines[0] == "one line of training"
    assert "\n".join(lines[1:-1]) == expected(state, 130)
    assert lines[-1] == "after the run"


def test_the_size_is_asked_for_at_every_redraw(
    make_terminal_pair: MakePair, facts: SystemFacts, make_record: MakeRecord
) -> None:
    pair = make_terminal_pair(130, 60)
    live, state = open_live(pair, facts)
    live.start()
    live.update(make_record())
    pair.wait_for(lambda text: "own clock" in text)
    pair.resize(80, 60)
    received = pair.wait_for(lambda text: "Timing" in text)
    assert "\x1b[2J" in received[: received.index("Timing")]
    live.close()
    text = pair.screen().text
    assert text == expected(state, 80)


def test_a_killed_run_leaves_the_cursor_visible(
    make_terminal_pair: MakePair, facts: SystemFacts
) -> None:
    pair = make_terminal_pair(130, 60)
    live, _ = open_live(pair, facts)
    live.start()
    received = pair.wait_for(lambda text: "Drivetrain" in text)
    assert "\x1b[?25l" not in received
    live.close()


def test_no_color_is_honoured(
    make_terminal_pair: MakePair,
    facts: SystemFacts,
    make_record: MakeRecord,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    pair = make_terminal_pair(130, 60)
    live, _ = open_live(pair, facts)
    live.start()
    live.update(make_record())
    received = pair.wait_for(lambda text: "Actor Loss" in text)
    live.close()
    assert "\x1b[36m" not in received


def test_colours_are_used_otherwise(
    make_terminal_pair: MakePair, facts: SystemFacts, make_record: MakeRecord
) -> None:
    pair = make_terminal_pair(130, 60)
    live, _ = open_live(pair, facts)
    live.start()
    live.update(make_record())
    pair.wait_for(lambda text: "\x1b[36m-82.120" in text)
    live.close()


def test_a_terminal_that_hangs_up_ends_the_panel_and_not_training(
    make_terminal_pair: MakePair, facts: SystemFacts, make_record: MakeRecord
) -> None:
    pair = make_terminal_pair(130, 60)
    live, _ = open_live(pair, facts)
    before = sys.stdout, sys.stderr
    with capture_logs() as logs:
        live.start()
        pair.wait_for(lambda text: "Drivetrain" in text)
        pair.hang_up()
        live._clock._thread.join(10)
        assert not live._clock._thread.is_alive()
        live.update(make_record())
        live.close()
    assert [entry["event"] for entry in logs] == ["live panel ended; training goes on"]
    assert (sys.stdout, sys.stderr) == before


def test_a_stopped_terminal_misses_drawings_and_holds_nobody_up(
    make_terminal_pair: MakePair,
    facts: SystemFacts,
    make_record: MakeRecord,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pair = make_terminal_pair(130, 60)
    monkeypatch.setattr(sys, "stdout", pair.stream)
    live, state = open_live(pair, facts)
    live.start()
    pair.wait_for(lambda text: "Drivetrain" in text)
    with capture_logs() as logs:
        pair.stop_reading()
        wait_until(lambda: bool(logs))
        began = time.monotonic()
        for number in range(200):
            print("line", number)
            live.update(make_record())
        assert time.monotonic() - began < 1.0
        pair.go_on_reading()
        pair.wait_for(lambda text: "Actor Loss" in text)
        pair.stop_reading()
        assert live._output is not None
        wait_until(lambda: live._output.backlog > 0)
    pair.go_on_reading()
    live.close()
    assert [entry["event"] for entry in logs] == [
        "the terminal takes no drawing; the panel skips some, training goes on"
    ]
    lines = pair.screen().text.splitlines()
    assert lines[:200] == [f"line {number}" for number in range(200)]
    assert "\n".join(lines[200:]) == expected(state, 130)


def test_the_end_of_a_run_waits_a_bounded_time_for_a_stopped_terminal(
    make_terminal_pair: MakePair, facts: SystemFacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("drivetrain_trainer.telemetry.terminal.live.LAST_DRAWING_S", 0.2)
    pair = make_terminal_pair(130, 60)
    live, _ = open_live(pair, facts)
    pair.stop_reading()
    with capture_logs() as logs:
        live.start()
        wait_until(lambda: bool(logs))
        began = time.monotonic()
        live.close()
    assert time.monotonic() - began < 1.5


def test_a_print_to_a_terminal_that_hung_up_is_no_error(
    make_terminal_pair: MakePair, facts: SystemFacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = make_terminal_pair(130, 60)
    monkeypatch.setattr(sys, "stdout", pair.stream)
    live, _ = open_live(pair, facts)
    with capture_logs() as logs:
        live.start()
        pair.wait_for(lambda text: "Drivetrain" in text)
        pair.hang_up()
        while sys.stdout is not pair.stream:
            print("one line of training")
        live.close()
    assert [entry["event"] for entry in logs] == ["live panel ended; training goes on"]


def test_a_line_without_an_end_is_printed_at_the_end(
    make_terminal_pair: MakePair, facts: SystemFacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = make_terminal_pair(130, 60)
    monkeypatch.setattr(sys, "stdout", pair.stream)
    live, state = open_live(pair, facts)
    live.start()
    pair.wait_for(lambda text: "Drivetrain" in text)
    print("no", "end", end="", flush=True)
    assert sys.stdout.isatty()
    live.close()
    assert pair.screen().text == expected(state, 130) + "\nno end"


@pytest.mark.parametrize("size", [(1, 1), (10, 3), (39, 10), (80, 4), (300, 100)])
def test_any_size_of_terminal(
    make_terminal_pair: MakePair,
    facts: SystemFacts,
    make_record: MakeRecord,
    size: tuple[int, int],
) -> None:
    pair = make_terminal_pair(*size)
    live, state = open_live(pair, facts)
    live.start()
    live.update(make_record())
    pair.wait_for(lambda text: text.count("\r") >= 3)
    live.close()
    assert pair.screen().text.endswith(expected(state, size[0]))


def test_a_drawing_larger_than_a_terminals_buffer_is_whole_before_the_next(
    make_terminal_pair: MakePair, facts: SystemFacts
) -> None:
    pair = make_terminal_pair(1000, 100)
    live = LiveTerminal(TerminalState(facts), pair.stream, interval_s=3600)
    live.start()
    received = pair.wait_for(lambda text: "╯" in text)
    assert len(received.encode()) > 20_000
    live.close()


def test_a_terminal_poor_in_characters_gets_ascii_alone(
    make_terminal_pair: MakePair, facts: SystemFacts, make_record: MakeRecord
) -> None:
    pair = make_terminal_pair(130, 60)
    with os.fdopen(os.dup(pair.stream.fileno()), "w", encoding="latin-1") as stream:
        live = LiveTerminal(TerminalState(facts), stream, interval_s=FAST)
        live.start()
        live.update(make_record())
        received = pair.wait_for(lambda text: "Actor Loss" in text)
        live.close()
    assert received.isascii()


def test_a_terminal_that_cannot_be_opened_anew_holds_up_nobody_who_prints(
    make_terminal_pair: MakePair,
    facts: SystemFacts,
    make_record: MakeRecord,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("drivetrain_trainer.telemetry.terminal.output._opened_anew", lambda _: None)
    pair = make_terminal_pair(130, 60)
    monkeypatch.setattr(sys, "stdout", pair.stream)
    live, state = open_live(pair, facts)
    live.start()
    live.update(make_record())
    pair.wait_for(lambda text: text.count("Actor Loss") >= 2)
    pair.stop_reading()
    began = time.monotonic()
    for number in range(200):
        print("line", number)
    assert time.monotonic() - began < 1.0
    pair.go_on_reading()
    pair.wait_for(lambda text: "line 199" in text)
    live.close()
    lines = pair.screen().text.splitlines()
    assert lines[:200] == [f"line {number}" for number in range(200)]
    assert "\n".join(lines[200:]) == expected(state, 130)


def test_a_stream_that_is_closed_before_the_start_is_survived(
    make_terminal_pair: MakePair, facts: SystemFacts, make_record: MakeRecord
) -> None:
    pair = make_terminal_pair(130, 60)
    live, _ = open_live(pair, facts)
    pair.stream.close()
    with capture_logs() as logs:
        live.start()
        live.update(make_record())
        live.close()
    assert [entry["event"] for entry in logs] == ["live panel ended; training goes on"]
