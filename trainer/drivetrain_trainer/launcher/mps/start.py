"""Starting MPS in the mode that the spec asks for, or refusing with what to do."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from drivetrain_api.mps import parse_memory_limits
from drivetrain_api.training import Simulator
from drivetrain_api.trainingrun import MpsMode
from drivetrain_trainer.launcher.mps.control import Control, ControlPipe, MpsError, find_program
from drivetrain_trainer.launcher.mps.daemon import START_SECONDS, Daemon, stop_daemons
from drivetrain_trainer.launcher.mps.gpus import gpu_uuids
from drivetrain_trainer.launcher.mps.mode import DisabledMps, ExternalMps, InContainerMps
from drivetrain_trainer.launcher.mps.names import PIPE_DIRECTORY, PROGRAM
from drivetrain_trainer.launcher.mps.use import UseCheck, rank_of_process

if TYPE_CHECKING:
    from collections.abc import Mapping

    from drivetrain_api.trainingrun import TrainingRunSpec
    from drivetrain_trainer.launcher.mps.mode import Mps
    from drivetrain_trainer.launcher.scratch import Scratch

log = structlog.get_logger(__name__)


def check_mps(spec: TrainingRunSpec, environ: Mapping[str, str]) -> None:
    """What can be said before anything is started.

    Raises:
        MpsError: the mode cannot work in this pod; what to do instead.
    """
    mode, device = spec.accelerator.mps.mode, spec.training.device
    injected = environ.get(PIPE_DIRECTORY)
    if mode is MpsMode.DISABLED:
        return
    if device == "cpu":
        raise MpsError(f"{mode} needs a learner on a GPU, training.device is cpu: set cuda or auto")
    if mode is MpsMode.EXTERNAL:
        if not injected:
            raise MpsError(
                f"External needs a daemon's pipe directory, and {PIPE_DIRECTORY} is not set in "
                "this container: does the device plugin share this GPU by MPS? Else set "
                "InContainer, and the pod starts its own"
            )
        ControlPipe(Path(injected)).check_listening()
        return
    if injected:
        raise MpsError(
            f"InContainer starts daemons of its own, but {PIPE_DIRECTORY}={injected} is injected "
            "into this container: set External to use that one"
        )
    if device.startswith("cuda:") and device != "cuda:0":
        raise MpsError(
            f"InContainer shows each rank the one GPU of its daemon, training.device is {device}: "
            "set cuda or auto"
        )
    if find_program(environ) is None:
        raise MpsError(
            f"InContainer needs {PROGRAM}, which is not on PATH: the NVIDIA container toolkit "
            "mounts it with the driver where NVIDIA_DRIVER_CAPABILITIES has compute and utility; "
            "does the pod run with the NVIDIA runtime class?"
        )


def start_mps(
    spec: TrainingRunSpec, environ: Mapping[str, str], *, scratch: Scratch, ranks: range
) -> Mps:
    """Start MPS, and wait until every daemon answers.

    Args:
        spec: Composed.
        environ: Environment of the pod.
        scratch: Its daemons' folders lie there.
        ranks: Global ranks of this pod.

    Raises:
        MpsError: what failed and what to do; nothing is left running.
    """
    check_mps(spec, environ)
    mode = spec.accelerator.mps.mode
    if mode is MpsMode.DISABLED:
        return DisabledMps()
    if mode is MpsMode.EXTERNAL:
        return _external(spec, environ)
    return _in_container(spec, environ, scratch, ranks)


def _external(spec: TrainingRunSpec, environ: Mapping[str, str]) -> ExternalMps:
    pipe = ControlPipe(Path(environ[PIPE_DIRECTORY]))
    mps, gpus = spec.accelerator.mps, spec.accelerator.gpus_per_node
    program = find_program(environ)
    if program is None:
        note = f"{PROGRAM} is not in this container, so its servers are not known"
    else:
        try:
            servers = Control(program, pipe.directory, environ).ask("get_server_list").split()
            note = f"its servers are {', '.join(servers)}" if servers else "it has no server yet"
        except MpsError as error:
            # It listens; a daemon of another user may still keep its commands to itself.
            note = f"it does not take our commands ({error})"
            log.warning("the injected MPS daemon does not take our commands", reason=str(error))
    log.info("MPS is injected", pipe=str(pipe.path), note=note)
    limits = parse_memory_limits(mps.pinned_memory_limit, gpus)
    return ExternalMps(pipe, mps.active_thread_percentage, limits, gpus, note)


def _in_container(
    spec: TrainingRunSpec, environ: Mapping[str, str], scratch: Scratch, ranks: range
) -> InContainerMps:
    program = find_program(environ)
    assert program is not None  # checked above
    gpus = gpu_uuids(environ)
    daemons = tuple(
        Daemon(gpu, scratch.mps / str(index), program, environ) for index, gpu in enumerate(gpus)
    )
    mps = spec.accelerator.mps
    limits = parse_memory_limits(mps.pinned_memory_limit, len(gpus))
    try:
        for daemon in daemons:
            daemon.start()
        ends = time.monotonic() + START_SECONDS
        for index, daemon in enumerate(daemons):
            daemon.await_answer(ends)
            daemon.limit(mps.active_thread_percentage, limits.of_gpu(index))
    except BaseException:
        stop_daemons(daemons)
        raise
    log.info("MPS daemons answer", gpus=list(gpus), folder=str(scratch.mps))
    checks = tuple(
        UseCheck(
            daemon.control,
            frozenset(rank for local, rank in enumerate(ranks) if local % len(gpus) == index),
            rank_of_process,
        )
        for index, daemon in enumerate(daemons)
    )
    return InContainerMps(
        daemons,
        checks,
        ranks,
        spec.topology.world_size,
        scratch,
        configured=spec.training.cuda_process_sharing,
        collectors_on_gpu=spec.sim is Simulator.MJWARP,
    )
