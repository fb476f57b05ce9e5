"""What is compared: arguments, the runs below them, and the side that each run is of."""

from __future__ import annotations

import glob
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from drivetrain_api.artifacts.base import ArtifactError
from drivetrain_api.artifacts.suite_record import RECORD_LIMIT, SUITE_RECORD, SuiteRecord
from drivetrain_api.atomic import UnreadableFileError, read_bounded
from drivetrain_trainer.analysis.choice import NoRunError, runs_below
from drivetrain_trainer.analysis.grouping import group_of
from drivetrain_trainer.analysis.loading import names_of
from drivetrain_trainer.analysis.runs import RunFolder, RunFolderError
from drivetrain_trainer.analysis.schema_check import SchemaError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from drivetrain_api.artifacts.suite_record import SuiteMember

MOST_SIDES: Final = 12
"""More than a figure can tell apart."""
UNKNOWN_SIDE: Final = "?"
"""Of a member that has not begun, where sides are made by settings of its run."""
_WILD: Final = re.compile(r"[*?\[]")
_NAMED: Final = re.compile(r"([^/=]+)=(.+)", re.DOTALL)
_HIGHEST: Final = 6
"""Folders above a run in which its suite's record is looked for."""
_TASK: Final = "task"


class ComparisonError(ValueError):
    """What cannot be compared; the message says why and what to do."""


@dataclass(frozen=True)
class Found:
    """A run that is to be compared, before it is read."""

    side: str
    """What it is a seed of."""
    path: Path
    """Its run directory, which a member that never began does not have."""
    member: SuiteMember | None = None
    """What its suite says of it."""


@dataclass(frozen=True)
class _Argument:
    """One argument of the command."""

    name: str | None
    """The label that was given with it."""
    text: str
    """The rest, as it was given."""
    paths: tuple[Path, ...]
    """What it names; of a pattern what fits it."""


def find(arguments: Sequence[str], keys: Sequence[str] = ()) -> list[Found]:
    """The runs of all arguments, side by side.

    An argument is a side of its own, or several: a suite's variants, or algorithms. What
    variants do with their task makes no side, since tasks are compared one by one.

    Args:
        arguments: Paths or patterns, each with ``NAME=`` before it or without.
        keys: Settings by whose values runs are put together, in place of arguments.

    Raises:
        ComparisonError: nothing is there, a run is on two sides, or there are too many sides.
        GroupingError: a run lacks one of the keys.
    """
    parsed = [_parsed(argument) for argument in arguments]
    records = _Records()
    if keys:
        every = [one for argument in parsed for one in _runs(argument, records)]
        found = [replace(one, side=_group(one, keys)) for one in _once(every)]
    else:
        found = _by_argument(parsed, records)
        _refuse_shared(found)
    sides = {one.side for one in found} - {UNKNOWN_SIDE}
    if len(sides) > MOST_SIDES:
        raise ComparisonError(
            f"{len(sides)} sides are more than the {MOST_SIDES} that can be told apart: name "
            "fewer, or put runs together with --group KEYS"
        )
    return found


def _parsed(argument: str) -> _Argument:
    if not Path(argument).exists() and (match := _NAMED.fullmatch(argument)):
        name, text = match.groups()
        return _Argument(name.strip() or None, text, _paths(text))
    return _Argument(None, argument, _paths(argument))


def _paths(text: str) -> tuple[Path, ...]:
    """What a path, or a pattern that the shell has left alone, names."""
    path = Path(text)
    if path.exists() or not _WILD.search(text):
        return (path,)
    matches = sorted(glob.glob(text))  # noqa: PTH207 - patterns may be absolute
    if not matches:
        raise ComparisonError(f"nothing fits {text!r}")
    return tuple(Path(match) for match in matches)


def _by_argument(parsed: Sequence[_Argument], records: _Records) -> list[Found]:
    names = _labels(parsed)
    found: list[Found] = []
    for argument, name in zip(parsed, names, strict=True):
        runs = list(_once(_runs(argument, records)))
        kinds = {one.side for one in runs} - {UNKNOWN_SIDE}
        alone = len(parsed) == 1 and argument.name is None
        for one in runs:
            several = one.side if alone else f"{name} · {one.side}"
            found.append(replace(one, side=name if len(kinds) <= 1 else several))
    return found


