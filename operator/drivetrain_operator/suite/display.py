"""What a person sees of a suite: a table that is redrawn, or lines where there is no terminal."""

from __future__ import annotations

import shutil
import sys
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import click

from drivetrain_api.artifacts.suite_record import MemberState
from drivetrain_operator.cli.figures import NOTHING, duration, figure, number
from drivetrain_operator.cli.table import table, wrapped
from drivetrain_operator.cli.terminal import say

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from drivetrain_api.artifacts.suite_record import SuiteMember
    from drivetrain_api.status import TrainingRunStatus

HEADER: Final = ("MEMBER", "VARIANT", "SEED", "STATE", "STEPS", "RETURN", "TIME")
_RIGHT: Final = ("SEED", "STEPS", "RETURN", "TIME")
LINE_SECONDS: Final = 60.0
"""Between two lines about a member that runs, where there is no terminal."""
_URGENCY: Final = {
    MemberState.RUNNING: 0,
    MemberState.FAILED: 1,
    MemberState.SUSPENDED: 2,
    MemberState.PENDING: 3,
    MemberState.COMPLETE: 4,
}
"""Which members are shown first where not all of them fit."""
_COLORS: Final = {
    MemberState.RUNNING: "green",
    MemberState.FAILED: "red",
    MemberState.SUSPENDED: "cyan",
    MemberState.COMPLETE: "blue",
}
_MESSAGE_WIDTH: Final = 100
_ABOVE: Final = 3
"""Lines of a terminal that the table leaves to its header, its last line and the cursor."""


@dataclass(frozen=True)
class Figures:
    """How far a member is."""

    env_steps: int | None = None
    target_env_steps: int | None = None
    mean_return: str | None = None
    """Of the latest evaluation, else of the last 100 episodes; a decimal."""
    seconds: float | None = None
    """From its first start to its end, or to now."""


UNKNOWN: Final = Figures()


def figures_of(status: TrainingRunStatus, now: datetime) -> Figures:
    """What a run's status tells."""
    progress, summary = status.progress, status.run_summary
    steps = progress.env_steps if progress is not None else None
    mean = (progress.evaluated_return or progress.mean_reward) if progress is not None else None
    if summary is not None:
        steps = max(steps or 0, summary.total_env_steps)
        mean = summary.evaluated_return or summary.final_mean_reward or mean
    seconds = None
    if status.started_at is not None:
        seconds = ((status.finished_at or now) - status.started_at).total_seconds()
    return Figures(
        env_steps=steps,
        target_env_steps=progress.target_env_steps if progress is not None else None,
        mean_return=mean,
        seconds=seconds,
    )


def cells(member: SuiteMember, figures: Figures) -> tuple[str, ...]:
    """A member's row."""
    steps = NOTHING if figures.env_steps is None else number(figures.env_steps)
    if figures.target_env_steps is not None and member.state is MemberState.RUNNING:
        steps = f"{steps}/{number(figures.target_env_steps)}"
    return (
        member.name,
        member.variant,
        str(member.seed),
        str(member.state),
        steps,
        figure(figures.mean_return),
        NOTHING if figures.seconds is None else duration(figures.seconds),
    )


def tally(members: Sequence[SuiteMember]) -> str:
    """Such as ``2 complete (1 below its threshold), 1 running, 3 pending``."""
    counts = Counter(member.state for member in members)
    order = (
        MemberState.COMPLETE,
        MemberState.RUNNING,
        MemberState.SUSPENDED,
        MemberState.FAILED,
        MemberState.PENDING,
    )
    missed = sum(m.state is MemberState.COMPLETE and m.reason is not None for m in members)
    told = {MemberState.COMPLETE: f" ({missed} below its threshold)"} if missed else {}
    return ", ".join(
        f"{counts[state]} {state}{told.get(state, '')}" for state in order if counts[state]
    )


