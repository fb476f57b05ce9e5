"""Warp, the kernel language of mjwarp: loaded quietly, writing to its kernel cache alone.

Kernels are compiled where they are first needed, for the device and for the model's shape:
half a minute to minutes on a first start. They are kept in a cache directory, from which a
later start loads them in seconds.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import stat
import sys
import tempfile
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from drivetrain_trainer.physics.port import PhysicsError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

CACHE_VARIABLE: Final = "WARP_CACHE_PATH"
"""Names the kernel cache; a folder of Warp's version is made in it."""

_PACKAGES: Final = ("warp", "mujoco_warp")
_logger = logging.getLogger(__name__)


class _QuietLogger:
    """Warp's messages as log records: compiled modules are nobody's news but a debugger's."""

    def debug(self, message: str) -> None:
        _logger.debug("Warp: %s", message)

    def info(self, message: str) -> None:
        _logger.debug("Warp: %s", message)

    def warning(
        self, message: str, category: type[Warning] | None = None, stacklevel: int = 1
    ) -> None:
        # A machine without a GPU is warned of on every start, and is none of a user's faults.
        del category, stacklevel
        _logger.info("Warp: %s", message)

    def error(self, message: str) -> None:
        _logger.error("Warp: %s", message)


def kernel_cache(environ: Mapping[str, str] | None = None) -> Path:
    """The directory of compiled kernels; it is there and can be written to.

    It is what ``WARP_CACHE_PATH`` names, else ``warp`` in the user's cache directory, else,
    where that cannot be written (a read-only root), a directory of the user's own among the
    temporary ones.

    Raises:
        PhysicsError: what ``WARP_CACHE_PATH`` names cannot be written, or nothing can.
    """
    environ = os.environ if environ is None else environ
    named = environ.get(CACHE_VARIABLE)
    if named:
        if not _usable(Path(named)):
            raise PhysicsError(f"{CACHE_VARIABLE} names {named!r}, which cannot be written")
        return Path(named)
    home = environ.get("HOME")
    base = environ.get("XDG_CACHE_HOME") or (f"{home}/.cache" if home else None)
    if base and _usable(Path(base) / "warp"):
        return Path(base) / "warp"
    # Code is loaded from it: one that somebody else could write to is not taken.
    own = Path(tempfile.gettempdir()) / f"drivetrain-warp-{os.getuid()}"
    if _usable(own) and _is_own(own):
        return own
    raise PhysicsError(
        f"no directory for compiled kernels: neither the user's cache nor {own} can be used; "
        f"name one by {CACHE_VARIABLE}"
    )


@cache
def load_warp() -> None:
    """Import and set up Warp, once in a process.

    Raises:
        PhysicsError: mujoco-warp or warp-lang is not installed, or has no place for kernels.
    """
    for package in _PACKAGES:
        if importlib.util.find_spec(package) is None:
            raise PhysicsError(
                f"sim mjwarp needs the packages mujoco-warp and warp-lang; {package} is not "
                "installed"
            )
    directory = kernel_cache()
    import warp as wp  # noqa: PLC0415 - after the check that it is there

    wp.set_logger(_QuietLogger())
    wp.config.kernel_cache_dir = str(directory)
    with _own_words_kept():
        wp.init()


@contextmanager
def _own_words_kept() -> Iterator[None]:
    """Keep what Warp's native half writes to standard error: that there is no GPU, on a CPU."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with tempfile.TemporaryFile() as words:
            os.dup2(words.fileno(), 2)
            try:
                yield
            finally:
                os.dup2(kept, 2)
            words.seek(0)
            for line in words.read().decode(errors="replace").splitlines():
                _logger.info("Warp: %s", line)
    finally:
        os.close(kept)


def drop_headers() -> None:
    """Delete the precompiled headers that compiling left in temporary directories.

    They make compiling four times as fast. Warp deletes them at an orderly exit of the
    interpreter alone, which a collector does not take.
    """
    from warp._src import context  # noqa: PLC0415 - loaded by now; no public way

    held = getattr(context.runtime, "_pch_dirs", {})
    for directory in list(held.values()):
        directory.cleanup()
    held.clear()


def _usable(directory: Path) -> bool:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return False
    return directory.is_dir() and os.access(directory, os.W_OK | os.X_OK)


def _is_own(directory: Path) -> bool:
    found = directory.lstat()
    others = stat.S_IWGRP | stat.S_IWOTH
    return (
        stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & others
    )
