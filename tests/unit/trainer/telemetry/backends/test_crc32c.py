from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c as reference

from drivetrain_trainer.telemetry.backends.crc32c import crc32c, masked_crc32c


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
    ],
)
def test_published_check_values(data: bytes, expected: int) -> None:
    assert crc32c(data) == expected


@given(st.binary(min_size=4, max_size=300))
def test_agrees_with_tensorboard_at_any_length(data: bytes) -> None:
    assert masked_crc32c(data) == reference(data)


def test_less_than_a_register_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 4 bytes, got 3"):
        crc32c(b"abc")
