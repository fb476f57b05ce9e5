"""`spec.accelerator.mps.pinnedMemoryLimit`: device memory that each MPS client may take."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

EXAMPLES: Final = "4G for every GPU, or 0=4G,1=512M for each"

_ONE: Final = "([0-9]{1,2}=)?[1-9][0-9]{0,6}[GM]"
PATTERN: Final = f"^ *{_ONE} *(, *{_ONE} *)*$"
"""For the API server: the form alone; that each GPU is there, and once, only reading it tells."""
_PART = re.compile(r"(?:(?P<gpu>[0-9]{1,2})=)?(?P<limit>[1-9][0-9]{0,6}[GM])")


@dataclass(frozen=True)
class MemoryLimits:
    """Limits of a pod's GPUs, as MPS takes them: a whole number with G or M."""

    every: str | None = None
    """For GPUs that are not named."""
    named: tuple[tuple[int, str], ...] = ()
    """GPU's place in the pod, from 0, and its limit."""

    def of_gpu(self, index: int) -> str | None:
        """The limit of one GPU; None where it has none."""
        return dict(self.named).get(index, self.every)

    def as_environment(self, gpus: int) -> str:
        """CUDA_MPS_PINNED_DEVICE_MEM_LIMIT for a process that sees `gpus` devices."""
        limits = ((index, self.of_gpu(index)) for index in range(gpus))
        return ",".join(f"{index}={limit}" for index, limit in limits if limit is not None)


def parse_memory_limits(text: str | None, gpus: int) -> MemoryLimits:
    """Read the setting.

    Args:
        text: Its value.
        gpus: GPUs of a pod.

    Raises:
        ValueError: it is no limit, names a GPU twice, or one that the pod does not have.
    """
    every: str | None = None
    named: dict[int, str] = {}
    for part in text.split(",") if text is not None else ():
        found = _PART.fullmatch(part.strip())
        if found is None:
            raise ValueError(f"{part.strip()!r} is no limit: write {EXAMPLES}")
        if found["gpu"] is None:
            if every is not None:
                raise ValueError(f"two limits for every GPU: write {EXAMPLES}")
            every = found["limit"]
            continue
        index = int(found["gpu"])
        if index >= gpus:
            raise ValueError(
                f"{part.strip()!r} names GPU {index}, a pod has {gpus}: allowed are 0 to {gpus - 1}"
            )
        if index in named:
            raise ValueError(f"two limits for GPU {index}")
        named[index] = found["limit"]
    return MemoryLimits(every, tuple(sorted(named.items())))
