"""``run_config.json``: what a run was asked to do, and what that became on this machine."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Final

import torch

from drivetrain_api import __version__
from drivetrain_api.artifacts.run_config import (
    ActiveTerm,
    HostFacts,
    MetricFamily,
    ResolvedDevices,
    RunConfig,
    RunFacts,
)
from drivetrain_api.atomic import write_text_atomically
from drivetrain_api.memory import MemoryCgroup

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from drivetrain_api.algorithms import Precision
    from drivetrain_api.attempt import AttemptSpec
    from drivetrain_api.metrics import Family
    from drivetrain_api.tasks import TaskSpec
    from drivetrain_api.trainingrun import TrainingRunSpec
    from drivetrain_trainer.evidence.run_directory import RunDirectory

PACKAGES: Final = ("torch", "mujoco", "numpy", "gymnasium")
"""Packages whose version a result depends on, beside Python and Drivetrain itself."""


def write_run_config(
    directory: RunDirectory,
    attempt: AttemptSpec,
    spec: TrainingRunSpec,
    task: TaskSpec,
    *,
    resolved_devices: Mapping[str, Mapping[str, str]],
    resolved_precision: Precision,
    terms: Sequence[ActiveTerm] = (),
    families: Sequence[Family] = (),
) -> RunConfig:
    """Write the file; rank 0 alone, once everything is resolved.

    Args:
        directory: The claimed run directory.
        attempt: The attempt that runs.
        spec: The composed spec.
        task: The task.
        resolved_devices: ``learner`` and ``collector_tensor``, each with ``configured`` and
            ``resolved``.
        resolved_precision: What ``algo.precision`` became.
        terms: Active terms of the environment.
        families: Families of its own metrics.

    Raises:
        FencedError: a newer attempt owns the directory.
        OSError: the file cannot be written.
    """
    facts = RunFacts(
        name=attempt.name,
        namespace=attempt.namespace,
        uid=attempt.uid,
        attempt=attempt.attempt,
        created=attempt.created,
        world_size=spec.topology.world_size,
        resolved_devices=ResolvedDevices.model_validate(resolved_devices),
        resolved_precision=resolved_precision,
        observation_dim=task.observation_dim,
        action_dim=task.action_dim,
        terms=tuple(terms),
        metric_families=tuple(
            MetricFamily(prefix=family.prefix, unit=family.unit, reduction=family.reduction)
            for family in families
        ),
        versions=versions(),
        host=host_facts(),
    )
    config = RunConfig.of(spec, facts)
    directory.fence.check()
    write_text_atomically(directory.run_config, config.to_json())
    return config


def versions() -> dict[str, str]:
    """Versions in use; a package that is not installed is left out."""
    found = {"drivetrain": __version__, "python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def host_facts() -> HostFacts:
    """The machine as this process sees it."""
    return HostFacts(
        platform=platform.platform()[:1024],
        cpu_model=_cpu_model()[:1024],
        cpu_capability=torch.backends.cpu.get_cpu_capability(),
        usable_cpus=len(os.sched_getaffinity(0)),
        torch_threads=torch.get_num_threads(),
        memory_bytes=MemoryCgroup().limit_bytes(),
    )


def _cpu_model(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Model name of the first CPU; the architecture where the kernel does not tell (arm64)."""
    for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
        name, _, value = line.partition(":")
        if name.strip().lower() == "model name":
            return value.strip()
    return platform.machine()
