"""Whole records or none, whatever the disk does."""

from __future__ import annotations

import errno
import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from drivetrain_trainer.telemetry.backends.append_file import AppendFile


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """No file of this process grows beyond `size` bytes: the kernel writes a part, then fails."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_record_that_does_not_fit_leaves_nothing_and_later_ones_follow(tmp_path: Path) -> None:
    path = tmp_path / "file"
    file = AppendFile.create(path)
    file.append(b"first\n")
    with room_for(10), pytest.raises(OSError, match="too large") as caught:
        file.append(b"second, too long\n")
    assert caught.value.errno == errno.EFBIG
    assert path.read_bytes() == b"first\n"
    file.append(b"third\n")
    file.close()
    assert path.read_bytes() == b"first\nthird\n"


def test_a_write_that_the_system_takes_in_parts_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:3]))
    file = AppendFile.create(tmp_path / "file")
    file.append(b"a whole record")
    assert (tmp_path / "file").read_bytes() == b"a whole record"
    file.close()


def test_a_full_disk_that_cannot_even_be_tidied_tells_the_first_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> int:
        raise OSError(errno.ENOSPC, "no space left on device")

    file = AppendFile.create(tmp_path / "file")
    monkeypatch.setattr(os, "write", fail)
    monkeypatch.setattr(os, "ftruncate", fail)
    with pytest.raises(OSError, match="no space left"):
        file.append(b"x")
    file.close()


def test_what_was_appended_survives_the_process(tmp_path: Path) -> None:
    path = tmp_path / "file"
    script = (
        "import os, pathlib, signal\n"
        "from drivetrain_trainer.telemetry.backends.append_file import AppendFile\n"
        f"AppendFile.create(pathlib.Path({json.dumps(str(path))})).append(b'kept')\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], check=False, timeout=60)
    assert ended.returncode == -9
    assert path.read_bytes() == b"kept"


def test_a_new_file_never_takes_anothers_place(tmp_path: Path) -> None:
    path = tmp_path / "file"
    AppendFile.create(path).close()
    with pytest.raises(FileExistsError):
        AppendFile.create(path)
    again = AppendFile.extend(path)
    assert again.last_byte() == b""
    again.append(b"end")
    assert again.last_byte() == b"d"
    again.close()
    again.close()
    with pytest.raises(ValueError, match="closed"):
        again.append(b"x")
