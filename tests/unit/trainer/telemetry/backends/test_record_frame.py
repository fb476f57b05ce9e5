from __future__ import annotations

import struct
import subprocess
import sys

import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c as reference

from drivetrain_trainer.telemetry.backends.record_frame import framed, masked_crc32c


@pytest.mark.parametrize(
    ("data", "checksum"),
    [(b"", 0), (b"123456789", 0xE3069283), (bytes(32), 0x8A9136AA), (b"\xff" * 32, 0x62A8AB43)],
)
def test_published_checksums(data: bytes, checksum: int) -> None:
    """Check values of CRC-32C: RFC 3720, B.4, and the catalogues' "123456789"."""
    assert google_crc32c.value(data) == checksum


@given(st.binary(max_size=300))
def test_the_mask_is_tensorboards(data: bytes) -> None:
    assert masked_crc32c(data) == reference(data)


def test_a_frame_is_length_payload_and_two_checksums() -> None:
    length = b"\x03\0\0\0\0\0\0\0"
    assert framed(b"abc") == (
        length
        + struct.pack("<I", reference(length))
        + b"abc"
        + struct.pack("<I", reference(b"abc"))
    )


def test_the_checksum_is_compiled_and_loads_without_a_warning() -> None:
    code = "import google_crc32c; print(google_crc32c.implementation)"
    command = [sys.executable, "-W", "error", "-c", code]
    shown = subprocess.run(command, capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "c"
    assert shown.stderr == ""
