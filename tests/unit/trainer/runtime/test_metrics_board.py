from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from drivetrain_trainer.runtime.child_process import ChildProcess
from drivetrain_trainer.runtime.descriptors import Channel
from drivetrain_trainer.runtime.faults import StaleTickError
from drivetrain_trainer.runtime.metrics_board import (
    MAX_NAMES,
    MAX_STATE_BYTES,
    NAME_BYTES,
    MetricsBoard,
)


def sides() -> tuple[MetricsBoard, MetricsBoard]:
    """The writer's board, and the reader's as it comes through a channel."""
    writer = MetricsBoard.create()
    first, second = Channel.pair()
    with first, second:
        first.send(writer)
        reader: MetricsBoard = second.receive()
    return writer, reader


def test_a_report_is_read_once_and_whole() -> None:
    writer, reader = sides()
    assert reader.read() is None
    writer.publish(7, {"Perf/x": 1.5, "reward/höhe": -2.0})
    report = reader.read()
    assert report is not None
    assert (report.tick, dict(report.values)) == (7, {"Perf/x": 1.5, "reward/höhe": -2.0})
    assert reader.read() is None


def test_the_newest_report_wins() -> None:
    writer, reader = sides()
    for tick in range(3):
        writer.publish(tick, {"x": float(tick)})
    report = reader.read()
    assert report is not None
    assert (report.tick, report.values["x"]) == (2, 2.0)


def test_names_that_were_agreed_need_no_value_and_others_may_come() -> None:
    writer, reader = sides()
    writer.agree(["a", "b"])
    writer.publish(0, {"b": 1.0})
    report = reader.read()
    assert report is not None
    assert dict(report.values) == {"b": 1.0}
    assert list(reader.names) == ["a", "b"]
    writer.publish(1, {"late": 2.0, "a": 3.0})
    report = reader.read()
    assert report is not None
    assert dict(report.values) == {"a": 3.0, "late": 2.0}
    assert list(reader.names) == ["a", "b", "late"]


def test_values_that_are_no_number_are_reported_as_they_are() -> None:
    writer, reader = sides()
    writer.publish(0, {"nan": math.nan, "inf": -math.inf})
    report = reader.read()
    assert report is not None
    assert math.isnan(report.values["nan"])
    assert report.values["inf"] == -math.inf


@given(
    reports=st.lists(
        st.dictionaries(st.text(min_size=1, max_size=20), st.floats(allow_nan=False), max_size=8),
        max_size=10,
    )
)
def test_any_reports_come_back(reports: list[dict[str, float]]) -> None:
    writer, reader = sides()
    for tick, values in enumerate(reports):
        writer.publish(tick, values)
        report = reader.read()
        assert report is not None
        assert (report.tick, dict(report.values)) == (tick, values)


def test_names_beyond_the_board_are_refused() -> None:
    writer, _ = sides()
    writer.agree([f"name/{index}" for index in range(MAX_NAMES)])
    writer.agree(["name/0"])
    with pytest.raises(ValueError, match="'one/more': the board holds 512 names"):
        writer.publish(0, {"one/more": 1.0})


@pytest.mark.parametrize("name", ["", "x" * (NAME_BYTES + 1)])
def test_a_name_that_does_not_fit_is_refused(name: str) -> None:
    writer, _ = sides()
    with pytest.raises(ValueError, match="bytes, 1 to 120"):
        writer.agree([name])


@pytest.mark.parametrize("size", [5056, 16], ids=["of a CPU", "of CUDA"])
def test_a_generators_state_comes_back_bit_for_bit(size: int) -> None:
    writer, reader = sides()
    assert reader.read_snapshot() is None
    state = torch.Generator().manual_seed(1).get_state()[:size]
    writer.write_snapshot(5, state)
    for _ in range(2):
        snapshot = reader.read_snapshot()
        assert snapshot is not None
        assert snapshot.tick == 5
        assert torch.equal(snapshot.state, state)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (torch.zeros(8), "vector of uint8 on the CPU"),
        (torch.zeros(2, 4, dtype=torch.uint8), "vector of uint8 on the CPU"),
        (torch.zeros(MAX_STATE_BYTES + 1, dtype=torch.uint8), "of 16385 bytes, at most 16384"),
    ],
)
def test_what_is_no_generator_state_is_refused(state: torch.Tensor, message: str) -> None:
    writer, reader = sides()
    with pytest.raises(ValueError, match=message):
        writer.write_snapshot(0, state)
    assert reader.read_snapshot() is None


def test_a_report_that_is_never_finished_is_a_stale_tick(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("drivetrain_trainer.runtime.sequence_lock.PATIENCE_S", 0.0)
    writer, reader = sides()
    writer.publish(3, {"x": 1.0})
    writer._report._header[0] += 1  # killed within the next one
    with pytest.raises(StaleTickError, match="for a whole record"):
        reader.read()


def test_a_report_changed_without_its_lock_is_never_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("drivetrain_trainer.runtime.sequence_lock.PATIENCE_S", 0.0)
    writer, reader = sides()
    writer.publish(0, {"x": 1.0})
    writer._report._body[0] ^= 1
    with pytest.raises(StaleTickError):
        reader.read()


def test_no_report_is_torn_while_another_process_writes_as_fast_as_it_can() -> None:
    board = MetricsBoard.create()
    with ChildProcess.spawn("ring_children:publish_reports", "writer") as writer:
        writer.channel.send(board)
        assert writer.receive() == "ready", writer.failure
        read, newest = 0, 0
        while read < 500:
            report = board.read()
            if report is None:
                continue
            read += 1
            assert report.tick > newest
            newest = report.tick
            assert set(report.values.values()) == {float(newest)}
            assert len(report.values) == 1 + newest % 200
        writer.channel.send("enough")
        written = writer.receive()
    print(f"\n{read} whole reports read of {written} written")
    report = board.read()
    assert (report.tick if report else newest) == written
