from __future__ import annotations

import struct
from pathlib import Path

import pytest
from event_files import masked, record
from hypothesis import given, settings
from hypothesis import strategies as st

from drivetrain_trainer.analysis import records
from drivetrain_trainer.analysis.records import RecordReader

payloads = st.lists(st.binary(max_size=70), max_size=12)


def read(path: Path, limit: int | None = None) -> tuple[list[bytes], list[str]]:
    reader = RecordReader(path, limit=limit)
    found = [
        piece.payload(index)
        for piece in reader
        for index in range(len(piece.starts))
        if piece.sound[index]
    ]
    return found, reader.damage


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("records") / "events"


@given(payloads, st.integers(1, 200))
@settings(deadline=None)
def test_whole_files_read_back_whatever_the_pieces(
    file: Path, written: list[bytes], piece: int
) -> None:
    file.write_bytes(b"".join(map(record, written)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records, "PIECE_BYTES", piece)
        assert read(file) == (written, [])


@given(payloads, st.data())
@settings(deadline=None)
def test_a_file_that_is_cut_anywhere_gives_the_whole_records_before_the_cut(
    file: Path, written: list[bytes], data: st.DataObject
) -> None:
    content = b"".join(map(record, written))
    cut = data.draw(st.integers(0, len(content)))
    file.write_bytes(content[:cut])
    ends = [sum(len(record(p)) for p in written[: n + 1]) for n in range(len(written))]
    whole = sum(end <= cut for end in ends)
    found, damage = read(file)
    assert found == written[:whole]
    at_an_end = cut in (0, *ends)
    assert len(damage) == (0 if at_an_end else 1)
    assert all("unfinished" in message and str(file) in message for message in damage)


@given(payloads.filter(bool), st.data())
@settings(deadline=None)
def test_a_flipped_bit_is_told_and_never_read_as_something_else(
    file: Path, written: list[bytes], data: st.DataObject
) -> None:
    content = bytearray(b"".join(map(record, written)))
    bit = data.draw(st.integers(0, 8 * len(content) - 1))
    content[bit // 8] ^= 1 << bit % 8
    file.write_bytes(content)
    found, damage = read(file)
    assert len(damage) == 1
    assert "checksum" in damage[0]
    hit = next(
        n for n in range(len(written)) if bit // 8 < sum(len(record(p)) for p in written[: n + 1])
    )
    rest = written[:hit] if "length" in damage[0] else written[:hit] + written[hit + 1 :]
    assert found == rest


@given(st.binary(max_size=300))
@settings(deadline=None)
def test_any_bytes_at_all_are_read_without_an_error(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    read(file)


def test_an_empty_file_is_whole(file: Path) -> None:
    file.write_bytes(b"")
    assert read(file) == ([], [])


def test_a_tail_of_zeros_that_a_power_cut_left_is_told(file: Path) -> None:
    file.write_bytes(record(b"one") + bytes(4096))
    found, damage = read(file)
    assert found == [b"one"]
    assert "at byte 19" in damage[0]


def test_what_is_appended_after_the_limit_is_left_for_later(file: Path) -> None:
    file.write_bytes(record(b"one") + record(b"two"))
    assert read(file, limit=len(record(b"one"))) == ([b"one"], [])


def test_a_record_over_the_limit_is_passed_over_and_told(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "PIECE_BYTES", 64)
    monkeypatch.setattr(records, "RECORD_LIMIT", 1000)
    file.write_bytes(record(b"one") + record(bytes(5000)) + record(bytes(900)) + record(b"two"))
    found, damage = read(file)
    assert found == [b"one", bytes(900), b"two"]
    assert "5,016 bytes is passed over" in damage[0]


@pytest.mark.parametrize("length", [1 << 40, (1 << 64) - 1])
def test_a_length_beyond_the_file_takes_no_memory(file: Path, length: int) -> None:
    header = struct.pack("<Q", length)
    file.write_bytes(record(b"one") + header + struct.pack("<I", masked(header)) + b"rest")
    found, damage = read(file)
    assert found == [b"one"]
    assert "unfinished" in damage[0]


def test_a_ruined_file_fills_no_list_of_complaints(file: Path) -> None:
    bad = bytearray(record(b"payload"))
    bad[-1] ^= 1
    file.write_bytes(bytes(bad) * 1000)
    found, damage = read(file)
    assert found == []
    assert len(damage) == 21
    assert damage[-1].endswith("and more of the kind")
