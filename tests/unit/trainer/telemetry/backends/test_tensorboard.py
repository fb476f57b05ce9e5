from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

from drivetrain_trainer.telemetry.backends.tensorboard import TensorBoardBackend
from drivetrain_trainer.telemetry.record import Record

MakeRecord = Callable[..., Record]


def write(directory: Path, records: list[Record], start: int = 0, attempt: int = 1) -> None:
    backend = TensorBoardBackend(directory, start_env_steps=start, attempt=attempt)
    backend.open()
    for record in records:
        backend.write(record)
    backend.close()


def series(directory: Path, tag: str) -> list[tuple[int, float]]:
    events = EventAccumulator(str(directory)).Reload()
    return [(event.step, event.value) for event in events.Scalars(tag)]


def test_tensorboard_reads_every_value_at_its_env_step(
    tmp_path: Path, make_record: MakeRecord
) -> None:
    write(tmp_path, [make_record(64, Loss__actor=1.5), make_record(128, Loss__actor=-2.0)])
    assert series(tmp_path, "Loss/actor") == [(64, 1.5), (128, -2.0)]


def test_values_that_are_not_finite_stay_what_they_are(
    tmp_path: Path, make_record: MakeRecord
) -> None:
    write(tmp_path, [make_record(1, Loss__actor=math.nan), make_record(2, Loss__actor=math.inf)])
    (_, first), (_, second) = series(tmp_path, "Loss/actor")
    assert math.isnan(first)
    assert second == math.inf


def test_a_resumed_run_replaces_what_came_after_its_checkpoint(
    tmp_path: Path, make_record: MakeRecord
) -> None:
    write(tmp_path, [make_record(step, Loss__actor=1.0) for step in (100, 200, 300)])
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    write(tmp_path, [make_record(step, Loss__actor=2.0) for step in (250, 350)], start=200)
    assert series(tmp_path, "Loss/actor") == [(100, 1.0), (200, 1.0), (250, 2.0), (350, 2.0)]
    assert len(list(tmp_path.iterdir())) == 2
    assert all(path.read_bytes() == content for path, content in before.items())


def test_a_truncated_file_reads_up_to_the_last_whole_record(
    tmp_path: Path, make_record: MakeRecord
) -> None:
    write(tmp_path, [make_record(step, Loss__actor=1.0) for step in (1, 2, 3)])
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-7])
    assert [event.step for event in EventFileLoader(str(path)).Load()] == [0, 1, 2]


def test_a_flushed_record_is_readable_before_the_file_is_closed(
    tmp_path: Path, make_record: MakeRecord
) -> None:
    backend = TensorBoardBackend(tmp_path)
    backend.open()
    backend.write(make_record(64, Loss__actor=1.5))
    backend.flush()
    assert series(tmp_path, "Loss/actor") == [(64, 1.5)]
    backend.close()


def test_use_before_open_is_refused(tmp_path: Path, make_record: MakeRecord) -> None:
    with pytest.raises(RuntimeError, match="before open"):
        TensorBoardBackend(tmp_path).write(make_record())


def test_an_attempt_that_begins_anew_voids_all_that_came_before(
    tmp_path: Path, make_record: MakeRecord
) -> None:
    write(tmp_path, [make_record(step, Loss__actor=1.0) for step in (10, 20, 30)])
    write(tmp_path, [make_record(10, Loss__actor=2.0)], attempt=2)
    assert series(tmp_path, "Loss/actor") == [(10, 2.0)]