def _labels(parsed: Sequence[_Argument]) -> list[str]:
    plain = {Path(one.text) for one in parsed if one.name is None}
    short = names_of(sorted(plain))
    labels = [one.name or short[Path(one.text)] for one in parsed]
    for label in labels:
        if labels.count(label) > 1:
            raise ComparisonError(f"two arguments are called {label!r}; name them: NAME=PATH")
    return labels


def _runs(argument: _Argument, records: _Records) -> Iterator[Found]:
    """Runs below an argument, `side` being what tells them apart within it."""
    folders: list[Path] = []
    reasons: list[str] = []
    for path in argument.paths:
        try:
            folders += sorted(runs_below(path))
        except NoRunError as error:
            reasons.append(str(error))
    suites = records.around((*argument.paths, *folders))
    members = {
        (root / member.run_directory).resolve(): member
        for root, record in suites.items()
        for member in record.members
    }
    listed = {folder.resolve() for folder in folders}
    for path in members:
        top = next((top for top in argument.paths if path.is_relative_to(top.resolve())), None)
        if top is not None and path not in listed:
            folders.append(top / path.relative_to(top.resolve()))
    if not folders:
        raise ComparisonError("; ".join(reasons))
    variants = _Variants(suites.values())
    for folder in folders:
        member = members.get(folder.resolve())
        yield Found(variants.kind(member) if member else _algorithm(folder), folder, member)


def _algorithm(folder: Path) -> str:
    try:
        opened = RunFolder.open(folder)
        content = opened.raw_summary or {}
    except (RunFolderError, SchemaError):
        return UNKNOWN_SIDE
    return str(content.get("algo", UNKNOWN_SIDE))


def _group(one: Found, keys: Sequence[str]) -> str:
    try:
        return group_of(RunFolder.open(one.path), keys)
    except (RunFolderError, SchemaError):
        return UNKNOWN_SIDE


def _once(found: Iterable[Found]) -> Iterator[Found]:
    seen: set[Path] = set()
    for one in found:
        path = one.path.resolve()
        if path not in seen:
            seen.add(path)
            yield one


def _refuse_shared(found: Sequence[Found]) -> None:
    sides: dict[Path, str] = {}
    for one in found:
        other = sides.setdefault(one.path.resolve(), one.side)
        if other != one.side:
            raise ComparisonError(f"{one.path} is on two sides, {other} and {one.side}")


class _Variants:
    """Words for a suite's variants, without what they do with the task."""

    def __init__(self, records: Iterable[SuiteRecord]) -> None:
        self._names: dict[str, set[str]] = {}
        for record in records:
            for member in record.members:
                self._names.setdefault(_words(member), set()).add(member.variant)

    def kind(self, member: SuiteMember) -> str:
        """The variant's settings, or its name where it has no others than the task."""
        words = _words(member)
        names = self._names[words]
        return words or (next(iter(names)) if len(names) == 1 else str(member.algo.value))


def _words(member: SuiteMember) -> str:
    settings = {
        path: value
        for path, value in member.overrides.items()
        if path != _TASK and not path.startswith(f"{_TASK}.")
    }
    return ", ".join(f"{_short(path, settings)}={value}" for path, value in settings.items())


def _short(path: str, settings: Mapping[str, object]) -> str:
    last = path.rpartition(".")[2]
    return last if sum(other.rpartition(".")[2] == last for other in settings) == 1 else path


class _Records:
    """Records of suites, each read once."""

    def __init__(self) -> None:
        self._read: dict[Path, SuiteRecord | None] = {}

    def around(self, paths: Iterable[Path]) -> dict[Path, SuiteRecord]:
        """Root -> record of the suites that hold any of the paths."""
        found: dict[Path, SuiteRecord] = {}
        for path in paths:
            at = path.resolve()
            for root in (at, *at.parents[:_HIGHEST]):
                if root not in self._read:
                    self._read[root] = _record(root / SUITE_RECORD)
                record = self._read[root]
                if record is not None:
                    found[root] = record
                    break
        return found


def _record(path: Path) -> SuiteRecord | None:
    try:
        if not path.is_file():
            return None
        return SuiteRecord.from_json(read_bounded(path, RECORD_LIMIT))
    except (ArtifactError, UnreadableFileError, OSError) as error:
        raise ComparisonError(f"{path}: {error}") from error
