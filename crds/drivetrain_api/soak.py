"""`spec.soak`: whether a monitor watches each attempt, and what it lets pass.

The limits of growth are amounts over the whole judged part of an attempt, not rates: the
longer a soak, the slower the leak that it finds.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field

from drivetrain_api.algorithms import AlgoName
from drivetrain_api.base import ApiModel

Mebibytes = Annotated[int, Field(strict=True, ge=1, le=1_048_576)]
Handles = Annotated[int, Field(strict=True, ge=1, le=1_000_000)]

UNSOAKABLE: Final = frozenset({AlgoName.PPO})
"""Algorithms without a runtime manifest."""


def unsoakable(name: AlgoName) -> str:
    """Why an algorithm cannot be soaked, and what to do."""
    return (
        f"{name} cannot be soaked: it writes no runtime manifest, which the verdict rests on; "
        "leave soak out, or use another algorithm"
    )


class Resource(StrEnum):
    """What may leak from a tree of processes."""

    RSS = "rss"
    PSS = "pss"
    FDS = "fds"
    THREADS = "threads"
    SHM = "shm"
    GPU = "gpu"


class SoakGrowthConfig(ApiModel):
    """`spec.soak.growth`: most that each resource may grow once the warm-up is over."""

    rss_mebibytes: Mebibytes = 256
    """Resident memory, summed over the processes of the pod."""
    pss_mebibytes: Mebibytes = 256
    """Resident memory, with what processes share counted once."""
    fds: Handles = 32
    """Open file descriptors."""
    threads: Handles = 16
    """Threads."""
    shm_mebibytes: Mebibytes = 64
    """Files in /dev/shm that were made during the soak."""
    gpu_mebibytes: Mebibytes = 256
    """Memory of the GPUs."""

    def limit(self, resource: Resource) -> int:
        """Most growth of a resource: bytes, or a count for descriptors and threads."""
        if resource is Resource.FDS:
            return self.fds
        if resource is Resource.THREADS:
            return self.threads
        return int(getattr(self, f"{resource.value}_mebibytes")) << 20


class SoakConfig(ApiModel):
    """`spec.soak`: watch each attempt for leaks, stalls and decay, and judge it at its end."""

    duration_seconds: Annotated[int, Field(strict=True, ge=10, le=2_592_000)] | None = None
    """End the run, complete, after training for this long; its own length decides when unset."""
    sample_seconds: Annotated[int, Field(strict=True, ge=1, le=3600)] = 5
    """Seconds between two samples."""
    start_seconds: Annotated[int, Field(strict=True, ge=1, le=86_400)] = 600
    """Seconds until the first tick; later it has failed to start."""
    stale_seconds: Annotated[int, Field(strict=True, ge=1, le=86_400)] = 120
    """Seconds without a tick after which it has stalled."""
    grace_seconds: Annotated[int, Field(strict=True, ge=0, le=600)] = 5
    """Seconds that processes may take to end after the run, and after SIGTERM."""
    warm_up_seconds: Annotated[int, Field(strict=True, ge=0, le=86_400)] = 60
    """Seconds after the first tick that growth and decay leave out; a fifth of them at least."""
    growth: SoakGrowthConfig = SoakGrowthConfig()
    """Most that each resource may grow."""
    throughput_decay_percent: Annotated[int, Field(strict=True, ge=1, le=99)] = 50
    """Percent of its throughput that a run may lose from its first judged third to its last."""
