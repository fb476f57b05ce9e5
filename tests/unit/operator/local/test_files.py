from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest

from drivetrain_operator.local.files import read_json, read_tail, write_atomic, write_json

if TYPE_CHECKING:
    from pathlib import Path


def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "folder/file.json"
    write_json(path, {"a": 1})

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_atomic(path, "half")
    assert read_json(path) == {"a": 1}
    assert [p.name for p in path.parent.iterdir()] == ["file.json"]


def test_what_is_no_json_is_never_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "x", {"a": math.nan})
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(("text", "words"), [("{", "not JSON"), ("[]", "holds a list")])
def test_a_broken_file_is_named(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(ValueError, match=rf"x.json: {words}"):
        read_json(tmp_path / "x.json")


def test_a_missing_file_reads_as_nothing(tmp_path: Path) -> None:
    assert read_json(tmp_path / "none") is None
    assert read_tail(tmp_path / "none", 10) == ""


def test_a_tail_is_the_end(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"0123456789")
    assert read_tail(tmp_path / "x", 4) == "6789"
    assert read_tail(tmp_path / "x", 40) == "0123456789"
    (tmp_path / "x").write_bytes("ä".encode() * 3)
    assert read_tail(tmp_path / "x", 3) == "\N{REPLACEMENT CHARACTER}ä"
