"""Files are complete or absent; readers survive what others left there."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from drivetrain_api import atomic
from drivetrain_api.atomic import (
    UnreadableFileError,
    read_bounded,
    write_bytes_atomically,
    write_text_atomically,
)


@pytest.mark.parametrize("durable", [True, False])
def test_replaces_the_content_and_leaves_nothing_beside_it(tmp_path: Path, durable: bool) -> None:
    target = tmp_path / "summary.json"
    write_text_atomically(target, "old", durable=durable)
    write_text_atomically(target, "new é", durable=durable)
    assert target.read_text(encoding="utf-8") == "new é"
    assert [entry.name for entry in tmp_path.iterdir()] == ["summary.json"]


def test_durable_flushes_the_file_before_it_takes_the_name_and_the_folder_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "file"
    seen: list[tuple[bool, bool]] = []
    real = os.fsync

    def spy(descriptor: int) -> None:
        is_folder = Path(f"/proc/self/fd/{descriptor}").is_dir()
        seen.append((is_folder, target.exists()))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", spy)
    write_text_atomically(target, "x")
    assert seen == [(False, False), (True, True)]


@pytest.mark.parametrize("call", ["fsync", "write"])
def test_a_full_disk_keeps_the_old_file_and_names_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    target = tmp_path / "file"
    write_text_atomically(target, "old")

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if call == "fsync":
        monkeypatch.setattr(os, "fsync", full)
    else:
        monkeypatch.setattr(atomic, "_write_new", full)
    with pytest.raises(OSError, match="No space left on device") as caught:
        write_text_atomically(target, "new")
    assert caught.value.errno == errno.ENOSPC
    assert caught.value.filename == str(target)
    assert target.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_a_file_size_limit_in_mid_write_keeps_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_text("old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            write_bytes_atomically(target, b"x" * 1_000_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    assert target.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("moment", ["before_replace", "after_replace"])
def test_a_kill_leaves_the_old_content_or_the_new(tmp_path: Path, moment: str) -> None:
    target = tmp_path / "file"
    target.write_text("old")
    script = textwrap.dedent(
        f"""
        import os, pathlib, signal
        from drivetrain_api import atomic
        real = pathlib.Path.replace
        def replace(self, target):
            if {moment == "after_replace"}:
                real(self, target)
            os.kill(os.getpid(), signal.SIGKILL)
        pathlib.Path.replace = replace
        atomic.write_text_atomically(pathlib.Path({str(target)!r}), "new")
        """
    )
    ended = subprocess.run([sys.executable, "-c", script], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert target.read_text() == ("old" if moment == "before_replace" else "new")


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="absent/file"):
        write_text_atomically(tmp_path / "absent" / "file", "x")


def test_reads_up_to_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert read_bounded(path, 5) == b"12345"
    with pytest.raises(UnreadableFileError, match="larger than 4 bytes"):
        read_bounded(path, 4)


def test_a_pipe_a_link_a_folder_and_a_device_are_refused_without_blocking(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "secret").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "link", "folder"):
        with pytest.raises(UnreadableFileError, match=name):
            read_bounded(tmp_path / name, 100)
    with pytest.raises(UnreadableFileError, match="not a regular file"):
        read_bounded(Path("/dev/zero"), 100)
    with pytest.raises(FileNotFoundError):
        read_bounded(tmp_path / "absent", 100)
