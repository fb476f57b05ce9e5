"""Where a run writes, and that no two runs ever write to the same place."""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any, ClassVar

import pytest

from drivetrain_api.attempt import AttemptSpec
from drivetrain_api.errors import SpecError
from drivetrain_trainer.evidence.fence import FencedError
from drivetrain_trainer.evidence.run_directory import (
    Location,
    RunDirectory,
    artifact_directory,
    check_writable,
    find_run_directory,
    uri_of,
)

MakeAttempt = Callable[..., AttemptSpec]
DATED = "2026-03-09_18-30-00_mujoco"


@pytest.mark.parametrize(
    ("training", "expected"),
    [
        ({}, f"logs/sac/half_cheetah/{DATED}"),
        ({"log_root": "mine"}, f"mine/{DATED}"),
        ({"log_dir": "here/it/is"}, "here/it/is"),
    ],
)
def test_lies_below_the_storage_root(
    make_attempt: MakeAttempt, tmp_path: Path, training: Any, expected: Any
) -> None:
    claimed = RunDirectory.claim(make_attempt(training=training), tmp_path)
    assert claimed.path == tmp_path / expected
    assert claimed.path.is_dir()
    assert not claimed.resumed
    claimed.fence.check()
    assert claimed.run_summary == claimed.path / "run_summary.json"
    assert claimed.run_config == claimed.path / "run_config.json"
    assert claimed.checkpoints == claimed.path / "checkpoints"


def test_members_of_a_suite_share_the_folder_above_their_run_directories(
    make_attempt: MakeAttempt, tmp_path: Path
) -> None:
    member = {"suite": "seeds", "run_idx": 0, "invocation": "first"}
    spec = make_attempt(experiment=member, training={"log_dir": "suite/run_0"}).spec
    assert artifact_directory(spec, tmp_path / "suite/run_0") == tmp_path / "suite"
    assert artifact_directory(make_attempt().spec, tmp_path / "run") == tmp_path / "run"


def test_absolute_settings_leave_the_storage_root(
    make_attempt: MakeAttempt, tmp_path: Path
) -> None:
    storage, elsewhere = tmp_path / "storage", tmp_path / "elsewhere"
    claimed = RunDirectory.claim(make_attempt(training={"log_root": str(elsewhere)}), storage)
    assert claimed.path == elsewhere / DATED
    assert uri_of(claimed.path, storage) == str(elsewhere / DATED)


@pytest.mark.parametrize(
    "created",
    [
        datetime(2026, 3, 9, 18, 30, tzinfo=UTC),
        datetime(2026, 3, 9, 20, 30, tzinfo=timezone(timedelta(hours=2))),
        datetime(2026, 3, 9, 18, 30),  # noqa: DTZ001 - a naive time is the case
    ],
)
def test_is_named_by_the_creation_time_in_utc(
    make_attempt: MakeAttempt, tmp_path: Path, created: Any
) -> None:
    assert Location.of(make_attempt().spec, created, tmp_path).path.name == DATED


def test_a_later_attempt_goes_on_in_the_same_directory_and_fences_the_earlier(
    make_attempt: MakeAttempt, tmp_path: Path
) -> None:
    first = RunDirectory.claim(make_attempt(1), tmp_path)
    (first.path / "checkpoints").mkdir()
    second = RunDirectory.claim(make_attempt(2), tmp_path)
    assert (second.path, second.resumed) == (first.path, True)
    second.fence.check()
    with pytest.raises(FencedError):
        first.fence.check()
    with pytest.raises(FencedError):
        RunDirectory.claim(make_attempt(1), tmp_path)


def test_another_rank_joins_unless_a_newer_attempt_has_it(
    make_attempt: MakeAttempt, tmp_path: Path
) -> None:
    claimed = RunDirectory.claim(make_attempt(1), tmp_path)
    RunDirectory.join(claimed.path, 1).fence.check()
    RunDirectory.claim(make_attempt(2), tmp_path)
    with pytest.raises(FencedError):
        RunDirectory.join(claimed.path, 1)


def test_runs_of_the_same_second_take_suffixes_and_find_them_again(
    make_attempt: MakeAttempt, tmp_path: Path
) -> None:
    paths = [RunDirectory.claim(make_attempt(uid=f"uid-{n}"), tmp_path).path.name for n in range(3)]
    assert paths == [DATED, f"{DATED}-2", f"{DATED}-3"]
    again = RunDirectory.claim(make_attempt(2, uid="uid-1"), tmp_path)
    assert (again.path.name, again.resumed) == (f"{DATED}-2", True)


def test_a_run_finds_its_suffixed_directory_after_the_first_was_deleted(
    make_attempt: MakeAttempt, tmp_path: Path
) -> None:
    first = RunDirectory.claim(make_attempt(uid="uid-0"), tmp_path)
    second = RunDirectory.claim(make_attempt(uid="uid-1"), tmp_path)
    shutil.rmtree(first.path)
    assert RunDirectory.claim(make_attempt(2, uid="uid-1"), tmp_path).path == second.path


def test_claims_at_the_same_time_never_share(make_attempt: MakeAttempt, tmp_path: Path) -> None:
    def claim(number: int) -> Path:
        return RunDirectory.claim(make_attempt(uid=f"uid-{number}"), tmp_path).path

    with ThreadPoolExecutor(12) as pool:
        assert len(set(pool.map(claim, range(24)))) == 24


