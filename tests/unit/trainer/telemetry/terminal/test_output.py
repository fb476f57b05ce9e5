from __future__ import annotations

import io
import os
import sys
import time
from collections.abc import Iterator
from typing import TextIO

import pytest

from drivetrain_trainer.telemetry.terminal.output import LARGEST_BACKLOG, Output


@pytest.fixture
def pipe() -> Iterator[tuple[int, TextIO]]:
    reading, writing = os.pipe()
    with os.fdopen(writing, "w", encoding="utf-8") as stream:
        yield reading, stream
    os.close(reading)


def test_text_arrives_whole_and_in_order(pipe: tuple[int, TextIO]) -> None:
    reading, stream = pipe
    output = Output(stream)
    sent = "".join(f"line {number} ─\n" for number in range(20_000))
    assert output.write(sent)
    received = b""
    while output.backlog:
        received += os.read(reading, 65536)
        output.drain()
    received += os.read(reading, 65536)
    assert received.decode() == sent
    assert output.drain()


def test_a_full_pipe_takes_no_time_and_loses_what_exceeds_the_backlog(
    pipe: tuple[int, TextIO],
) -> None:
    _, stream = pipe
    output = Output(stream)
    began = time.monotonic()
    taken = [output.write("x" * 1000) for _ in range(3000)]
    assert time.monotonic() - began < 2.0
    assert taken[0]
    assert not taken[-1]
    assert LARGEST_BACKLOG <= output.backlog < LARGEST_BACKLOG + 1000
    assert not output.drain(0.05)


def test_what_the_encoding_lacks_is_replaced(pipe: tuple[int, TextIO]) -> None:
    reading, stream = pipe
    with os.fdopen(os.dup(stream.fileno()), "w", encoding="ascii") as poor:
        Output(poor).write("a─b")
    assert os.read(reading, 10) == b"a?b"


def test_a_buffer_in_memory_is_written_to() -> None:
    stream = io.StringIO()
    output = Output(stream)
    assert output.write("text")
    assert stream.getvalue() == "text"
    assert output.backlog == 0


def test_a_pipe_without_a_reader_raises() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w", encoding="utf-8") as stream, pytest.raises(BrokenPipeError):
        Output(stream).write("text")


def test_a_closed_stream_raises(pipe: tuple[int, TextIO]) -> None:
    _, stream = pipe
    output = Output(stream)
    stream.close()
    with pytest.raises(ValueError, match="closed"):
        output.write("text")


def test_nothing_is_written_once_it_is_closed(pipe: tuple[int, TextIO]) -> None:
    reading, stream = pipe
    output = Output(stream)
    output.close()
    assert not output.write("text")
    stream.close()
    assert os.read(reading, 10) == b""


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc for the flags of a descriptor")
def test_the_terminal_of_others_keeps_blocking(make_terminal_pair) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001 - a fixture of the directory's conftest, which cannot be imported
    pair = make_terminal_pair(80, 24)
    output = Output(pair.stream)
    output.write("text")
    assert os.get_blocking(pair.stream.fileno())
    output.close()
