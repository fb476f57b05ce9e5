from __future__ import annotations

import errno
import gc
import os
from pathlib import Path

import pytest
import torch

from drivetrain_trainer.runtime.descriptors import Channel
from drivetrain_trainer.runtime.shared_memory import CACHE_LINE, MemoryPlan, SharedMemory


def test_new_memory_is_zero_and_named_in_the_map_alone() -> None:
    before = set(Path("/dev/shm").iterdir())
    memory = SharedMemory.create(4096, "label")
    assert not memory.tensor((1024,), torch.float32).any()
    assert "memfd:drivetrain-label" in Path("/proc/self/maps").read_text()
    assert set(Path("/dev/shm").iterdir()) == before


def test_both_sides_see_one_memory() -> None:
    memory = SharedMemory.create(256, "pair")
    first, second = Channel.pair()
    with first, second:
        first.send(memory)
        received: SharedMemory = second.receive()
    memory.tensor((8, 4), torch.float32)[7, 3] = 5.0
    assert received.tensor((4,), torch.float32, 28 * 4).tolist() == [0.0, 0.0, 0.0, 5.0]
    received.words(128, 2)[1] = -3
    assert memory.tensor((2,), torch.int64, 128).tolist() == [0, -3]
    assert (received.nbytes, received.label) == (256, "pair")


@pytest.mark.parametrize("size", [0, 8192])
def test_the_size_is_sealed(size: int) -> None:
    memory = SharedMemory.create(4096, "sealed")
    with pytest.raises(PermissionError):
        os.ftruncate(memory._descriptor.fileno(), size)


def test_the_memory_can_not_be_made_executable() -> None:
    memory = SharedMemory.create(4096, "data")
    assert os.fstat(memory._descriptor.fileno()).st_mode & 0o111 == 0
    with pytest.raises(PermissionError):
        os.fchmod(memory._descriptor.fileno(), 0o777)


def test_an_older_kernel_gives_the_memory_without_that(monkeypatch: pytest.MonkeyPatch) -> None:
    create = os.memfd_create

    def older(name: str, flags: int) -> int:
        if flags & 0x8:
            raise OSError(errno.EINVAL, "unknown flag")
        return create(name, flags)

    monkeypatch.setattr(os, "memfd_create", older)
    assert SharedMemory.create(4096, "older").tensor((1,), torch.float32).item() == 0.0


def test_memory_of_another_size_is_refused_on_arrival() -> None:
    memory = SharedMemory.create(4096, "claimed")
    memory.nbytes = 8192
    first, second = Channel.pair()
    with first, second:
        first.send(memory)
        with pytest.raises(ValueError, match="8192 sealed bytes expected, 4096 found"):
            second.receive()


def test_views_outlive_the_close_and_take_the_pages_with_them() -> None:
    memory = SharedMemory.create(4096, "outlived")
    view = memory.tensor((4,), torch.float32)
    words = memory.words(64, 1)
    memory.close()
    memory.close()
    view.fill_(1.0)
    words[0] = 2
    assert view.sum() == 4.0
    with pytest.raises(ValueError, match="closed"):
        memory.tensor((4,), torch.float32)
    assert "drivetrain-outlived" in Path("/proc/self/maps").read_text()
    del view, words
    gc.collect()
    assert "drivetrain-outlived" not in Path("/proc/self/maps").read_text()


@pytest.mark.parametrize(
    ("shape", "offset"), [((65,), 0), ((64,), 4), ((1,), -4), ((0,), 0), ((2, 33), 0)]
)
def test_a_tensor_outside_the_memory_is_refused(shape: tuple[int, ...], offset: int) -> None:
    memory = SharedMemory.create(256, "bounded")
    with pytest.raises(ValueError, match=f"'bounded': bytes {offset} to .* of 256"):
        memory.tensor(shape, torch.float32, offset)


@pytest.mark.parametrize(("offset", "count"), [(0, 33), (4, 1), (-8, 1), (256, 1), (0, 0)])
def test_words_outside_the_memory_or_astride_are_refused(offset: int, count: int) -> None:
    with pytest.raises(ValueError, match="'bounded'"):
        SharedMemory.create(256, "bounded").words(offset, count)


def test_no_memory_is_no_size() -> None:
    with pytest.raises(ValueError, match="0 bytes, at least 1"):
        SharedMemory.create(0, "empty")


def test_regions_of_a_plan_never_share_a_cache_line() -> None:
    plan = MemoryPlan()
    offsets = [plan.words(1), plan.floats(3, 7), plan.reserve(64), plan.words(9)]
    assert offsets == [0, 64, 192, 256]
    assert plan.nbytes == 384
    assert all(offset % CACHE_LINE == 0 for offset in offsets)
