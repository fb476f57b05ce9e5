"""Descendants are found, ended and collected, whatever they did to hide."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from drivetrain_trainer.launcher import rank
from drivetrain_trainer.launcher.processes import descendants, parent_of

NEST = """
import os, subprocess, sys, time
from drivetrain_trainer.launcher import parent_death, processes
parent_death.adopt_orphans()
script = "import subprocess, time; subprocess.Popen(['sleep', '1000'], start_new_session=True)"
subprocess.Popen([sys.executable, "-c", script], start_new_session=True).wait()
found = processes.descendants(os.getpid())
names = [open(f"/proc/{pid}/comm").read().strip() for pid in found]
assert names == ["sleep"], names
processes.kill_descendants(10)
assert processes.descendants(os.getpid()) == []
try:
    os.waitpid(-1, os.WNOHANG)
except ChildProcessError:
    print("nothing left")
"""


def test_an_orphan_in_a_session_of_its_own_is_adopted_killed_and_collected() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", NEST], check=True, capture_output=True, text=True, timeout=60
    )
    assert ended.stdout == "nothing left\n"


def test_living_descendants_are_listed_and_zombies_are_not() -> None:
    script = "import subprocess, time; subprocess.Popen(['sleep', '1000']); time.sleep(1000)"
    child = subprocess.Popen([sys.executable, "-c", script], start_new_session=True)
    try:
        ends = time.monotonic() + 30
        while len(descendants(child.pid)) < 1 and time.monotonic() < ends:
            time.sleep(0.01)
        assert child.pid in descendants(os.getpid())
        assert parent_of(child.pid) == os.getpid()
    finally:
        os.killpg(child.pid, signal.SIGKILL)
    ends = time.monotonic() + 30
    while parent_of(child.pid) is not None and time.monotonic() < ends:
        time.sleep(0.01)
    assert Path(f"/proc/{child.pid}").exists()
    assert child.pid not in descendants(os.getpid())
    child.wait()
    assert parent_of(child.pid) is None


def test_a_name_with_brackets_and_blanks_does_not_confuse(tmp_path: Path) -> None:
    odd = tmp_path / ") R 1 ("
    odd.write_bytes(Path("/bin/sleep").resolve().read_bytes())
    odd.chmod(0o755)
    child = subprocess.Popen([odd, "1000"])
    try:
        assert parent_of(child.pid) == os.getpid()
    finally:
        child.kill()
        child.wait()


def test_exit_codes_are_collected() -> None:
    script = """
        import os, signal, time
        from drivetrain_trainer.launcher.processes import reap
        expected = {}
        for end in (0, 3, 75, -signal.SIGKILL, -signal.SIGSEGV):
            pid = os.fork()
            if pid == 0:
                os._exit(end) if end >= 0 else os.kill(os.getpid(), -end)
            expected[pid] = end
        found = {}
        while len(found) < len(expected):
            found |= reap()
            time.sleep(0.01)
        assert found == expected, (found, expected)
        assert reap() == {}
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True, timeout=60)


class TestRank:
    """`enter_rank`, in a process below a torchrun that is not one."""

    SCRIPT = """
        import os, subprocess, sys
        environment = {
            **os.environ, "RANK": "0", "DRIVETRAIN_SCRATCH": sys.argv[1],
            "DRIVETRAIN_LAUNCHER_PID": sys.argv[2].format(launcher=os.getppid()),
        }
        rank = (
            "import time; from drivetrain_trainer.launcher.rank import enter_rank;"
            "enter_rank(); time.sleep(1000)"
        )
        process = subprocess.Popen([sys.executable, "-c", rank], env=environment)
        print(process.pid, flush=True)
        sys.exit(process.wait())
    """

    def start(self, folder: Path, launcher: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(self.SCRIPT), str(folder), launcher],
            stdout=subprocess.PIPE,
            text=True,
        )

    def test_it_dies_with_torchrun_and_says_that_it_started(self, tmp_path: Path) -> None:
        torchrun = self.start(tmp_path, "{launcher}")
        assert torchrun.stdout is not None
        pid = int(torchrun.stdout.readline())
        ends = time.monotonic() + 30
        while not (tmp_path / "started-rank0").exists() and time.monotonic() < ends:
            time.sleep(0.01)
        assert (tmp_path / "started-rank0").exists()
        torchrun.kill()
        torchrun.communicate()
        while parent_of(pid) is not None and time.monotonic() < ends:
            time.sleep(0.01)
        assert parent_of(pid) is None

    def test_it_ends_at_once_where_torchrun_is_not_the_launchers(self, tmp_path: Path) -> None:
        torchrun = self.start(tmp_path, "1234567")
        torchrun.communicate(timeout=60)
        assert torchrun.returncode == 1
        assert list(tmp_path.iterdir()) == []

    def test_without_a_launcher_it_does_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(rank, "die_with_parent", pytest.fail)
        rank.enter_rank({})


def test_a_child_whose_parent_is_not_the_expected_one_ends() -> None:
    script = "from drivetrain_trainer.launcher.parent_death import die_with_parent as d; d(1234567)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 1
