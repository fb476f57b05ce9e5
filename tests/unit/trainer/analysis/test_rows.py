from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import pytest
from event_files import event_path, report, restart, write_events
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.proto.event_pb2 import Event

from drivetrain_trainer.analysis import records
from drivetrain_trainer.analysis.events import EventFile
from drivetrain_trainer.analysis.rows import Column, FileChangedError, Recording, SourceFile

TAGS = ("a", "b", "c")
COLUMNS = [Column(tag, tag, 1.0) for tag in TAGS]

steps = st.integers(0, 12)
reports = st.builds(
    report,
    steps,
    st.dictionaries(st.sampled_from(TAGS), st.floats(0, 9, width=32), min_size=1),
    st.floats(0, 100),
)
files = st.lists(st.lists(reports | st.builds(restart, steps), max_size=12), max_size=4)

Table = dict[int, tuple[float, dict[str, float]]]
"""Step -> wall time and the values there."""


def recording_of(folder: Path, written: Sequence[Sequence[Event]]) -> Recording:
    paths = [
        write_events(event_path(folder, number), events) for number, events in enumerate(written)
    ]
    return Recording([SourceFile(p, lambda path, size: EventFile(path, limit=size)) for p in paths])


def read(recording: Recording, columns: Sequence[Column] = COLUMNS) -> Table:
    table: Table = {}
    for rows in recording.rows(recording.survey(), columns):
        assert list(rows.steps) == sorted(set(rows.steps))
        assert not table or min(rows.steps) > max(table)
        for n, step in enumerate(rows.steps.tolist()):
            values = {
                column.tag: float(rows.values[m, n])
                for m, column in enumerate(columns)
                if rows.present[m, n]
            }
            assert all(
                math.isnan(rows.values[m, n]) for m in range(len(columns)) if not rows.present[m, n]
            )
            table[step] = (float(rows.wall_times[n]), values)
    return table


def one_by_one(written: Sequence[Sequence[Event]]) -> Table:
    """What the rules say, event by event."""
    table: Table = {}
    for event in (event for events in written for event in events):
        if event.HasField("session_log"):
            table = {step: row for step, row in table.items() if step < event.step}
            continue
        _, values = table.setdefault(event.step, (0.0, {}))
        values.update({value.tag: value.simple_value for value in event.summary.value})
        table[event.step] = (event.wall_time, values)
    return table


@given(files, st.sampled_from([60, 200, 1 << 21]))
@settings(deadline=None, max_examples=200)
def test_rows_are_those_of_the_rules_whatever_the_pieces(
    tmp_path_factory: pytest.TempPathFactory, written: list[list[Event]], piece: int
) -> None:
    folder = tmp_path_factory.mktemp("rows")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records, "PIECE_BYTES", piece)
        assert read(recording_of(folder, written)) == one_by_one(written)


ATTEMPTS = [
    [report(step, {"a": float(step)}) for step in range(10, 60, 10)],
    [restart(31), *(report(step, {"a": 100.0 + step}) for step in range(40, 80, 10))],
    [restart(51), report(60, {"a": 260.0})],
]


def test_a_restart_voids_what_tensorboard_drops(tmp_path: Path) -> None:
    recording = recording_of(tmp_path, ATTEMPTS)
    ours = {step: values["a"] for step, (_, values) in read(recording).items()}
    assert ours == {10: 10.0, 20: 20.0, 30: 30.0, 40: 140.0, 50: 150.0, 60: 260.0}
    accumulator = EventAccumulator(str(tmp_path), size_guidance={"scalars": 0})
    accumulator.Reload()
    assert ours == {event.step: event.value for event in accumulator.Scalars("a")}


def test_of_two_values_for_a_step_the_newest_counts(tmp_path: Path) -> None:
    recording = recording_of(
        tmp_path,
        [
            [report(1, {"a": 1.0, "b": 1.0}, 10.0), report(1, {"a": 2.0}, 11.0)],
            [report(1, {"c": 3.0, "a": 4.0}, 12.0), report(2, {"a": math.nan}, 13.0)],
        ],
    )
    table = read(recording)
    assert table[1] == (12.0, {"a": 4.0, "b": 1.0, "c": 3.0})
    assert math.isnan(table[2][1]["a"])


def test_unwanted_tags_make_no_rows_and_factors_apply(tmp_path: Path) -> None:
    recording = recording_of(tmp_path, [[report(1, {"a": 1500.0}), report(2, {"b": 1.0})]])
    assert read(recording, [Column("a", "seconds", 1e-3)]) == {
        1: (pytest.approx(1_700_000_001.0), {"seconds": 1.5})
    }


def test_ordered_runs_are_emitted_as_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "PIECE_BYTES", 1000)
    recording = recording_of(
        tmp_path,
        [
            [report(step, {"a": 1.0}) for step in range(500)],
            [restart(400), *(report(step, {"a": 2.0}) for step in range(400, 900))],
        ],
    )
    chunks = [len(rows.steps) for rows in recording.rows(recording.survey(), COLUMNS)]
    assert sum(chunks) == 900
    assert max(chunks) < 150


def test_progress_counts_each_byte_twice(tmp_path: Path) -> None:
    told: list[int] = []
    paths = [write_events(event_path(tmp_path, n), events) for n, events in enumerate(ATTEMPTS)]
    files = [SourceFile(p, lambda path, size: EventFile(path, limit=size)) for p in paths]
    recording = Recording(files, progress=told.append)
    list(recording.rows(recording.survey(), COLUMNS))
    assert sum(told) == 2 * sum(path.stat().st_size for path in paths)


def test_what_a_live_run_appends_between_the_passes_is_left_for_later(tmp_path: Path) -> None:
    path = event_path(tmp_path)
    recording = Recording([SourceFile(path, lambda p, size: EventFile(p, limit=size))])
    write_events(path, [report(1, {"a": 1.0})])
    survey = recording.survey()
    write_events(path, [report(1, {"a": 1.0}), report(2, {"a": 2.0})])
    (rows,) = recording.rows(survey, COLUMNS)
    assert rows.steps.tolist() == [1]


def test_a_file_that_became_another_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = event_path(tmp_path)
    recording = Recording([SourceFile(path, lambda p, size: EventFile(p, limit=size))])
    write_events(path, [report(step, {"a": 1.0}) for step in range(50)])
    survey = recording.survey()
    monkeypatch.setattr(records, "PIECE_BYTES", 100)
    with pytest.raises(FileChangedError, match="try again"):
        list(recording.rows(survey, COLUMNS))


def test_an_empty_run_has_no_rows(tmp_path: Path) -> None:
    assert read(recording_of(tmp_path, [[]])) == {}