@pytest.mark.parametrize("content", [None, "", "{", '{"uid": 3}', "\x00" * 5000])
def test_a_directory_that_no_run_owns_is_left_alone(
    make_attempt: MakeAttempt, tmp_path: Path, content: Any
) -> None:
    squatter = tmp_path / "logs/sac/half_cheetah" / DATED
    squatter.mkdir(parents=True)
    (squatter / "precious.txt").write_text("x")
    if content is not None:
        (squatter / ".drivetrain").mkdir()
        (squatter / ".drivetrain/owner.json").write_text(content)
    assert RunDirectory.claim(make_attempt(), tmp_path).path.name == f"{DATED}-2"
    assert (squatter / "precious.txt").read_text() == "x"


def test_a_claim_that_was_killed_before_it_named_its_owner_is_taken_over(
    make_attempt: MakeAttempt, tmp_path: Path
) -> None:
    (tmp_path / "logs/sac/half_cheetah" / DATED / ".drivetrain").mkdir(parents=True)
    assert RunDirectory.claim(make_attempt(), tmp_path).path.name == DATED


class TestFixedDirectory:
    training: ClassVar = {"log_dir": "mine"}

    def test_an_empty_one_is_taken_and_found_again(
        self, make_attempt: MakeAttempt, tmp_path: Path
    ) -> None:
        (tmp_path / "mine").mkdir()
        assert not RunDirectory.claim(make_attempt(training=self.training), tmp_path).resumed
        assert RunDirectory.claim(make_attempt(2, training=self.training), tmp_path).resumed

    @pytest.mark.parametrize("call", [RunDirectory.claim, check_writable])
    def test_another_runs_is_refused_by_name(
        self, make_attempt: MakeAttempt, tmp_path: Path, call: Any
    ) -> None:
        RunDirectory.claim(make_attempt(uid="theirs", training=self.training), tmp_path)
        with pytest.raises(SpecError) as caught:
            call(make_attempt(uid="ours", training=self.training), tmp_path)
        (violation,) = caught.value.violations
        assert violation.path == "training.log_dir"
        assert "belongs to the run default/cheetah (uid theirs)" in violation.message
        assert str(tmp_path / "mine") in violation.message

    @pytest.mark.parametrize("call", [RunDirectory.claim, check_writable])
    def test_a_persons_files_are_refused(
        self, make_attempt: MakeAttempt, tmp_path: Path, call: Any
    ) -> None:
        (tmp_path / "mine").mkdir()
        (tmp_path / "mine/thesis.tex").touch()
        with pytest.raises(SpecError, match="is not empty and belongs to no run"):
            call(make_attempt(training=self.training), tmp_path)


@pytest.mark.parametrize("call", [RunDirectory.claim, check_writable])
@pytest.mark.parametrize(
    ("training", "setting"),
    [
        ({"log_root": "file/below"}, "training.log_root"),
        ({"log_dir": "file/below"}, "training.log_dir"),
        ({"log_root": "/proc/nothing"}, "training.log_root"),
    ],
)
def test_what_cannot_be_written_names_path_and_setting(
    make_attempt: MakeAttempt, tmp_path: Path, call: Any, training: Any, setting: Any
) -> None:
    (tmp_path / "file").touch()
    attempt = make_attempt(training=training)
    with pytest.raises(SpecError) as caught:
        call(attempt, tmp_path)
    (violation,) = caught.value.violations
    assert violation.path == setting
    assert "cannot write the run directory" in violation.message
    assert str(tmp_path) in violation.message


@pytest.mark.parametrize("call", [RunDirectory.claim, check_writable])
def test_a_nul_character_is_named(make_attempt: MakeAttempt, tmp_path: Path, call: Any) -> None:
    with pytest.raises(SpecError, match=r"training\.log_dir: .* NUL"):
        call(make_attempt(training={"log_dir": "a\0b"}), tmp_path)


def test_a_read_only_file_system_is_named(
    make_attempt: MakeAttempt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_only(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr("tempfile.TemporaryFile", read_only)
    with pytest.raises(SpecError, match="Read-only file system"):
        check_writable(make_attempt(), tmp_path)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_no_refusal_for_good(
    make_attempt: MakeAttempt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("tempfile.TemporaryFile", full)
    monkeypatch.setattr("os.mkdir", full)
    for call in (check_writable, RunDirectory.claim):
        with pytest.raises(OSError, match=re.escape(os.strerror(code))) as caught:
            call(make_attempt(), tmp_path)
        assert caught.value.errno == code
        assert str(tmp_path) in str(caught.value)


def test_the_check_leaves_nothing_behind(make_attempt: MakeAttempt, tmp_path: Path) -> None:
    check_writable(make_attempt(), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_finding_creates_nothing(make_attempt: MakeAttempt, tmp_path: Path) -> None:
    assert find_run_directory(make_attempt(), tmp_path) is None
    assert list(tmp_path.iterdir()) == []
    claimed = RunDirectory.claim(make_attempt(), tmp_path)
    assert find_run_directory(make_attempt(5), tmp_path) == claimed.path
    assert find_run_directory(make_attempt(uid="other"), tmp_path) is None


def test_uri_is_relative_below_the_storage_root(tmp_path: Path) -> None:
    assert uri_of(tmp_path / "a" / "b", tmp_path) == "a/b"
