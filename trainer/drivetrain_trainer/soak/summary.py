"""run_summary.json as a monitor reads it: live, from outside, and believing nothing."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeGuard

from drivetrain_api.atomic import UnreadableFileError, read_bounded
from drivetrain_trainer.evidence.run_directory import RUN_SUMMARY

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SUMMARY_LIMIT: Final = 4 << 20
_NESTING: Final = 64
_KEY_LIMIT: Final = 253
Document = dict[str, Any]
Stamp = tuple[int, int, int]


@dataclass(frozen=True)
class Tick:
    """How far the run says that it is."""

    iteration: int
    env_steps: int
    status: str
    algo: str
    seconds: float | None
    """Wall time of its attempt, by its own clock."""
    learning: bool
    """Whether it has told of updates."""


class SummaryWatch:
    """Follows the summary of a run directory that may not be there yet.

    A summary that was there before the soak began is an earlier attempt's, and is not read.
    """

    def __init__(self, locate: Callable[[], Path | None], *, since: float | None = None) -> None:
        """Watch the run directory that `locate` gives, once it gives one.

        Args:
            locate: The run directory; None while it is not known.
            since: Unix time of the soak's start: what was written before is not this run's.
                None where only a directory that is there already can hold such a summary.
        """
        self._locate = locate
        self._since = None if since is None else int(since * 1e9)
        self._directory = locate()
        self._before = _stamp(self._directory) if self._directory is not None else None
        self._seen: Stamp | None = None
        self.document: Document | None = None
        """The newest whole summary."""
        self.tick: Tick | None = None
        """What it says; None where it says nothing usable."""
        self.torn_reads = 0
        """Contents that were there and were no summary."""
        self.torn: str | None = None
        """What is wrong with the newest content; None where it is whole."""

    @property
    def directory(self) -> Path | None:
        """The run directory, once it is known."""
        if self._directory is None:
            self._directory = self._locate()
        return self._directory

    def look(self) -> None:
        """Read the summary where it has changed."""
        directory = self.directory
        stamp = _stamp(directory) if directory is not None else None
        if directory is None or stamp is None or stamp in (self._before, self._seen):
            return
        self._seen = stamp
        if self._since is not None and stamp[1] < self._since:
            return
        try:
            self.document = parse(read_bounded(directory / RUN_SUMMARY, SUMMARY_LIMIT))
        except FileNotFoundError:
            return
        except (OSError, UnreadableFileError) as error:
            self._seen = None  # a file system's bad moment: asked again
            self.torn = str(error)[:512]
            return
        except (ValueError, RecursionError) as error:
            self.torn_reads += 1
            self.torn = str(error)[:512]
            return
        self.torn = None
        self.tick = _tick(self.document)


def parse(content: bytes) -> Document:
    """A JSON object that can be written again: finite, of bounded nesting, all its text UTF-8.

    Raises:
        ValueError: it is something else.
    """
    document = json.loads(content, parse_constant=_refuse, parse_float=_finite)
    if not isinstance(document, dict):
        raise ValueError(f"not a JSON object but {type(document).__name__}")  # noqa: TRY004 - content
    _bound(document, 0)
    return document


def section(document: Mapping[str, Any] | None, *path: str) -> Document | None:
    """The mapping at a path; None where there is none."""
    found: Any = document
    for key in path:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found if isinstance(found, dict) else None


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is not a number of JSON")


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refuse(text)


def _bound(value: object, depth: int) -> None:
    if depth > _NESTING:
        raise ValueError(f"nested more than {_NESTING} levels")
    if isinstance(value, str):
        value.encode()
    elif isinstance(value, dict):
        for key, item in value.items():
            if len(key.encode()) > _KEY_LIMIT:
                raise ValueError(f"a key of more than {_KEY_LIMIT} bytes")
            _bound(item, depth + 1)
    elif isinstance(value, list):
        for item in value:
            _bound(item, depth + 1)


def _stamp(directory: Path) -> Stamp | None:
    try:
        facts = (directory / RUN_SUMMARY).lstat()
    except OSError:
        return None
    return facts.st_ino, facts.st_mtime_ns, facts.st_size


def _tick(document: Document) -> Tick | None:
    iteration, env_steps = document.get("completed_iterations"), document.get("total_env_steps")
    if type(iteration) is not int or type(env_steps) is not int or iteration < 0 or env_steps < 0:
        return None
    seconds: object = document.get("wall_time_sec")
    return Tick(
        iteration=iteration,
        env_steps=env_steps,
        status=str(document.get("status")),
        algo=str(document.get("algo")),
        seconds=float(seconds) if _number(seconds) else None,
        learning=document.get("final_learner_replay_rows_per_sec") is not None,
    )


def _number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
