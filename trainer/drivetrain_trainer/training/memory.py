"""A rank's memory budget against what there is: decided before its collector is spawned.

What needs torch is imported where it is needed: the decision comes before torch does.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from drivetrain_api import budget as arithmetic
from drivetrain_api.artifacts.outcome import RankOutcome, RunStatus
from drivetrain_api.atomic import write_text_atomically
from drivetrain_api.errors import SpecError
from drivetrain_api.exit_codes import ExitCode
from drivetrain_api.machine import cuda_devices
from drivetrain_api.memory import MemoryCgroup
from drivetrain_trainer.hardware.device_memory import roomiest_device
from drivetrain_trainer.runtime.devices import DeviceInventory, learner_devices
from drivetrain_trainer.runtime.memory_room import MemoryRoom, check_device

if TYPE_CHECKING:
    from collections.abc import Mapping

    from drivetrain_api.budget import MemoryBudget
    from drivetrain_trainer.runtime.devices import ResolvedDevices
    from drivetrain_trainer.training.inputs import RankInput
    from drivetrain_trainer.training.ranks import Ranks

log = structlog.get_logger(__name__)

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def check_before_spawn(
    given: RankInput, environ: Mapping[str, str] = os.environ, root: Path = Path("/")
) -> None:
    """Refuse a run whose tensors have no room here, before anything of it is started.

    Rank 0 leaves a summary with the manifest of what was decided, and why it was refused.

    Args:
        given: Input of the rank.
        environ: The rank's environment.
        root: Where ``proc``, ``sys`` and ``dev`` lie; another folder in tests alone.

    Raises:
        SpecError: naming the setting to change.
    """
    visible = cuda_devices(environ, root)
    learners = learner_devices(given.spec, DeviceInventory(len(visible.visible), hip=visible.hip))
    local_rank = int(environ.get("LOCAL_RANK", "0"))
    # The ring by itself is small: where it lies is resolved later, by what the backend offers.
    budget = arithmetic.memory_budget(
        arithmetic.sizes_of(
            given.spec,
            observation_dim=given.task.observation_dim,
            action_dim=given.task.action_dim,
            on_device=learners[local_rank].startswith("cuda"),
        )
    )
    try:
        room_here(len(learners), root).check(budget, learners, local_rank)
    except SpecError as refused:
        _record(given, refused, environ)
        raise


def room_here(ranks: int, root: Path = Path("/")) -> MemoryRoom:
    """What this pod has left, while its ranks are no further than this one."""
    own = int((root / "proc/self/statm").read_text().split()[1]) * _PAGE_BYTES
    return MemoryRoom(
        host=MemoryCgroup(root).available(),
        device=roomiest_device(root),
        processes=ranks * max(0, arithmetic.RANK_BYTES - own),
    )


def check_free_device(
    given: RankInput, devices: ResolvedDevices, budget: MemoryBudget, ranks: Ranks
) -> None:
    """Refuse a budget above the rank's part of what its device has free; collective.

    Raises:
        SpecError: naming the setting to change.
    """
    if not budget.sizes.on_device:
        ranks.greatest(0)
        return
    import torch  # noqa: PLC0415 - this module is loaded before torch

    free, _ = torch.cuda.mem_get_info(devices.learner)
    # Ranks that share the device allocate only once each has seen what was free before.
    ranks.greatest(0)
    inventory = DeviceInventory(torch.cuda.device_count(), hip=torch.version.hip is not None)
    check_device(budget, free, learner_devices(given.spec, inventory), ranks.local_rank)


def _record(given: RankInput, refused: SpecError, environ: Mapping[str, str]) -> None:
    """The outcome of this rank, and on rank 0 the run's summary and manifest, of a refusal."""
    rank = int(environ.get("RANK", "0"))
    if given.scratch is not None:
        outcome = RankOutcome(
            rank=rank,
            exit_code=int(ExitCode.REFUSED),
            status=RunStatus.FAILED,
            error_type=type(refused).__name__,
            error=str(refused)[:4096],
        )
        write_text_atomically(given.scratch.outcome(rank), outcome.to_json())
    if rank == 0:
        _summarise(given, refused, int(environ.get("LOCAL_RANK", "0")))


def _summarise(given: RankInput, refused: SpecError, local_rank: int) -> None:
    from drivetrain_trainer.evidence.fence import FencedError  # noqa: PLC0415 - in refusals alone
    from drivetrain_trainer.evidence.run_directory import RunDirectory  # noqa: PLC0415
    from drivetrain_trainer.evidence.run_summary import SummaryWriter  # noqa: PLC0415
    from drivetrain_trainer.training.devices import rank_devices  # noqa: PLC0415
    from drivetrain_trainer.training.manifest import begin_manifest, rank_budget  # noqa: PLC0415

    try:
        devices = rank_devices(given, local_rank)
        directory = RunDirectory.claim(given.attempt, given.storage)
        summary = SummaryWriter.start(directory, given.spec)
        begin_manifest(given, devices, rank_budget(given, devices), summary)
        summary.finish(RunStatus.FAILED, refused)
    except (FencedError, SpecError, OSError) as unwritten:
        log.warning("refusal not written to the run's summary", reason=str(unwritten))
