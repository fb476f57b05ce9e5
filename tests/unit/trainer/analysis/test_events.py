from __future__ import annotations

import math
import struct
import tracemalloc
from pathlib import Path

import pytest
from event_files import HEAD, record, report, restart, write_events
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs
from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import HistogramProto
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto

from drivetrain_trainer.analysis import records
from drivetrain_trainer.analysis.event_layout import layout_of
from drivetrain_trainer.analysis.events import EventFile, ScalarEvent, read_events

float32 = st.floats(width=32)
tags = st.sampled_from(["a", "b/c", "Loss/actor", "größe", "x" * 130])
events = st.lists(
    st.builds(
        report,
        st.integers(-(2**63), 2**63 - 1) | st.integers(0, 300),
        st.dictionaries(tags, float32, max_size=4),
        st.floats(0, 2e9),
    ),
    max_size=30,
)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("events") / "events.out.tfevents.1"


def by_tensorboard(path: Path) -> list[tuple[object, ...]]:
    return [
        (event.step, event.wall_time, value.tag, value.simple_value)
        for event in LegacyEventFileLoader(str(path)).Load()
        for value in event.summary.value
    ]


@given(events, st.sampled_from([100, 1000, 1 << 21]))
@settings(deadline=None)
def test_reads_what_tensorboard_reads_in_the_same_order(
    file: Path, written: list[Event], piece: int
) -> None:
    write_events(file, written)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records, "PIECE_BYTES", piece)
        ours = [tuple(event) for event in read_events(file)]
    assert repr(ours) == repr(by_tensorboard(file))  # repr: NaN is not itself


def test_a_scalar_of_every_form(file: Path) -> None:
    content = Event(wall_time=2.0, step=7)
    content.summary.value.add(tag="content").tensor.CopyFrom(
        TensorProto(dtype=1, tensor_content=struct.pack("<f", 1.5))
    )
    listed = Event(wall_time=2.0, step=8)
    listed.summary.value.add(tag="listed").tensor.CopyFrom(TensorProto(dtype=2, double_val=[0.1]))
    described = Event(wall_time=2.0, step=9)
    value = described.summary.value.add(tag="described", simple_value=3.0)
    value.metadata.plugin_data.plugin_name = "scalars"
    twice = Event(wall_time=2.0, step=10)
    twice.summary.value.add(tag="twice", simple_value=1.0)
    twice.summary.value.add(tag="twice", simple_value=2.0)
    write_events(file, [content, listed, described, twice])
    assert list(read_events(file)) == [
        ScalarEvent(7, 2.0, "content", 1.5),
        ScalarEvent(8, 2.0, "listed", 0.1),
        ScalarEvent(9, 2.0, "described", 3.0),
        ScalarEvent(10, 2.0, "twice", 1.0),
        ScalarEvent(10, 2.0, "twice", 2.0),
    ]


def test_values_that_are_no_scalars_are_counted(file: Path) -> None:
    mixed = report(1, {"Loss/actor": 2.0})
    mixed.summary.value.add(tag="histogram").histo.CopyFrom(HistogramProto(min=1.0))
    vector = TensorProto(dtype=1, float_val=[1.0, 2.0])
    vector.tensor_shape.CopyFrom(TensorShapeProto(dim=[TensorShapeProto.Dim(size=2)]))
    mixed.summary.value.add(tag="vector").tensor.CopyFrom(vector)
    mixed.summary.value.add(tag="text").tensor.CopyFrom(TensorProto(dtype=7, string_val=[b"hi"]))
    write_events(file, [mixed])
    read = EventFile(file)
    (piece,) = list(read)
    assert [block.tags for block in piece.blocks] == [("Loss/actor",)]
    assert read.passed_over == 3


def test_session_starts_are_told(file: Path) -> None:
    write_events(file, [report(5, {"a": 1.0}), restart(3), report(3, {"a": 2.0})])
    (piece,) = list(EventFile(file))
    assert [tuple(start) for start in piece.restarts] == [(2, 3)]


def test_a_sound_record_that_is_no_event_is_told(file: Path) -> None:
    file.write_bytes(record(HEAD.SerializeToString()) + record(b"\xff\xff\xff"))
    read = EventFile(file)
    list(read)
    assert read.damage == (f"{file}: record 1: no event: left out",)


def test_a_torn_end_is_warned_of(file: Path) -> None:
    write_events(file, [report(1, {"a": math.pi}), report(2, {"a": 1.0})])
    file.write_bytes(file.read_bytes()[:-3])
    with capture_logs() as logs:
        assert [event.step for event in read_events(file)] == [1]
    assert "unfinished" in logs[0]["reason"]


@given(st.binary(max_size=60))
@settings(deadline=None)
def test_a_shape_is_found_in_scalars_alone(payload: bytes) -> None:
    layout = layout_of(payload)
    if layout is not None:
        event = Event.FromString(payload)
        assert layout.tags == tuple(value.tag for value in event.summary.value)


def test_memory_does_not_grow_with_the_file(file: Path) -> None:
    one = b"".join(
        record(report(step, {f"tag/{n}": float(n) for n in range(40)}).SerializeToString())
        for step in range(200)
    )
    with file.open("wb") as stream:
        for _ in range(200):
            stream.write(one)
    size = file.stat().st_size
    assert size > 20 << 20
    tracemalloc.start()
    count = sum(sum(len(block.steps) for block in piece.blocks) for piece in EventFile(file))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 40_000
    assert peak < 16 << 20
