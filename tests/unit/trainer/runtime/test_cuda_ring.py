"""A ring on a device: the same protocol, fences in the right order, handles without names."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from fake_ipc import CUDA, FakeIpc

from drivetrain_api.budget import EVENTS_PER_SLOT, TensorSizes
from drivetrain_trainer.runtime import transport as transport_module
from drivetrain_trainer.runtime.child_process import ChildProcess
from drivetrain_trainer.runtime.collector_port import CollectorPort
from drivetrain_trainer.runtime.cuda_ipc import DeviceError, DeviceRuntime
from drivetrain_trainer.runtime.cuda_ring import CudaStorage, RingHandles
from drivetrain_trainer.runtime.descriptors import Channel
from drivetrain_trainer.runtime.doorbell import Peer
from drivetrain_trainer.runtime.faults import ProtocolError
from drivetrain_trainer.runtime.inference_ring import InferenceRing
from drivetrain_trainer.runtime.ingress import ReplayIngress
from drivetrain_trainer.runtime.learner_port import LearnerPort
from drivetrain_trainer.runtime.ring_storage import Fence, HostStorage, RingShape

SOON = 10.0
ENVS, OBSERVATION, ACTION = 5, 3, 2
SHAPE = RingShape(ENVS, OBSERVATION, ACTION)


def ring_on(ipc: FakeIpc, capacity: int = 1) -> InferenceRing:
    storage = CudaStorage(ipc, SHAPE, capacity)
    return InferenceRing.create(ENVS, OBSERVATION, ACTION, capacity, storage=storage)


def ports(ring: InferenceRing) -> tuple[CollectorPort, LearnerPort]:
    peer = Peer(os.getpid(), "self")
    return ring.collector_port(peer), ring.learner_port(peer)


def event(slot: int, fence: Fence) -> int:
    """Number of an event in the order in which they are made."""
    return len(Fence) * slot + fence


def names_of(*pids: int) -> list[str]:
    """Files that torch's own way of sharing would leave, by the processes that made them."""
    found = [path.name for path in Path("/dev/shm").glob("torch_*")]
    return [name for name in found if any(f"_{pid}_" in name for pid in pids)]


def tick(collector: CollectorPort, learner: LearnerPort, ring: InferenceRing, number: int) -> None:
    """One tick of every group, and what each side sees of the other."""
    for group in range(ring.groups):
        rows = ring.group_size(group)
        observation = torch.full((rows, OBSERVATION), number + group / 10)
        collector.request(number, observation, torch.ones(rows), group=group)
        assert torch.equal(collector.requested_observation(group), observation)
        request = learner.await_request(number, SOON, group=group)
        assert torch.equal(request.observation, observation)
        assert request.done.eq(1.0).all()
        action = torch.full((rows, ACTION), -number - group / 10)
        learner.respond(number, number, action, group=group)
        assert torch.equal(collector.await_response(number, SOON, group=group).action, action)


@pytest.mark.parametrize("capacity", [1, 2, 5])
@pytest.mark.parametrize("carried", [False, True])
def test_a_device_ring_is_the_same_protocol(capacity: int, carried: bool) -> None:
    ring = ring_on(FakeIpc(CUDA if carried else torch.device("cpu")), capacity)
    collector, learner = ports(ring)
    for number in range(5):
        tick(collector, learner, ring, number)
    collector.request(7, torch.zeros(ring.group_size(0), OBSERVATION), torch.zeros(1))
    with pytest.raises(ProtocolError, match="tick"):
        learner.await_request(5, SOON)


@pytest.mark.parametrize("carried", [False, True])
def test_every_tick_passes_its_fences_in_order(carried: bool) -> None:
    ipc = FakeIpc(CUDA if carried else torch.device("cpu"))
    ring = ring_on(ipc, 2)
    collector, learner = ports(ring)
    ipc.log.clear()
    for number in range(2):
        tick(collector, learner, ring, number)
    one = [
        ("wait", Fence.RELEASED),  # the collector, before it writes observations
        ("record", Fence.REQUESTED),
        ("wait", Fence.REQUESTED),  # the learner, before it reads them
        ("record", Fence.PLACED),
        ("record", Fence.RELEASED),
        ("wait", Fence.PLACED),  # the collector, before it reads actions
    ]
    expected = [(kind, event(slot, fence)) for slot in (0, 1) for kind, fence in one]
    assert ipc.log == expected * 2
    # Each wait was for the newest record there was: of the tick before for what is released.
    for slot in (0, 1):
        assert ipc.waited[event(slot, Fence.REQUESTED)] == 2
        assert ipc.waited[event(slot, Fence.PLACED)] == 2
        assert ipc.waited[event(slot, Fence.RELEASED)] == 1


