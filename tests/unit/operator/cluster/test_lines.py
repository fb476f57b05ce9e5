from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain_operator.cluster.lines import LineTooLongError, split_lines


def split(chunks: Iterable[bytes], limit: int = 100) -> list[bytes]:
    async def stream() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk

    async def collect() -> list[bytes]:
        return [line async for line in split_lines(stream(), limit=limit)]

    return asyncio.run(collect())


@given(st.lists(st.text("ab\n", max_size=5).map(str.encode), max_size=12))
def test_lines_do_not_depend_on_chunks(chunks: list[bytes]) -> None:
    assert split(chunks) == [line for line in b"".join(chunks).split(b"\n") if line]


def test_a_line_of_just_the_limit_passes() -> None:
    assert split([b"x" * 60, b"x" * 40 + b"\n" + b"y" * 100]) == [b"x" * 100, b"y" * 100]


@pytest.mark.parametrize(
    "chunks", [[b"x" * 101], [b"x" * 60, b"x" * 41], [b"a\n" + b"x" * 101 + b"\nb\n"]]
)
def test_a_longer_line_is_refused(chunks: list[bytes]) -> None:
    with pytest.raises(LineTooLongError, match="more than 100 bytes"):
        split(chunks)


def test_a_line_in_very_many_chunks_takes_linear_time() -> None:
    assert split([b"x"] * 200_000 + [b"\n"], limit=200_000) == [b"x" * 200_000]
