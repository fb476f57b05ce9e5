from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from drivetrain_operator.local.lock import RunLock, RunLockedError, holder_of

HOLD = """
import sys, time
from pathlib import Path
from drivetrain_operator.local.lock import RunLock
with RunLock(Path(sys.argv[1])):
    print("", flush=True)
    time.sleep(60)
"""


def test_a_second_holder_is_told_of_the_first(tmp_path: Path) -> None:
    path = tmp_path / "locks/cheetah.lock"
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    holder.stdout.readline()
    with pytest.raises(
        RunLockedError, match=rf"'cheetah' is driven already by process {holder.pid} since 20.* \("
    ):
        RunLock(path).acquire()
    found = holder_of(path)
    assert found is not None
    assert found.pid == holder.pid
    holder.kill()
    holder.communicate()
    # The kernel dropped it with its holder.
    assert holder_of(path) is None
    with RunLock(path):
        pass


def test_a_released_lock_names_nobody(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    with RunLock(path):
        found = holder_of(path)
        assert found is not None
        assert found.pid == os.getpid()
    assert holder_of(path) is None
    assert path.read_text() == ""


def test_nobody_holds_what_is_not_there(tmp_path: Path) -> None:
    assert holder_of(tmp_path / "none.lock") is None


def test_children_do_not_inherit_the_lock(tmp_path: Path) -> None:
    lock = RunLock(tmp_path / "x.lock")
    with lock:
        child = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE)
    with RunLock(tmp_path / "x.lock"):
        child.communicate(b"\n")