def test_actions_carried_to_the_host_are_there_before_they_are_handed_out() -> None:
    ipc = FakeIpc()
    ring = ring_on(ipc)
    collector, learner = ports(ring)
    tick(collector, learner, ring, 0)
    assert ipc.barriers == 1
    own = FakeIpc(torch.device("cpu"))
    ring = ring_on(own)
    collector, learner = ports(ring)
    tick(collector, learner, ring, 0)
    assert own.barriers == 0  # environments on the device: no thread waits


def test_placing_ahead_is_fenced_once() -> None:
    ipc = FakeIpc()
    ring = ring_on(ipc)
    collector, learner = ports(ring)
    collector.request(0, torch.zeros(ENVS, OBSERVATION), torch.zeros(ENVS))
    learner.await_request(0, SOON)
    learner.place(torch.ones(ENVS, ACTION))
    learner.respond(0, 0, None)
    assert ipc.log.count(("record", int(Fence.PLACED))) == 1
    assert collector.await_response(0, SOON).action.eq(1.0).all()


@pytest.mark.parametrize("capacity", [1, 4, 16])
def test_events_are_as_many_as_the_budget_counts(capacity: int) -> None:
    ipc = FakeIpc()
    storage = CudaStorage(ipc, SHAPE, capacity)
    sizes = TensorSizes(
        num_envs=ENVS,
        batch_size=1,
        updates_per_step=1,
        observation_dim=OBSERVATION,
        inference_observation_dim=OBSERVATION,
        action_dim=ACTION,
        inference_slot_capacity=capacity,
        replay_ingress_depth=1,
        replay_ingress_slot_rows=1,
        replay_rows=1,
        on_device=True,
        ring_on_device=True,
    )
    assert len(Fence) == EVENTS_PER_SLOT
    assert ipc.events == storage.ipc_events == sizes.ipc_events == 3 * capacity
    assert HostStorage(SHAPE).ipc_events == 0


def test_memory_comes_before_events_and_a_refusal_is_passed_on() -> None:
    ipc = FakeIpc(refuse_event=4)
    with pytest.raises(DeviceError, match="out of memory"):
        CudaStorage(ipc, SHAPE, 2)
    assert ipc.log[0][0] == "allocate"
    assert ipc.events == 4


def test_a_closed_ring_waits_for_its_work_and_hands_out_nothing_more() -> None:
    ipc = FakeIpc()
    ring = ring_on(ipc)
    view = ring.slot(0).observation
    ring.close()
    ring.close()
    assert ipc.barriers == 1
    view.fill_(1.0)  # what was handed out before stays valid
    with pytest.raises(ValueError, match="closed"):
        ring.slot(0)


def test_a_handle_of_a_process_that_is_gone_opens_nothing() -> None:
    handles = RingHandles(b"/proc/0/fd/0", ())
    with pytest.raises(DeviceError, match="IpcOpen"):
        CudaStorage(FakeIpc(), SHAPE, 1, handles=handles)


def test_a_sent_ring_carries_handles_alone() -> None:
    ring = ring_on(FakeIpc(), 2)
    first, second = Channel.pair()
    with first, second:
        first.send(ring)
        received: InferenceRing = second.receive()
    assert received.storage.ipc_events == 6
    ring.slot(1).action.fill_(3.0)
    assert received.slot(1).action.eq(3.0).all()
    collector, _ = ports(received)
    _, learner = ports(ring)
    collector.request(0, torch.ones(3, OBSERVATION), torch.zeros(3))
    assert learner.await_request(0, SOON).observation.eq(1.0).all()


@pytest.mark.parametrize("capacity", [1, 2])
def test_two_processes_share_it_and_no_name_is_left(capacity: int) -> None:
    ring = ring_on(FakeIpc(), capacity)
    with ChildProcess.spawn("ring_children:request_actions", "collector") as child:
        child.channel.send(ring)
        assert child.receive() == "ready", child.failure
        port = ring.learner_port(child.peer)
        for number in range(20):
            for group in range(port.groups):
                request = port.await_request(number, SOON, group=group)
                assert request.observation.eq(float(number)).all()
                action = torch.full((ring.group_size(group), ACTION), float(number))
                port.respond(number, number, action, group=group)
        port.stop()
        assert child.wait(SOON)
        assert child.exitcode == 0
    assert not names_of(os.getpid(), child.pid)


def test_a_chunk_is_published_behind_one_barrier() -> None:
    """Rows of a device are copied without waiting; the wait is one a chunk, however filled."""
    ingress = ReplayIngress.create(4, 4, 3)
    seen: list[int] = []
    words = ingress.producer_words()
    producer = ingress.producer(Peer(os.getpid(), "self"), barrier=lambda: seen.append(words[0]))
    rows = torch.arange(18.0).view(6, 3)
    producer.write(rows[:1], 0, last=False)
    producer.write(rows[1:], 0)
    consumer = ingress.consumer(Peer(os.getpid(), "self"))
    assert seen == [0, 1]  # each before its chunk was counted as published
    taken: list[torch.Tensor] = []
    consumer.poll(lambda part: taken.append(part.clone()), 0)
    assert torch.equal(torch.cat(taken), rows)


