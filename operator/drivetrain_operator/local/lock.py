"""One executor a run: an advisory lock that the kernel drops with its holder."""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Self, TextIO

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType


@dataclass(frozen=True)
class Holder:
    """Who drives a run."""

    pid: int
    since: str
    command: str

    def __str__(self) -> str:
        return f"process {self.pid} since {self.since} ({self.command})"


class RunLockedError(RuntimeError):
    """Another executor drives the run."""

    def __init__(self, name: str, holder: Holder | None) -> None:
        self.holder = holder
        who = f"by {holder}" if holder else "by another process"
        super().__init__(f"run {name!r} is driven already {who}")


class RunLock:
    """Held while an executor drives a run; processes that it starts do not inherit it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: TextIO | None = None

    def acquire(self) -> None:
        """Take the lock.

        Raises:
            RunLockedError: naming the holder.
        """
        self._path.parent.mkdir(parents=True, exist_ok=True)
        file = self._path.open("a+", encoding="utf-8")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise RunLockedError(self._path.stem, holder_of(self._path)) from None
        file.truncate(0)
        since = datetime.now(UTC).isoformat(timespec="seconds")
        json.dump({"pid": os.getpid(), "since": since, "command": shlex.join(sys.argv)}, file)
        file.flush()
        self._file = file

    def release(self) -> None:
        """Let it go; the file stays, so that two processes never lock two different ones."""
        if self._file is not None:
            self._file.truncate(0)
            self._file.close()
            self._file = None

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


def holder_of(path: Path) -> Holder | None:
    """Who holds the lock at `path`; None where nobody does, or does not say so yet."""
    try:
        with path.open("r+", encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return _written(file)
    except OSError:
        pass
    return None


def _written(file: TextIO) -> Holder | None:
    try:
        content = json.load(file)
        return Holder(int(content["pid"]), str(content["since"]), str(content["command"]))
    except (ValueError, KeyError, TypeError):
        return None
