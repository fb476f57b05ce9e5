"""Finding the run, reading processes and shared memory, keeping the console's words."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from drivetrain_trainer.cli.soak_console import Console
from drivetrain_trainer.soak.discovery import RunFinder
from drivetrain_trainer.soak.processes import TreeSampler, describe, read_process
from drivetrain_trainer.soak.shared_files import SharedFiles


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A process that holds three descriptors beyond its standard ones, and a thread."""
    code = (
        "import os, sys, threading, time; held = [os.open('/dev/null', 0) for _ in range(3)];"
        "threading.Thread(target=time.sleep, args=(60,), daemon=True).start();"
        "block = bytearray(b'x' * (32 << 20)); print('up', flush=True); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-S", "-c", code], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_process_is_read(child: subprocess.Popen[bytes]) -> None:
    found = read_process(child.pid)
    assert found is not None
    assert 32 << 20 < found.rss < 128 << 20
    assert found.pss is not None
    assert 32 << 20 < found.pss <= found.rss
    assert (found.fds, found.threads) == (6, 2)
    (told,) = describe([child.pid])
    assert told.pid == child.pid
    assert told.command.startswith(sys.executable)


def test_a_zombie_and_nobody_are_none(child: subprocess.Popen[bytes], tmp_path: Path) -> None:
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert read_process(child.pid) is None
    sampled = TreeSampler(lambda: [child.pid, 2**22 + 1], SharedFiles(tmp_path))()
    assert (sampled.processes, sampled.rss_bytes, sampled.fds) == (0, 0, 0)


def test_new_shared_files_count_and_what_nobody_holds_is_left(tmp_path: Path) -> None:
    (tmp_path / "before").write_bytes(b"x" * 65536)
    files = SharedFiles(tmp_path)
    assert (files.bytes(), files.left()) == (0, [])
    (tmp_path / "dropped").write_bytes(b"x" * 65536)
    with (tmp_path / "held").open("wb") as held:
        held.write(b"x" * 65536)
        held.flush()
        assert files.bytes() == 131072
        assert files.left() == [tmp_path / "dropped"]
    (tmp_path / "held").unlink()
    (tmp_path / "dropped").unlink()
    assert files.left() == []


def fresh(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "run_summary.json").write_text("{}")
    return folder


def test_the_run_is_where_its_processes_have_files_open(tmp_path: Path) -> None:
    ours, other = fresh(tmp_path / "a/ours"), fresh(tmp_path / "a/other")
    finder = RunFinder(None, tmp_path, lambda: [os.getpid()], since=time.time())
    assert finder() is None  # two of them, and no file open
    (ours / "traces").mkdir()
    with (ours / "traces" / "rank0.json").open("w"):
        assert finder() == ours
        with (other / "events").open("w"):
            assert finder() is None


def test_else_the_only_new_summary_below_the_working_directory_is_taken(tmp_path: Path) -> None:
    old = fresh(tmp_path / "logs/old")
    os.utime(old / "run_summary.json", (1000.0, 1000.0))
    finder = RunFinder(None, tmp_path, list, since=time.time())
    assert [finder() for _ in range(4)] == [None] * 4
    new = fresh(tmp_path / "logs/sac/ant/new")
    assert finder() == new
    fresh(tmp_path / "logs/sac/ant/newer")
    assert finder() is None


def test_a_given_directory_is_taken_once_it_is_there(tmp_path: Path) -> None:
    finder = RunFinder(tmp_path / "run", tmp_path, list, since=time.time())
    assert finder() is None
    (tmp_path / "run").mkdir()
    assert finder() == tmp_path / "run"


def test_the_consoles_newest_words_are_kept(tmp_path: Path) -> None:
    console = Console(tmp_path / "log", echo=False, limit=200_000)
    lines = b"".join(b"%07d\n" % number for number in range(100_000))
    console.follow(io.BufferedReader(io.BytesIO(lines)))  # type: ignore[arg-type]  # a raw stream of ours
    console.close()
    kept = (tmp_path / "log").read_bytes()
    assert 100_000 <= len(kept) <= 200_000 + 65536
    assert lines.endswith(kept)
    assert console.cut
    assert console.tail(8) == "0099999"


def test_a_short_console_is_kept_whole(tmp_path: Path) -> None:
    console = Console(tmp_path / "log", echo=False)
    console.follow(io.BufferedReader(io.BytesIO(b"hello\n")))  # type: ignore[arg-type]  # as above
    console.close()
    assert (console.cut, (tmp_path / "log").read_text()) == (False, "hello\n")
