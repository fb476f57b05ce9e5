"""The programs of a real Kubernetes, each of the one version that the tests are made for.

``python -m tests.support.kubernetes.programs control-plane`` gets them ahead of the tests, and
``… programs --help`` lists what else there is. A program is taken from ``KUBEBUILDER_ASSETS``,
``PATH`` or the cache; else downloaded; else built from its Go module, which the sums of the
module database verify. Either is done once a machine.
"""

from __future__ import annotations

import argparse
import fcntl
import mmap
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from tests.support.kubernetes.program_sources import build, download
from tests.support.kubernetes.program_table import (
    ASSETS_VARIABLE,
    CONTROL_PLANE,
    NODE,
    SETS,
    SOURCES,
    MissingProgramsError,
    Program,
    Report,
    Source,
    cache_folder,
)

__all__ = [
    "ASSETS_VARIABLE",
    "CONTROL_PLANE",
    "NODE",
    "MissingProgramsError",
    "Program",
    "cache_folder",
    "ensure",
    "find",
    "required",
]


# -- what is here ------------------------------------------------------------------------------


def find(program: Program) -> Path | None:
    """The program where it is here already, in the right version."""
    return next((path for path in _places(program) if is_right(program, path)), None)


def _places(program: Program) -> Iterator[Path]:
    assets = os.environ.get(ASSETS_VARIABLE)
    if assets:
        yield Path(assets) / program
    on_path = shutil.which(program)
    if on_path:
        yield Path(on_path)
    yield SOURCES[program].folder / program


@cache
def is_right(program: Program, path: Path) -> bool:
    """Whether the file is that program in the pinned version."""
    if not os.access(path, os.X_OK) or not path.is_file():
        return False
    return _is_built_from(SOURCES[program], path) or _tells(program, path)


def _is_built_from(source: Source, path: Path) -> bool:
    """Whether Go noted the module in the file."""
    noted = f"\t{source.module}\tv{source.version}\t".encode()
    with path.open("rb") as file:
        try:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                return content.find(noted) >= 0
        except ValueError:  # an empty file
            return False


def _tells(program: Program, path: Path) -> bool:
    """Whether the program, asked for its version, names the right one."""
    arguments = {
        Program.KUBECTL: ("version", "--client"),
        Program.HELM: ("version", "--short"),
        Program.COREDNS: ("-version",),
        Program.KIND: ("version",),
    }.get(program, ("--version",))
    try:
        told = subprocess.run(
            [path, *arguments], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return SOURCES[program].version in re.findall(r"\d+\.\d+\.\d+", told.stdout)


# -- what can be had ---------------------------------------------------------------------------


def to_stderr(line: str) -> None:
    """The usual `Report`."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def ensure(*wanted: Program, report: Report = to_stderr) -> dict[Program, Path]:
    """Path of each; what is not here is downloaded or built, which takes minutes once.

    Raises:
        MissingProgramsError: Some cannot be had.
    """
    found: dict[Program, Path] = {}
    missing: dict[Program, str] = {}
    for program in wanted:
        try:
            found[program] = find(program) or _obtain(program, report)
        except MissingProgramsError as error:
            missing[program] = str(error)
    if missing:
        names = ", ".join(f"{program} {SOURCES[program].version}" for program in missing)
        why = "; ".join(dict.fromkeys(missing.values()))
        raise MissingProgramsError(
            f"{names} not found in {ASSETS_VARIABLE}, PATH or {cache_folder()}: {why}"
        )
    return found


def _obtain(program: Program, report: Report) -> Path:
    source = SOURCES[program]
    source.folder.mkdir(parents=True, exist_ok=True)
    target = source.folder / program
    with _locked(target.with_suffix(".lock"), f"{program}: another process gets it", report):
        is_right.cache_clear()
        if is_right(program, target):  # another process was faster
            return target
        reasons = []
        for get in (download, build):
            try:
                get(program, target, report)
            except MissingProgramsError as error:
                reasons.append(str(error))
                continue
            is_right.cache_clear()
            if is_right(program, target):
                return target
            target.unlink()
            reasons.append(f"{get.__name__} gave another version")
        raise MissingProgramsError(" and ".join(reasons))


@contextmanager
def _locked(path: Path, waiting: str, report: Report) -> Iterator[None]:
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report(f"{waiting}; waiting")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main(arguments: Sequence[str] | None = None) -> int:
    """Get programs ahead; 1 where some cannot be had and ``CI`` is set, or they were asked for."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.support.kubernetes.programs", description=__doc__
    )
    choices = [*SETS, *Program]
    parser.add_argument(
        "names", nargs="+", choices=choices, metavar="NAME", help=", ".join(choices)
    )
    parser.add_argument(
        "--optional",
        action="store_true",
        help="succeed without them, unless the environment says CI=true",
    )
    options = parser.parse_args(arguments)
    wanted = [each for name in options.names for each in SETS.get(name, (name,))]
    try:
        found = ensure(*dict.fromkeys(Program(name) for name in wanted))
    except MissingProgramsError as error:
        to_stderr(f"cannot have {error}")
        return 0 if options.optional and not required() else 1
    if not options.optional:
        for program, path in found.items():
            sys.stdout.write(f"{program} {SOURCES[program].version} {path}\n")
    return 0


def required() -> bool:
    """Whether a missing program is a failure: in continuous integration it is."""
    return os.environ.get("CI") == "true"


if __name__ == "__main__":
    sys.exit(main())
