"""The two files on a disk: durable, never half written, and refused rather than mended."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from drivetrain_api.timings import store
from drivetrain_api.timings.hardware import CpuFacts, HardwareRecord
from drivetrain_api.timings.model import StageRun
from drivetrain_api.timings.store import TimingsDirectory, TimingsError

HERE = HardwareRecord(cpu=CpuFacts(logical_threads=2))
THERE = HardwareRecord(cpu=CpuFacts(logical_threads=64))


def run(seconds: float = 1.0, run_idx: int | None = None) -> StageRun:
    return StageRun(seconds=seconds, run_idx=run_idx)


def files(path: Path) -> dict[str, bytes]:
    """What a person sees: all but the locks."""
    return {
        entry.name: entry.read_bytes()
        for entry in path.iterdir()
        if not entry.name.endswith(".lock")
    }


def test_nothing_yet_is_empty_and_stays_nothing(tmp_path: Path) -> None:
    loaded = TimingsDirectory(tmp_path).load()
    assert loaded.timings.root == {}
    assert loaded.hardware.hardware == {}
    assert list(tmp_path.iterdir()) == []


def test_a_record_and_the_hardware_that_it_names(tmp_path: Path) -> None:
    directory = TimingsDirectory(tmp_path / "exports/ant/sac")
    directory.record("sac_train", run(1.5, 0), HERE)
    directory.record("sac_train", run(2.5, 1), THERE)
    directory.record("sac_train", run(3.5, 2), HERE)
    loaded = directory.load()
    assert [found.hardware_id for found in loaded.timings.root["sac_train"].runs] == [
        HERE.hardware_id,
        THERE.hardware_id,
        HERE.hardware_id,
    ]
    assert loaded.hardware.hardware == {HERE.hardware_id: HERE, THERE.hardware_id: THERE}
    assert sorted(files(directory.path)) == ["timings.json", "timings_hardware.json"]


def test_a_person_can_read_both(tmp_path: Path) -> None:
    TimingsDirectory(tmp_path).record("évaluation", run(), HERE)
    for name, content in files(tmp_path).items():
        lines = content.decode().splitlines()
        assert lines[0] == "{", name
        assert any(line.startswith("    ") for line in lines), name
    assert "évaluation" in (tmp_path / "timings.json").read_text(encoding="utf-8")


def test_only_the_canonical_place_is_read(tmp_path: Path) -> None:
    home = TimingsDirectory(tmp_path / "ant/sac")
    home.path.mkdir(parents=True)
    for place in ("ant", "ant/sac/run_0_seed_1", "ant/appo", "ant/sac/timings", "sac"):
        TimingsDirectory(tmp_path / place).record("sac_train", run(), HERE)
    text = (tmp_path / "ant/timings.json").read_text()
    for name in ("timings.json.bak", "Timings.json", "timings.json~", ".timings.json", "old.json"):
        (home.path / name).write_text(text)
    assert home.load().timings.root == {}
    assert home.load().hardware.hardware == {}


def test_algorithms_of_one_suite_never_share_records(tmp_path: Path) -> None:
    sac, appo = (TimingsDirectory(tmp_path / name) for name in ("sac/ant", "appo/ant"))
    sac.record("sac_train", run(1, 0), HERE)
    appo.record("appo_train", run(2, 0), HERE)
    assert list(sac.load().timings.root) == ["sac_train"]
    assert list(appo.load().timings.root) == ["appo_train"]


def test_retain_keeps_the_completed_runs_and_every_description(tmp_path: Path) -> None:
    directory = TimingsDirectory(tmp_path)
    for index, hardware in enumerate((HERE, THERE, THERE)):
        directory.record("sac_train", run(1, index), hardware)
    directory.retain({0})
    loaded = directory.load()
    assert [found.run_idx for found in loaded.timings.root["sac_train"].runs] == [0]
    assert set(loaded.hardware.hardware) == {HERE.hardware_id, THERE.hardware_id}
    directory.retain(set())
    assert directory.load().timings.root == {}


def test_retain_without_a_file_makes_none(tmp_path: Path) -> None:
    TimingsDirectory(tmp_path / "absent").retain({0})
    assert list(tmp_path.iterdir()) == []


VALID = '{"sac_train": {"total_seconds": 1.0, "runs": [{"seconds": 1.0, "run_idx": 0}]}}'
VALID_HARDWARE = '{"schema_version": 1, "hardware": {}}'


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("timings.json", VALID[:40], "torn, or no JSON"),
        ("timings.json", "", "torn, or no JSON"),
        ("timings.json", '{"algo": "sac", "task": "ant"}', "not a Timings: algo"),
        ("timings.json", "[1, 2]", "a JSON list"),
        ("timings.json", '{"schema_version": 2, "stages": {}}', "schema_version"),
        ("timings_hardware.json", VALID_HARDWARE[:20], "torn, or no JSON"),
        ("timings_hardware.json", VALID, "needs schema_version and hardware"),
        ("timings_hardware.json", '{"schema_version": 2, "hardware": {}}', "is newer than 1"),
    ],
)
def test_torn_foreign_and_newer_files_are_refused_with_the_reason_and_kept(
    tmp_path: Path, name: str, content: str, reason: str
) -> None:
    (tmp_path / "timings.json").write_text(VALID)
    (tmp_path / "timings_hardware.json").write_text(VALID_HARDWARE)
    (tmp_path / name).write_text(content)
    before = files(tmp_path)
    directory = TimingsDirectory(tmp_path)
    tries: list[Callable[[], object]] = [
        directory.load,
        lambda: directory.record("sac_train", run(2, 1), HERE),
    ]
    if name == "timings.json":
        tries.append(lambda: directory.retain({0}))
    for attempt in tries:
        with pytest.raises(TimingsError, match=name) as caught:
            attempt()
        assert reason in caught.value.reason
        assert "left as it is" in caught.value.reason
        assert caught.value.path == tmp_path / name
        assert files(tmp_path) == before


@pytest.mark.parametrize("name", ["timings.json", "timings_hardware.json"])
def test_a_read_only_file_is_refused_and_kept(tmp_path: Path, name: str) -> None:
    directory = TimingsDirectory(tmp_path)
    directory.record("sac_train", run(1, 0), HERE)
    (tmp_path / name).chmod(0o444)
    before = files(tmp_path)
    with pytest.raises(TimingsError, match=f"{name}: is read-only"):
        directory.record("sac_train", run(2, 1), THERE)
    assert files(tmp_path) == before
    assert directory.load().timings.root["sac_train"].total_seconds == 1.0


def test_a_read_only_file_is_not_cut_by_retain(tmp_path: Path) -> None:
    directory = TimingsDirectory(tmp_path)
    directory.record("sac_train", run(1, 0), HERE)
    (tmp_path / "timings.json").chmod(0o444)
    with pytest.raises(TimingsError, match="is read-only"):
        directory.retain(set())
    assert "sac_train" in directory.load().timings.root


def test_a_read_only_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> int:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(TimingsError, match=r"timings\.json: cannot lock it: Read-only file system"):
        TimingsDirectory(tmp_path).record("sac_train", run(), HERE)
    assert files(tmp_path) == {}


def test_a_link_a_folder_and_a_huge_file_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere.json").write_text(VALID)
    directory = TimingsDirectory(tmp_path)
    directory.timings_path.symlink_to(tmp_path / "elsewhere.json")
    with pytest.raises(TimingsError, match=r"timings\.json"):
        directory.record("sac_train", run(), HERE)
    assert (tmp_path / "elsewhere.json").read_text() == VALID
    directory.timings_path.unlink()
    directory.timings_path.mkdir()
    with pytest.raises(TimingsError, match="not a regular file"):
        directory.load()
    directory.timings_path.rmdir()
    directory.timings_path.write_text(VALID)
    monkeypatch.setattr(store, "_SIZE_LIMIT", 10)
    with pytest.raises(TimingsError, match="larger than 10 bytes"):
        directory.load()


@pytest.mark.parametrize("full_at", [1, 3])
def test_a_full_disk_keeps_what_was_there_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full_at: int
) -> None:
    """The first flush is the hardware file's, the third that of timings (each has two)."""
    directory = TimingsDirectory(tmp_path)
    directory.record("sac_train", run(1, 0), HERE)
    before, calls, real = files(tmp_path), 0, os.fsync

    def fills_up(descriptor: int) -> None:
        nonlocal calls
        calls += 1
        if calls == full_at:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fills_up)
    with pytest.raises(TimingsError, match="cannot write it: No space left on device"):
        directory.record("sac_train", run(2, 1), THERE)
    after = files(tmp_path)
    assert after["timings.json"] == before["timings.json"]
    assert set(after) == set(before), "a draft was left behind"
    json.loads(after["timings_hardware.json"])
    directory.record("sac_train", run(2, 1), THERE)
    assert directory.load().timings.root["sac_train"].total_seconds == 3.0


