"""Everything that lies between a learner and its collector, made and closed as one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from drivetrain_trainer.runtime.inference_ring import InferenceRing
from drivetrain_trainer.runtime.ingress import ReplayIngress
from drivetrain_trainer.runtime.metrics_board import MetricsBoard
from drivetrain_trainer.runtime.replay_layout import RowLayout

if TYPE_CHECKING:
    from drivetrain_trainer.runtime.settings import RuntimeSettings


@dataclass(frozen=True)
class Transport:
    """Rings and board; sent to the collector through the boot message."""

    ring: InferenceRing
    ingress: ReplayIngress
    board: MetricsBoard

    @classmethod
    def create(
        cls, settings: RuntimeSettings, *, observation_dim: int, action_dim: int
    ) -> Transport:
        """New shared memory and bells for these sizes."""
        ring = InferenceRing.create(
            settings.num_envs, observation_dim, action_dim, settings.inference_slot_capacity
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
