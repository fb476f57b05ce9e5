"""Files that are complete or absent, and readers that hostile files cannot hurt."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


class UnreadableFileError(Exception):
    """A file that is there but cannot be taken: too large, or not a regular file."""


def write_text_atomically(path: Path, text: str, *, durable: bool = True) -> None:
    """Replace `path` with UTF-8 `text`; see `write_bytes_atomically`."""
    write_bytes_atomically(path, text.encode(), durable=durable)


def write_bytes_atomically(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Replace `path` so that a reader finds the old content or the new, never a part.

    The content goes to a hidden file beside it, which takes the name when it is complete.
    On failure the old file stays and the hidden one is removed.

    Args:
        path: The file; its folder exists.
        data: The new content.
        durable: Flush file and folder to the disk, so that a power cut cannot undo it.
            Without it a killed process still leaves a complete file.

    Raises:
        OSError: naming `path`, such as ENOSPC on a full disk.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        _write_new(temporary, data, durable=durable)
        temporary.replace(path)
        if durable:
            fsync_folder(path.parent)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise _naming(error, path) from error


def fsync_file(path: Path) -> None:
    """Flush a file's content to the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def fsync_folder(path: Path) -> None:
    """Flush a folder's entries to the disk; file systems that cannot are left alone."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def read_bounded(path: Path, limit: int) -> bytes:
    """The content of a small regular file that somebody else may have written.

    Never blocks on a pipe, never follows a link, never takes more than `limit` bytes.

    Raises:
        FileNotFoundError: nothing is there.
        UnreadableFileError: it is larger than `limit` bytes, no regular file, or unreadable.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW
    try:
        descriptor = os.open(path, flags)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UnreadableFileError(f"{path}: {error.strerror}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UnreadableFileError(f"{path}: not a regular file")
    with os.fdopen(descriptor, "rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise UnreadableFileError(f"{path}: larger than {limit} bytes")
    return data


def _write_new(path: Path, data: bytes, *, durable: bool) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o644), "wb") as file:
        file.write(data)
        file.flush()
        if durable:
            os.fsync(file.fileno())


def _naming(error: OSError, path: Path) -> OSError:
    number = error.errno if error.errno is not None else errno.EIO
    return OSError(number, error.strerror or str(error), str(path))
