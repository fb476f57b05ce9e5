"""The record on the disk: refusals that keep what is there, locks, and a disk that is full."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

import pytest

from drivetrain_api.artifacts.suite_record import MemberState, SuiteBackend, SuiteRecord
from drivetrain_operator.cli.refusal import Refusal
from drivetrain_operator.suite import record_file
from drivetrain_operator.suite.plan import outline
from drivetrain_operator.suite.record_file import RecordKeeper, held, load_record, set_aside
from drivetrain_operator.suite.standing import stand
from drivetrain_operator.suite.suite_file import SuiteFile


@pytest.fixture
def record(suite_file: Callable[..., SuiteFile]) -> SuiteRecord:
    file = suite_file(seeds=2)
    return stand(
        file,
        outline(file),
        None,
        {},
        backend=SuiteBackend.LOCAL,
        fresh=False,
        retry_failed=False,
        now=datetime(2026, 1, 1, tzinfo=UTC),
    ).record


def test_every_change_is_on_the_disk_at_once(record: SuiteRecord, folder: Path) -> None:
    keeper = RecordKeeper(folder / "root", record)
    keeper.save()
    assert load_record(folder / "root") == record
    assert keeper.set("swing-s1", MemberState.FAILED, "x" * 5000)
    assert not keeper.set("swing-s1", MemberState.FAILED, "x" * 5000), "no news"
    found = load_record(folder / "root")
    assert found is not None
    assert [str(m.state) for m in found.members] == ["pending", "failed"]
    assert found.members[1].reason == "x" * 1024


def test_a_full_disk_is_told_and_the_next_change_writes_all(
    record: SuiteRecord,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    keeper = RecordKeeper(folder, record)
    keeper.save()
    real = record_file.write_text_atomically

    def full(path: Path, text: str) -> NoReturn:
        del text
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(record_file, "write_text_atomically", full)
    with pytest.raises(OSError, match="No space left"):
        keeper.save()
    keeper.set("swing-s0", MemberState.COMPLETE)
    assert "suite.json cannot be written: No space left on device; going on" in (
        capsys.readouterr().err
    )
    assert load_record(folder) == record
    monkeypatch.setattr(record_file, "write_text_atomically", real)
    keeper.set("swing-s1", MemberState.RUNNING)
    found = load_record(folder)
    assert found is not None
    assert [str(m.state) for m in found.members] == ["complete", "running"]


@pytest.mark.parametrize("content", ["", "{", "[]", '{"schema_version": 2}', "\0"])
def test_what_is_no_record_is_refused_and_kept(folder: Path, content: str) -> None:
    (folder / "suite.json").write_text(content)
    with pytest.raises(Refusal, match=r"suite\.json: .*it was left as it is") as refused:
        load_record(folder)
    assert "--fresh" in refused.value.hint
    assert (folder / "suite.json").read_text() == content


def test_a_record_that_is_a_link_is_refused(folder: Path) -> None:
    (folder / "suite.json").symlink_to("/etc/hostname")
    with pytest.raises(Refusal, match="it was left as it is"):
        load_record(folder)


def test_one_command_at_a_time(folder: Path) -> None:
    with (
        held(folder),
        pytest.raises(Refusal, match=f"driven already by process {os.getpid()}"),
        held(folder),
    ):
        pass
    with held(folder):
        pass


def test_a_root_below_a_file_is_refused(folder: Path) -> None:
    (folder / "taken").touch()
    with pytest.raises(Refusal, match="cannot be written to"), held(folder / "taken" / "root"):
        pass


def test_what_is_set_aside_keeps_its_content_under_the_next_free_name(folder: Path) -> None:
    path = folder / "run_0_seed_1"
    assert set_aside(path) is None
    for number in (1, 2):
        path.mkdir()
        (path / "file").write_text(str(number))
        aside = set_aside(path)
        assert aside == folder / f".run_0_seed_1.replaced-{number}"
        assert (aside / "file").read_text() == str(number)
