from __future__ import annotations

import json
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from drivetrain_trainer.telemetry.backends.wandb_run import FILE, WandbRun


def test_a_run_directory_has_one_run_whoever_asks(tmp_path: Path) -> None:
    made = WandbRun.of(tmp_path, project="arms", entity=None)
    assert len(made.run_id) == 8
    assert WandbRun.of(tmp_path, project="arms", entity=None) == made
    assert WandbRun.find(tmp_path) == made
    assert json.loads((tmp_path / FILE).read_text()) == {
        "schema_version": 1,
        "run_id": made.run_id,
        "project": "arms",
        "entity": None,
        "url": None,
    }


@pytest.mark.parametrize(("project", "entity"), [("legs", None), ("arms", "lab")])
def test_another_project_or_entity_has_another_run(
    tmp_path: Path, project: str, entity: str | None
) -> None:
    made = WandbRun.of(tmp_path, project="arms", entity=None)
    moved = WandbRun.of(tmp_path, project=project, entity=entity)
    assert moved.run_id != made.run_id
    assert WandbRun.find(tmp_path) == moved


def test_its_page_is_kept(tmp_path: Path) -> None:
    known = WandbRun.of(tmp_path, project="arms", entity=None).at("https://w/r", tmp_path)
    assert WandbRun.of(tmp_path, project="arms", entity=None) == known
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


def test_a_directory_without_one_has_none(tmp_path: Path) -> None:
    assert WandbRun.find(tmp_path) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "torn {",
        "[]",
        "{}",
        '{"schema_version": 2, "run_id": "a", "project": "p"}',
        '{"schema_version": 1, "run_id": "../a", "project": "p"}',
        '{"schema_version": 1, "run_id": "", "project": "p"}',
        '{"schema_version": 1, "run_id": "a", "project": "p", "colour": 1}',
    ],
)
def test_a_file_that_cannot_be_taken_is_told_and_replaced(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    with capture_logs() as logs:
        made = WandbRun.of(tmp_path, project="arms", entity=None)
    assert logs[0]["path"] == str(tmp_path / FILE)
    assert WandbRun.find(tmp_path) == made


def test_a_file_that_cannot_be_written_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="No space left"):
        WandbRun.of(tmp_path, project="arms", entity=None)
    assert list(tmp_path.iterdir()) == []