def test_a_stage_without_a_usable_name_is_an_error_of_the_caller(tmp_path: Path) -> None:
    for stage in ("", "two\nlines", "x" * 254):
        with pytest.raises(ValueError, match=r"string"):
            TimingsDirectory(tmp_path).record(stage, run(), HERE)
    assert files(tmp_path) == {}


def test_a_writer_waits_for_another_and_says_when_that_takes_too_long(tmp_path: Path) -> None:
    held = os.open(tmp_path / ".timings.json.lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(held, fcntl.LOCK_EX)
    impatient = TimingsDirectory(tmp_path, lock_patience=0.05)
    with pytest.raises(TimingsError, match=r"another process has held the lock for 0\.05 seconds"):
        impatient.record("sac_train", run(), HERE)
    writer = threading.Thread(
        target=TimingsDirectory(tmp_path).record, args=("sac_train", run(), HERE)
    )
    writer.start()
    assert not (tmp_path / "timings.json").exists()
    os.close(held)
    writer.join(60)
    assert TimingsDirectory(tmp_path).load().timings.root["sac_train"].total_seconds == 1.0


def test_a_record_never_names_hardware_that_is_not_on_the_disk(tmp_path: Path) -> None:
    directory = TimingsDirectory(tmp_path)
    named = StageRun(seconds=1.0, hardware_id=HERE.hardware_id)
    with pytest.raises(ValueError, match=f"does not describe '{HERE.hardware_id}'"):
        directory.record("sac_train", named)
    assert files(tmp_path) == {}
    directory.record("checkpoint_save", run(), HERE)
    directory.record("sac_train", named)
    assert set(directory.load().timings.root) == {"checkpoint_save", "sac_train"}


def test_a_file_system_without_locks_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(TimingsError, match="cannot lock it: No locks available"):
        TimingsDirectory(tmp_path).record("sac_train", run(), HERE)
    assert files(tmp_path) == {}


def test_each_file_has_its_own_lock(tmp_path: Path) -> None:
    """Retaining touches no hardware, so a lock on that file does not hold it up."""
    directory = TimingsDirectory(tmp_path, lock_patience=0.05)
    directory.record("sac_train", run(1, 0), HERE)
    held = os.open(tmp_path / ".timings_hardware.json.lock", os.O_RDWR)
    fcntl.flock(held, fcntl.LOCK_EX)
    directory.retain(set())
    with pytest.raises(TimingsError, match=r"timings_hardware\.json: cannot lock"):
        directory.record("sac_train", run(1, 0), HERE)
    os.close(held)


def test_the_content_is_on_the_disk_before_it_takes_the_name_and_hardware_goes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    flush, replace = os.fsync, Path.replace

    def fsync(descriptor: int) -> None:
        target = Path(f"/proc/self/fd/{descriptor}").readlink()
        steps.append("flush folder" if target == tmp_path else f"flush {target.name.split('.')[1]}")
        flush(descriptor)

    def renamed(self: Path, target: Path) -> Path:
        steps.append(f"replace {target.stem}")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "replace", renamed)
    TimingsDirectory(tmp_path).record("sac_train", run(), HERE)
    assert steps == [
        "flush timings_hardware",
        "replace timings_hardware",
        "flush folder",
        "flush timings",
        "replace timings",
        "flush folder",
    ]