def test_the_transport_follows_from_where_the_collectors_tensors_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Made:
        @staticmethod
        def on(device: torch.device, shape: RingShape, slots: int) -> tuple[Any, ...]:
            return device, shape, slots

    monkeypatch.setattr(transport_module, "CudaStorage", Made)
    device = torch.device("cuda", 1)
    assert transport_module.make_storage(device, SHAPE, 3) == (device, SHAPE, 3)
    assert isinstance(transport_module.make_storage(torch.device("cpu"), SHAPE, 3), HostStorage)


class StandInLibrary:
    """A runtime library in Python; every call goes into `calls`."""

    def __init__(self, prefix: str, code: int = 0) -> None:
        self.calls: list[str] = []
        for name in ("Malloc", "Free", "IpcGetMemHandle", "IpcOpenMemHandle", "IpcCloseMemHandle"):
            setattr(self, f"{prefix}{name}", self._call(name, code))
        setattr(self, f"{prefix}GetErrorString", ErrorString())

    def _call(self, name: str, code: int) -> Any:
        def call(first: Any, second: Any = None, *_: Any) -> int:
            self.calls.append(name)
            target = getattr(first, "_obj", None)
            if name in ("Malloc", "IpcOpenMemHandle"):
                target.value = 4096
            if name == "IpcGetMemHandle":
                target.reserved = bytes([second.value % 251]) * 64
            return code

        return call


class ErrorString:
    restype: object = None

    def __call__(self, code: int) -> bytes:
        return f"error {code}".encode()


@pytest.mark.parametrize("prefix", ["cuda", "hip"])
def test_the_runtimes_calls(prefix: str) -> None:
    library = StandInLibrary(prefix)
    runtime = DeviceRuntime(library, prefix)
    pointer = runtime.allocate(100)
    assert pointer == 4096
    handle = runtime.handle(pointer)
    assert handle == bytes([4096 % 251]) * 64
    assert runtime.open(handle) == 4096
    runtime.close(4096)
    runtime.free(pointer)
    assert library.calls == [
        "Malloc",
        "IpcGetMemHandle",
        "IpcOpenMemHandle",
        "IpcCloseMemHandle",
        "Free",
    ]


def test_a_refused_call_says_which_and_why() -> None:
    runtime = DeviceRuntime(StandInLibrary("cuda", code=2), "cuda")
    with pytest.raises(DeviceError, match=r"cudaMalloc of 100 bytes: error 2 \(2\)"):
        runtime.allocate(100)
    with pytest.raises(DeviceError, match=r"cudaIpcOpenMemHandle: error 2 \(2\)"):
        runtime.open(bytes(64))


def test_a_process_without_a_runtime_library_says_so(tmp_path: Path) -> None:
    maps = tmp_path / "maps"
    maps.write_text("7f00-7f01 r-xp 00000000 00:00 0 /usr/lib/libc.so.6\n7f02-7f03 rw-p 0 0 0\n")
    with pytest.raises(DeviceError, match="libcudart, libamdhip64"):
        DeviceRuntime.loaded(maps)


@pytest.mark.skipif(torch.version.cuda is None, reason="this build of Torch has no CUDA library")
@pytest.mark.skipif(torch.cuda.is_available(), reason="with a device nothing is refused")
def test_the_library_that_torch_has_loaded_is_found_and_refuses_without_a_device() -> None:
    with pytest.raises(DeviceError, match=r"^cudaMalloc of 4096 bytes: .+ \([0-9]+\)$"):
        DeviceRuntime.loaded().allocate(4096)


@pytest.mark.gpu
@pytest.mark.parametrize("capacity", [1, 2])
def test_on_a_device_two_processes_share_it(capacity: int) -> None:
    shape = RingShape(64, 17, 6)
    storage = CudaStorage.on(torch.device("cuda", 0), shape, capacity)
    ring = InferenceRing.create(64, 17, 6, capacity, storage=storage)
    with ChildProcess.spawn("ring_children:request_actions", "collector") as child:
        child.channel.send(ring)
        assert child.receive() == "ready", child.failure
        port = ring.learner_port(child.peer)
        for number in range(500):
            for group in range(port.groups):
                request = port.await_request(number, 60.0, group=group)
                assert request.observation.device.type == "cuda"
                assert bool(request.observation.eq(float(number)).all())
                rows = ring.group_size(group)
                action = torch.full((rows, 6), float(number), device="cuda")
                port.respond(number, number, action, group=group)
        port.stop()
        assert child.wait(60.0)
        assert child.exitcode == 0
    ring.close()
    assert not names_of(os.getpid(), child.pid)
