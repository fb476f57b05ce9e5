"""The frame of a record in an event file: length, checksums, payload, all little endian.

A record is an unsigned 64-bit length, the masked CRC-32C of those eight bytes, the payload,
and the masked CRC-32C of the payload.
"""

from __future__ import annotations

import struct
from typing import Final

import google_crc32c

HEADER_BYTES: Final = 12
FOOTER_BYTES: Final = 4
MASK_DELTA: Final = 0xA282EAD8
"""Added to the rotated checksum."""


def framed(payload: bytes) -> bytes:
    """A whole record."""
    header = struct.pack("<Q", len(payload))
    return b"".join(
        (
            header,
            struct.pack("<I", masked_crc32c(header)),
            payload,
            struct.pack("<I", masked_crc32c(payload)),
        )
    )


def masked_crc32c(data: bytes) -> int:
    """CRC-32C, rotated and offset as record files store it, so that it is not its own data."""
    checksum = int(google_crc32c.value(data))
    return (((checksum >> 15) | (checksum << 17)) + MASK_DELTA) & 0xFFFFFFFF
