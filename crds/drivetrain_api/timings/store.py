"""The two files of an artifact directory: read, added to, and never half written.

Each file has its own advisory lock (a hidden file beside it, which stays) and is replaced
atomically once its new content is on the disk. Both are read and judged before either is
written, and the description of the hardware is on the disk before a record names it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from drivetrain_api.artifacts.base import ArtifactError
from drivetrain_api.atomic import UnreadableFileError, read_bounded, write_text_atomically
from drivetrain_api.timings import rules
from drivetrain_api.timings.model import HARDWARE, TIMINGS, HardwareSidecar, Timings

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from pathlib import Path

    from drivetrain_api.timings.hardware import HardwareRecord
    from drivetrain_api.timings.model import StageRun

LOCK_PATIENCE_SECONDS: Final = 60.0
"""How long a writer waits for another one before it says so."""
_SIZE_LIMIT: Final = 64 << 20
_POLL_SECONDS: Final = 0.002

_File = TypeVar("_File", Timings, HardwareSidecar)


class TimingsError(Exception):
    """A file that cannot be read or written, and was left as it was; the reason is in it."""

    def __init__(self, path: Path, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path}: {reason}")


@dataclass(frozen=True)
class LoadedTimings:
    """Both files of a directory; empty where there is none yet."""

    timings: Timings
    hardware: HardwareSidecar


class TimingsDirectory:
    """The artifact directory of one algorithm and its two files."""

    def __init__(self, path: Path, *, lock_patience: float = LOCK_PATIENCE_SECONDS) -> None:
        """Touches nothing.

        Args:
            path: The directory; only files directly in it are ever read. The first record
                makes it where it is missing.
            lock_patience: Seconds to wait for another writer.
        """
        self.path = path
        self._patience = lock_patience

    @property
    def timings_path(self) -> Path:
        """Where the records are."""
        return self.path / TIMINGS

    @property
    def hardware_path(self) -> Path:
        """Where the descriptions are."""
        return self.path / HARDWARE

    def load(self) -> LoadedTimings:
        """Both files as they are now; safe while others write.

        Raises:
            TimingsError: one of them is torn, something else, of a later version or unreadable.
        """
        # In this order: descriptions are written first and never taken away.
        timings = _read(self.timings_path, Timings)
        return LoadedTimings(timings, _read(self.hardware_path, HardwareSidecar))

    def record(self, stage: str, run: StageRun, hardware: HardwareRecord | None = None) -> None:
        """Add a record by the replacement rules; it is on the disk when this returns.

        Args:
            stage: Name of the stage.
            run: The record; its `hardware_id` becomes that of `hardware`, where that is given.
            hardware: What the timed process could see.

        Raises:
            TimingsError: a file is refused (and kept), locked for too long, or cannot be
                written: no space, no permission, read-only.
            ValueError: the stage has no usable name, or the run names hardware that is neither
                given nor described already.
        """
        with self._locked(TIMINGS) as timings_path:
            timings = _read(timings_path, Timings)
            if hardware is not None:
                run = run.model_copy(update={"hardware_id": hardware.hardware_id})
            after = rules.recorded(timings, stage, run)
            _check_writable(timings_path)
            if hardware is not None:
                self._describe(hardware)
            elif run.hardware_id is not None:
                self._check_described(run.hardware_id)
            _write(timings_path, after)

    def retain(self, completed: Collection[int], invocation: str | None = None) -> None:
        """Keep the records of validated completed runs alone; see `rules.retained`.

        To be called once, before the first of the remaining runs starts.

        Args:
            completed: Indices of those runs.
            invocation: The one that is resumed.

        Raises:
            TimingsError: as `record`.
        """
        self._keep(lambda before: rules.retained(before, completed, invocation))

    def forget(
        self, run_idx: int, invocation: str | None, stages: Collection[str] | None = None
    ) -> None:
        """Drop what a run is about to do again; see `rules.forgotten`.

        Args:
            run_idx: Index of the run.
            invocation: The one that it belongs to.
            stages: What it does again; None where it starts from scratch.

        Raises:
            TimingsError: as `record`.
        """
        self._keep(lambda before: rules.forgotten(before, run_idx, invocation, stages))

    def _keep(self, rule: Callable[[Timings], Timings]) -> None:
        if not self.timings_path.exists():
            return
        with self._locked(TIMINGS) as path:
            before = _read(path, Timings)
            after = rule(before)
            if after != before:
                _check_writable(path)
                _write(path, after)

    def _describe(self, hardware: HardwareRecord) -> None:
        with self._locked(HARDWARE) as path:
            known = _read(path, HardwareSidecar)
            if hardware.hardware_id in known.hardware:
                return
            _check_writable(path)
            records = {**known.hardware, hardware.hardware_id: hardware}
            _write(path, known.model_copy(update={"hardware": records}))

    def _check_described(self, hardware_id: str) -> None:
        if hardware_id not in _read(self.hardware_path, HardwareSidecar).hardware:
            raise ValueError(f"{self.hardware_path} does not describe {hardware_id!r}")

    @contextmanager
    def _locked(self, name: str) -> Iterator[Path]:
        """Hold the advisory lock of a file; always timings before hardware."""
        path = self.path / name
        with ExitStack() as stack:
            try:
                self.path.mkdir(parents=True, exist_ok=True)
                flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
                descriptor = os.open(self.path / f".{name}.lock", flags, 0o644)
                stack.callback(os.close, descriptor)
                self._wait(descriptor)
            except OSError as error:
                raise TimingsError(path, f"cannot lock it: {error.strerror}") from error
            _remove_left_behind(path)
            yield path

    def _wait(self, descriptor: int) -> None:
        # The kernel's own wait has no limit, and a stopped process must not stop all others.
        deadline = time.monotonic() + self._patience
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    words = f"another process has held the lock for {self._patience:g} seconds"
                    raise OSError(errno.EAGAIN, words) from None
                time.sleep(_POLL_SECONDS)
            else:
                return


def _read(path: Path, kind: type[_File]) -> _File:
    try:
        return kind.from_json(read_bounded(path, _SIZE_LIMIT))
    except FileNotFoundError:
        return kind()
    except UnreadableFileError as error:
        raise TimingsError(path, str(error).removeprefix(f"{path}: ")) from error
    except ArtifactError as error:
        raise TimingsError(path, f"{error}; it was left as it is") from error


def _write(path: Path, content: Timings | HardwareSidecar) -> None:
    try:
        write_text_atomically(path, content.to_json())
    except OSError as error:
        raise TimingsError(path, f"cannot write it: {error.strerror}") from error


def _check_writable(path: Path) -> None:
    """A file that its owner made read-only is not replaced, though its folder would allow it."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise TimingsError(path, f"cannot write it: {error.strerror}") from error
    writable = mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH)
    if not writable or not os.access(path, os.W_OK):
        raise TimingsError(path, "is read-only; it was left as it is")


def _remove_left_behind(path: Path) -> None:
    """Drafts of writers that were killed; whoever holds the lock is the only writer."""
    for draft in path.parent.glob(f".{path.name}.*.tmp"):
        with suppress(OSError):  # such as somebody else's, in a folder with the sticky bit
            draft.unlink()