def lines_of(
    members: Sequence[SuiteMember],
    figures: Mapping[str, Figures],
    *,
    height: int | None = None,
    width: int | None = None,
) -> list[str]:
    """The table in the suite's order.

    Args:
        members: The members.
        figures: What is known of them, by name.
        height: Lines there are: the most urgent rows where they do not hold all.
        width: Columns there are: without the variant, which the names tell, where it is too wide.
    """
    shown = list(members)
    if height is not None and len(members) > max(height - _ABOVE, 1):
        room = max(height - _ABOVE, 1)
        chosen = sorted(range(len(members)), key=lambda i: (_URGENCY[members[i].state], i))[:room]
        shown = [members[i] for i in sorted(chosen)]
    rows = [cells(member, figures.get(member.name, UNKNOWN)) for member in shown]
    found = table(HEADER, rows, right=_RIGHT)
    if width is not None and max(map(len, found)) > width:
        at = HEADER.index("VARIANT")
        narrow = [(*row[:at], *row[at + 1 :]) for row in (HEADER, *rows)]
        found = table(narrow[0], narrow[1:], right=_RIGHT)
    hidden = len(members) - len(shown)
    more = f"and {hidden} more; " if hidden else ""
    return [*found, f"{more}{tally(members)} of {len(members)} members"]


def reasons(members: Sequence[SuiteMember]) -> list[str]:
    """Why members failed or stopped, or missed a threshold, one below the other."""
    told = [(m.name, m.reason) for m in members if m.reason]
    return wrapped(("MEMBER", "REASON"), told, _MESSAGE_WIDTH) if told else []


class Board:
    """Shows a suite while it is driven.

    Args:
        live: Redraw a table; else print lines.
        clock: Monotonic seconds.
    """

    def __init__(
        self, *, live: bool | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._live = sys.stderr.isatty() if live is None else live
        self._clock = clock
        self._drawn = 0
        self._states: dict[str, MemberState] = {}
        self._told_at: dict[str, float] = {}

    def show(self, members: Sequence[SuiteMember], figures: Mapping[str, Figures]) -> None:
        """Bring it up to date."""
        if self._live:
            self._redraw(members, figures)
        else:
            self._tell(members, figures)

    def note(self, text: str, *, fg: str | None = None) -> None:
        """A line that stays."""
        self._erase()
        say(text, fg=fg)

    def close(self) -> None:
        """Take the table away: a summary follows."""
        self._erase()

    def _erase(self) -> None:
        if self._drawn:
            click.echo(f"\x1b[{self._drawn}A\x1b[J", nl=False, err=True, color=True)
            self._drawn = 0

    def _redraw(self, members: Sequence[SuiteMember], figures: Mapping[str, Figures]) -> None:
        size = shutil.get_terminal_size()
        lines = lines_of(members, figures, height=size.lines, width=size.columns - 1)
        states = {member.name: member.state for member in members}
        self._erase()
        for line in lines:
            state = states.get(line.partition(" ")[0])
            cut = line[: max(size.columns - 1, 1)]
            color = _COLORS.get(state) if state is not None else None
            text = cut.replace(str(state), click.style(str(state), fg=color), 1) if color else cut
            say(text)
        self._drawn = len(lines)

    def _tell(self, members: Sequence[SuiteMember], figures: Mapping[str, Figures]) -> None:
        done = sum(member.state.over for member in members)
        now = self._clock()
        for member in members:
            changed = self._states.get(member.name, MemberState.PENDING) is not member.state
            due = now - self._told_at.get(member.name, now) >= LINE_SECONDS
            if not changed and not (due and member.state is MemberState.RUNNING):
                continue
            self._states[member.name] = member.state
            self._told_at[member.name] = now
            found = figures.get(member.name, UNKNOWN)
            steps = "" if found.env_steps is None else f" at {number(found.env_steps)} steps"
            mean = "" if found.mean_return is None else f", return {figure(found.mean_return)}"
            why = f": {member.reason}" if member.reason else ""
            say(f"[{done}/{len(members)}] {member.name} {member.state}{steps}{mean}{why}")
