"""Where kernels are kept, and that Warp stays quiet."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from drivetrain_trainer.physics import warp_runtime
from drivetrain_trainer.physics.port import PhysicsError
from drivetrain_trainer.physics.warp_runtime import kernel_cache, load_warp


def test_the_named_cache_wins_and_is_made(tmp_path: Path) -> None:
    named = tmp_path / "a" / "b"
    found = kernel_cache({"WARP_CACHE_PATH": str(named), "HOME": str(tmp_path)})
    assert found == named
    assert named.is_dir()


def test_the_users_cache_is_next(tmp_path: Path) -> None:
    assert kernel_cache({"HOME": str(tmp_path)}) == tmp_path / ".cache" / "warp"
    both = {"HOME": "/nowhere", "XDG_CACHE_HOME": str(tmp_path / "x")}
    assert kernel_cache(both) == tmp_path / "x" / "warp"


def test_a_named_cache_that_cannot_be_written_is_refused_by_name() -> None:
    with pytest.raises(PhysicsError, match="WARP_CACHE_PATH names '/proc/kernels'"):
        kernel_cache({"WARP_CACHE_PATH": "/proc/kernels"})


@pytest.mark.parametrize("environ", [{}, {"HOME": "/proc"}])
def test_a_read_only_home_leaves_an_own_temporary_directory(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warp_runtime.tempfile, "gettempdir", lambda: str(tmp_path))
    found = kernel_cache(environ)
    assert found == tmp_path / f"drivetrain-warp-{os.getuid()}"
    assert found.stat().st_mode & 0o777 == 0o700


def test_a_directory_that_others_can_write_to_is_not_loaded_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warp_runtime.tempfile, "gettempdir", lambda: str(tmp_path))
    planted = tmp_path / f"drivetrain-warp-{os.getuid()}"
    planted.mkdir()
    planted.chmod(0o777)
    with pytest.raises(PhysicsError, match="no directory for compiled kernels"):
        kernel_cache({})


def test_an_absent_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    load_warp.cache_clear()
    monkeypatch.setattr(warp_runtime, "_PACKAGES", ("warp", "no_such_mujoco_warp"))
    with pytest.raises(PhysicsError, match="no_such_mujoco_warp is not installed"):
        load_warp()


def test_loading_it_warns_of_nothing_prints_nothing_and_writes_nowhere_else(
    tmp_path: Path,
) -> None:
    home, cache = tmp_path / "home", tmp_path / "cache"
    home.mkdir()
    home.chmod(0o500)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", "import drivetrain_trainer.physics.mjwarp_backend"],
        env={**os.environ, "HOME": str(home), "WARP_CACHE_PATH": str(cache)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=tmp_path,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", "home"]
    assert not list(home.iterdir())
