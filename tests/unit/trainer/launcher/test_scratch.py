"""Nothing of an earlier process is taken for news of this one."""

from __future__ import annotations

from pathlib import Path

import pytest

from drivetrain_api.errors import SpecError
from drivetrain_trainer.launcher.scratch import Scratch


def test_what_an_earlier_process_left_is_removed(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path / "scratch")
    scratch.prepare(range(2))
    for path in (scratch.outcome(0), scratch.started(1), scratch.progress):
        path.touch()
    scratch.torchrun.symlink_to(tmp_path)
    scratch.outcome(1).mkdir()
    (scratch.folder / "other").touch()
    scratch.prepare(range(2))
    assert [path.name for path in scratch.folder.iterdir()] == ["other"]
    assert tmp_path.exists()


@pytest.mark.parametrize("where", ["file", "file/below", "/proc/none"])
def test_one_that_cannot_be_written_is_refused_by_name(tmp_path: Path, where: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SpecError, match=r"DRIVETRAIN_SCRATCH: .* cannot be written: "):
        Scratch(tmp_path / where).prepare(range(1))
