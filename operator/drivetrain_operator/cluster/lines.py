"""Lines out of a stream of bytes, however long a line is and wherever chunks end."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class LineTooLongError(ValueError):
    """A line exceeds the bound."""


async def split_lines(chunks: AsyncIterator[bytes], *, limit: int) -> AsyncIterator[bytes]:
    """The lines of a stream without their line ends; empty ones are left out.

    Args:
        chunks: The stream.
        limit: Bytes that a line may have.

    Raises:
        LineTooLongError: a line has more.
    """
    pending: list[bytes] = []
    size = 0
    async for chunk in chunks:
        first, *rest = chunk.split(b"\n")
        pending.append(first)
        size += len(first)
        if size > limit or any(len(line) > limit for line in rest):
            raise LineTooLongError(f"a line of more than {limit} bytes")
        if not rest:
            continue
        line = b"".join(pending)
        if line:
            yield line
        for line in rest[:-1]:
            if line:
                yield line
        pending, size = [rest[-1]], len(rest[-1])
    last = b"".join(pending)
    if last:
        yield last
