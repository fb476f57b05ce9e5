"""What is compared: arguments, the runs below them, and the side that each run is of."""

from __future__ import annotations

import glob
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from drivetrain_trainer.analysis.choice import NoRunError, runs_below
from drivetrain_trainer.analysis.grouping import group_of
from drivetrain_trainer.analysis.loading import names_of
from drivetrain_trainer.analysis.runs import RunFolder, RunFolderError
from drivetrain_trainer.analysis.schema_check import SchemaError
from drivetrain_trainer.analysis.suites import SuiteFolders, SuiteRecordError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from drivetrain_api.artifacts.suite_record import SuiteMember, SuiteRecord
    from drivetrain_trainer.analysis.suites import NotCounted, SuiteFolder

MOST_SIDES: Final = 12
"""More than a figure can tell apart."""
UNKNOWN_SIDE: Final = "?"
"""Of a member that has not begun, where sides are made by settings of its run."""
_WILD: Final = re.compile(r"[*?\[]")
_NAMED: Final = re.compile(r"([^/=]+)=(.+)", re.DOTALL)
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
    """What its suite says of it, or of the run that replaced it."""
    not_counted: str | None = None
    """Why it takes no part, whatever it has come to: its suite does not count it."""


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
    suites = SuiteFolders()
    if keys:
        every = [one for argument in parsed for one in _runs(argument, suites)]
        found = [replace(one, side=_group(one, keys)) for one in _once(every)]
    else:
        found = _by_argument(parsed, suites)
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


def _by_argument(parsed: Sequence[_Argument], suites: SuiteFolders) -> list[Found]:
    names = _labels(parsed)
    found: list[Found] = []
    for argument, name in zip(parsed, names, strict=True):
        runs = list(_once(_runs(argument, suites)))
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


def _runs(argument: _Argument, suites: SuiteFolders) -> Iterator[Found]:
    """Runs below an argument, `side` being what tells them apart within it.

    Of a suite the members' own directories take part; what its record does not name is told.
    """
    folders: list[Path] = []
    reasons: list[str] = []
    for path in argument.paths:
        try:
            folders += sorted(runs_below(path))
        except NoRunError as error:
            reasons.append(str(error))
    around = _around(argument, folders, suites)
    members = {path: member for suite in around for path, member in suite.members.items()}
    folders += _unlisted(argument, around, {folder.resolve() for folder in folders})
    if not folders:
        raise ComparisonError("; ".join(reasons))
    variants = _Variants(suite.record for suite in around)
    for folder in folders:
        member = members.get(folder.resolve())
        if member is not None:
            yield Found(variants.kind(member), folder, member)
        elif (not_counted := _judged(argument, folder, suites)) is not None:
            of = not_counted.member
            side = variants.kind(of) if of is not None else UNKNOWN_SIDE
            yield Found(side, folder, of, not_counted.why)
        else:
            yield Found(_algorithm(folder), folder)


def _around(
    argument: _Argument, folders: Sequence[Path], suites: SuiteFolders
) -> list[SuiteFolder]:
    """The suites that hold what the argument names, or what lies below it."""
    try:
        found = [suites.around(path) for path in (*argument.paths, *folders)]
    except SuiteRecordError as error:
        raise ComparisonError(str(error)) from error
    return list({suite.root: suite for suite in found if suite is not None}.values())


def _unlisted(
    argument: _Argument, around: Sequence[SuiteFolder], listed: AbstractSet[Path]
) -> Iterator[Path]:
    """Members without a directory, and hidden directories that members had before."""
    for suite in around:
        for path in suite.members:
            top = next((top for top in argument.paths if path.is_relative_to(top.resolve())), None)
            if top is not None and path not in listed:
                yield top / path.relative_to(top.resolve())
        for top in argument.paths:
            yield from suite.put_aside(top)


def _judged(argument: _Argument, folder: Path, suites: SuiteFolders) -> NotCounted | None:
    """Why a run does not count; one that is named itself always does."""
    suite = suites.around(folder)
    if suite is None or folder == Path(argument.text):
        return None
    return suite.judged(folder)


def _algorithm(folder: Path) -> str:
    try:
        opened = RunFolder.open(folder)
        content = opened.raw_summary or {}
    except (RunFolderError, SchemaError):
        return UNKNOWN_SIDE
    return str(content.get("algo", UNKNOWN_SIDE))


def _group(one: Found, keys: Sequence[str]) -> str:
    if one.not_counted is not None:
        return UNKNOWN_SIDE
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
