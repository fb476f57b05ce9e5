"""Entry points are scanned once, again where the search path changes, and by each process."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoints
from pathlib import Path

import pytest

from drivetrain_api import installed as module
from drivetrain_api.installed import installed

GROUP = "drivetrain.tests-of-installed"
ASK = f"from drivetrain_api.installed import installed; print(*installed({GROUP!r}))"


def install(folder: Path, name: str) -> None:
    """A distribution with one entry point of the group."""
    package = folder / f"{name}-1.0.dist-info"
    package.mkdir(parents=True)
    (package / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text(f"[{GROUP}]\n{name} = no_such_module:{name}\n")


def names() -> list[str]:
    return [point.name for point in installed(GROUP)]


def test_asking_again_scans_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    scans: list[str] = []

    def counted(group: str) -> EntryPoints:
        scans.append(group)
        return EntryPoints()

    monkeypatch.setattr(module, "entry_points", counted)
    monkeypatch.syspath_prepend(str(tmp_path))  # a path that no other test has asked for
    for group in ("a", "b", "a"):
        assert installed(group) == ()
    assert scans == ["a", "b"]


def test_another_search_path_is_scanned_and_the_old_one_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "a", "one")
    install(tmp_path / "b", "two")
    assert names() == []
    with monkeypatch.context() as inner:
        inner.syspath_prepend(str(tmp_path / "a"))
        assert names() == ["one"]
        inner.syspath_prepend(str(tmp_path / "b"))
        assert names() == ["two", "one"], "the first of the path comes first"
    assert names() == []


def test_the_next_process_sees_what_was_installed_since(tmp_path: Path) -> None:
    def asked() -> str:
        command = [sys.executable, "-c", ASK]
        done = subprocess.run(
            command,
            cwd=tmp_path,  # -c puts it first on the search path
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    install(tmp_path, "one")
    assert "name='one'" in asked()
    install(tmp_path, "two")
    assert "name='two'" in asked()
