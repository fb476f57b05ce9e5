from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest

from drivetrain_trainer.telemetry.facts import SystemFacts
from drivetrain_trainer.telemetry.terminal.live import LiveTerminal
from drivetrain_trainer.telemetry.terminal.plain import PlainTerminal
from drivetrain_trainer.telemetry.terminal.terminal import make_terminal


@pytest.mark.parametrize(
    ("term", "kind"),
    [
        ("xterm-256color", LiveTerminal),
        ("linux", LiveTerminal),
        ("dumb", PlainTerminal),
        ("", PlainTerminal),
    ],
)
def test_a_terminal_gets_the_panel_where_it_can_draw_it(
    make_terminal_pair: Callable[[int, int], Any],
    facts: SystemFacts,
    monkeypatch: pytest.MonkeyPatch,
    term: str,
    kind: type,
) -> None:
    pair = make_terminal_pair(80, 24)
    monkeypatch.setenv("TERM", term)
    assert type(make_terminal(facts, pair.stream)) is kind


def test_a_pipe_gets_lines(facts: SystemFacts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    assert type(make_terminal(facts, io.StringIO())) is PlainTerminal
