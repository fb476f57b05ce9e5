"""What the operator's administrator decides about every pod."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """Defaults of the builders; a run's `image` and `podTemplate` go over them."""

    image: str = "drivetrain-trainer:latest"
    """Trainer image of runs that name none."""
    user: int = 1000
    """User, group and fsGroup of the pods; never root."""
    shm_size: str = "1Gi"
    """Limit of the Memory emptyDir on /dev/shm; it counts in the container's memory limit."""
    toleration_seconds: int = 30
    """How long pods stay bound to a node that is not ready or unreachable."""
    rendezvous_port: int = 29_500
    """torchrun's port on the pod of index 0."""
