"""Whoever holds the greatest token may write; nobody else."""

from __future__ import annotations

import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain_trainer.evidence.fence import Fence, FencedError


def fence(folder: Path, attempt: int) -> Fence:
    return Fence(folder / ".private" / "attempts", attempt)


def test_an_older_attempt_is_refused_once_a_newer_one_has_claimed(tmp_path: Path) -> None:
    first, second = fence(tmp_path, 1), fence(tmp_path, 2)
    first.take()
    first.check()
    second.take()
    second.check()
    with pytest.raises(FencedError, match=r"attempt 2 owns this run directory, so attempt 1 may"):
        first.check()
    with pytest.raises(FencedError, match="attempt 1 may not write"):
        first.take()
    second.check()


def test_an_attempt_may_take_its_own_directory_again(tmp_path: Path) -> None:
    fence(tmp_path, 3).take()
    fence(tmp_path, 3).take()
    fence(tmp_path, 3).check()


def test_numbers_are_compared_as_numbers(tmp_path: Path) -> None:
    fence(tmp_path, 9).take()
    fence(tmp_path, 10).take()
    with pytest.raises(FencedError):
        fence(tmp_path, 9).check()


def test_a_directory_that_is_gone_may_not_be_written(tmp_path: Path) -> None:
    mine = fence(tmp_path / "run", 1)
    with pytest.raises(FencedError, match="token of attempt 1 is gone"):
        mine.check()
    mine.take()
    shutil.rmtree(tmp_path / "run")
    with pytest.raises(FencedError, match="token of attempt 1 is gone"):
        mine.check()


def test_foreign_files_among_the_tokens_are_ignored(tmp_path: Path) -> None:
    mine = fence(tmp_path, 1)
    mine.take()
    (mine.folder / "notes.txt").touch()
    (mine.folder / "-7").touch()
    mine.check()


@given(order=st.permutations(range(1, 9)))
def test_whatever_the_order_of_claims_only_the_greatest_may_write(order: list[int]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        holders = []
        for attempt in order:
            mine = fence(Path(folder), attempt)
            try:
                mine.take()
            except FencedError:
                continue
            holders.append(attempt)
        assert holders[-1] == 8
        for attempt in holders[:-1]:
            with pytest.raises(FencedError):
                fence(Path(folder), attempt).check()
        fence(Path(folder), 8).check()


def test_claims_at_the_same_time_cannot_lower_the_token(tmp_path: Path) -> None:
    def take(attempt: int) -> bool:
        try:
            fence(tmp_path, attempt).take()
        except FencedError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        taken = list(pool.map(take, range(1, 40)))
    assert taken[-1]
    fence(tmp_path, 39).check()
    with pytest.raises(FencedError):
        fence(tmp_path, 38).check()
