"""Everything that lies between a learner and its collector, made and closed as one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from drivetrain_trainer.runtime.cuda_ring import CudaStorage
from drivetrain_trainer.runtime.inference_ring import InferenceRing
from drivetrain_trainer.runtime.ingress import ReplayIngress
from drivetrain_trainer.runtime.metrics_board import MetricsBoard
from drivetrain_trainer.runtime.replay_layout import RowLayout
from drivetrain_trainer.runtime.ring_storage import HOST, HostStorage, RingShape

if TYPE_CHECKING:
    import torch

    from drivetrain_trainer.runtime.ring_storage import RingStorage
    from drivetrain_trainer.runtime.settings import RuntimeSettings


@dataclass(frozen=True)
class Transport:
    """Rings and board; sent to the collector through the boot message."""

    ring: InferenceRing
    ingress: ReplayIngress
    board: MetricsBoard

    @classmethod
    def create(
        cls,
        settings: RuntimeSettings,
        *,
        observation_dim: int,
        action_dim: int,
        collector_tensors: torch.device = HOST,
    ) -> Transport:
        """New shared memory and bells for these sizes.

        Args:
            settings: of the rank.
            observation_dim: of its task.
            action_dim: of its task.
            collector_tensors: where observations and actions are: the inference ring lies there.

        Raises:
            DeviceError: the device refused memory or events.
        """
        slots = settings.inference_slot_capacity
        shape = RingShape(settings.num_envs, observation_dim, action_dim)
        ring = InferenceRing.create(
            settings.num_envs,
            observation_dim,
            action_dim,
            slots,
            storage=make_storage(collector_tensors, shape, slots),
        )
        width = RowLayout(observation_dim, action_dim).width
        return cls(
            ring=ring,
            ingress=ReplayIngress.create(
                settings.replay_ingress_depth, settings.replay_ingress_slot_rows, width
            ),
            board=MetricsBoard.create(),
        )

    @property
    def layout(self) -> RowLayout:
        """Columns of a replay row."""
        return RowLayout(self.ring.observation_dim, self.ring.action_dim)

    @property
    def nbytes(self) -> int:
        """Bytes of shared host memory, as far as it has been touched."""
        return self.ring.host_bytes + self.ingress.memory.nbytes + self.board.memory.nbytes

    def close(self) -> None:
        """Close all of it; a second time does nothing. Views handed out stay valid."""
        self.ring.close()
        self.ingress.close()
        self.board.close()


def make_storage(device: torch.device, shape: RingShape, slots: int) -> RingStorage:
    """Storage of an inference ring: it follows from where the collector's tensors are.

    Raises:
        DeviceError: the device refused memory or events.
    """
    return CudaStorage.on(device, shape, slots) if device.type == "cuda" else HostStorage(shape)
