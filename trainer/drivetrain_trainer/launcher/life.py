"""Where a rank is in its life, in a file of the scratch folder: what is left where it is killed.

A rank writes four words into mapped memory at each change of phase, at the cost of a few
hundred nanoseconds; the kernel keeps them, however the rank ends.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from drivetrain_api.artifacts.shutdown import (
    Classification,
    CleanupSnapshot,
    LearnerCoordination,
    LifePhase,
    Owner,
    ShutdownException,
    ShutdownReport,
)

if TYPE_CHECKING:
    from pathlib import Path

_WORDS: Final = struct.Struct("=qqqq")
_PHASES: Final = tuple(LifePhase)
_NO_TICK: Final = -1


@dataclass(frozen=True)
class Life:
    """A rank at its latest change of phase."""

    phase: LifePhase
    tick: int | None
    """Of the lockstep with the collector; None before it."""
    iteration: int
    env_steps: int


class LifeMark:
    """Keeps the file; without a path nothing is kept."""

    def __init__(self, path: Path | None = None) -> None:
        """Make the file.

        Raises:
            OSError: it cannot be written.
        """
        self._map: mmap.mmap | bytearray = bytearray(_WORDS.size)
        if path is not None:
            path.write_bytes(bytes(_WORDS.size))
            with path.open("r+b") as file:
                self._map = mmap.mmap(file.fileno(), _WORDS.size)
        self.write(Life(LifePhase.START_UP, None, 0, 0))

    def write(self, life: Life) -> None:
        """Take note."""
        tick = _NO_TICK if life.tick is None else life.tick
        number = _PHASES.index(life.phase)
        _WORDS.pack_into(self._map, 0, number, tick, life.iteration, life.env_steps)


def read_life(path: Path) -> Life | None:
    """The file of a rank that has ended; None where there is none, or it is not one."""
    try:
        with path.open("rb") as file:
            number, tick, iteration, env_steps = _WORDS.unpack(file.read(_WORDS.size + 1))
    except (OSError, struct.error):
        return None
    if not 0 <= number < len(_PHASES) or min(tick + 1, iteration, env_steps) < 0:
        return None
    return Life(_PHASES[number], None if tick == _NO_TICK else tick, iteration, env_steps)


def report_of_the_killed(
    life: Life, words: str, classification: Classification, owner: Owner, world_size: int
) -> ShutdownReport:
    """What can be said for rank 0 where it was killed: its rings went with it."""
    return ShutdownReport(
        classification=classification,
        owner=owner,
        phase=life.phase,
        iteration=life.iteration,
        coordination_tick=life.tick,
        inference_epoch=None,
        exception=ShutdownException(type="Killed", message=words[:4096]),
        learner_coordination=LearnerCoordination(
            rank=0, world_size=world_size, env_steps=life.env_steps
        ),
        inference_ring=None,
        replay_ingress=None,
        collector=None,
        cleanup=CleanupSnapshot(),
    )
