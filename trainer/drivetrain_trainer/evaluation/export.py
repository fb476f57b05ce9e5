"""A trained policy as ONNX or as a ``torch.export`` program, checked against the live one.

Both take raw observations ``observation`` (batch, o) float32 and give ``action`` (batch, a)
float32 in the actuators' own units: the normaliser and the map from [-1, 1] are inside.
"""

from __future__ import annotations

import copy
import hashlib
import importlib.util
import logging
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Final

import torch
from torch import Tensor, nn

from drivetrain_api.artifacts.policy_export import (
    ExportFormat,
    PolicyExport,
    PolicyFile,
    PolicyTensor,
)
from drivetrain_api.atomic import write_text_atomically
from drivetrain_trainer.envs.factory import make_env
from drivetrain_trainer.evaluation.policy_loading import POLICY_REFUSALS, LoadedPolicy, load_policy

FOLDER: Final = "export"
"""Folder of the exported files inside a run directory."""
TOLERANCE: Final = 1e-5
"""Largest difference from the live policy, as a share of half the action's range."""
ROUNDINGS: Final = 4.0
"""Where the live policy's own float32 rounding is coarser than `TOLERANCE`: so many times it."""
INPUT: Final = "observation"
OUTPUT: Final = "action"
ONNX_PACKAGES: Final = ("onnx", "onnxruntime", "onnxscript")
_BATCHES = (1, 7, 256)
_SUFFIXES = {ExportFormat.ONNX: ".onnx", ExportFormat.TORCH: ".pt2"}

Run = Callable[[Tensor], Tensor]
"""An exported program: (batch, o) -> (batch, a)."""


class ExportError(RuntimeError):
    """A policy that could not be exported, or whose export does not agree with it."""


class DeployedPolicy(nn.Module):
    """A policy with the map to raw action units, as environments apply it.

    Input (batch, o) float32 raw observations; output (batch, a) float32 raw actions.
    """

    scale: Tensor
    offset: Tensor

    def __init__(self, policy: nn.Module, low: Tensor, high: Tensor) -> None:
        super().__init__()
        self.policy = policy
        self.register_buffer("scale", (high - low) / 2)
        self.register_buffer("offset", (high + low) / 2)

    def forward(self, observation: Tensor) -> Tensor:
        """Raw actions for raw observations."""
        return torch.addcmul(self.offset, self.policy(observation), self.scale)


REFUSALS: Final = (*POLICY_REFUSALS, ExportError)
"""Errors that a person can mend."""
load = load_policy


@dataclass(frozen=True)
class ExportResult:
    """What was written."""

    sidecar: Path
    export: PolicyExport


def export_policy(
    loaded: LoadedPolicy, formats: Sequence[ExportFormat], directory: Path
) -> ExportResult:
    """Export a loaded policy and verify every file before it takes its name.

    Raises:
        ExportError: for missing packages, or a file that differs from the live policy.
        OSError: where the directory cannot be written.
    """
    require_packages(formats)
    low, high = _action_bounds(loaded)
    deployed = DeployedPolicy(loaded.policy, low, high).eval()
    columns = (loaded.task.observation_dim, loaded.task.action_dim)
    directory.mkdir(parents=True, exist_ok=True)
    stem = f"{loaded.task.name}_policy"
    files = [write_program(deployed, kind, columns[0], directory, stem) for kind in formats]
    export = PolicyExport(
        task=loaded.task.name,
        algo=loaded.config.algo.name,
        sim=loaded.config.sim,
        env_steps=loaded.checkpoint.env_steps,
        checkpoint=loaded.checkpoint.path.name,
        observation=PolicyTensor(name=INPUT, shape=("batch", columns[0])),
        action=PolicyTensor(name=OUTPUT, shape=("batch", columns[1])),
        action_low=tuple(low.tolist()),
        action_high=tuple(high.tolist()),
        files=tuple(files),
        versions=_versions(formats),
    )
    sidecar = directory / f"{stem}.json"
    write_text_atomically(sidecar, export.to_json())
    return ExportResult(sidecar, export)


def require_packages(formats: Sequence[ExportFormat]) -> None:
    """Refuse ONNX where its packages are not installed.

    Raises:
        ExportError: naming them, and how to install them.
    """
    if ExportFormat.ONNX not in formats:
        return
    missing = [name for name in ONNX_PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise ExportError(
            f"ONNX export needs {', '.join(missing)}: pip install 'drivetrain[export]', "
            "or export with --format torch"
        )


def write_program(
    deployed: DeployedPolicy, kind: ExportFormat, observation_dim: int, directory: Path, stem: str
) -> PolicyFile:
    """Export into a draft, verify the draft, and give it its name.

    Raises:
        ExportError: if it differs from the live policy by more than `TOLERANCE`.
    """
    target = directory / f"{stem}{_SUFFIXES[kind]}"
    with tempfile.TemporaryDirectory(prefix=".export-", dir=directory) as folder:
        draft = Path(folder) / target.name
        example = torch.zeros(2, observation_dim)
        with _exporters_quiet():
            run = _EXPORTERS[kind](deployed, example, draft)
            difference, allowed = largest_difference(deployed, run, observation_dim)
        if not difference <= allowed:
            raise ExportError(
                f"{target.name} differs from the live policy by {difference:.3g} of half the "
                f"action range; at most {allowed:.3g} is allowed"
            )
        content = draft.read_bytes()
        os.replace(draft, target)  # noqa: PTH105 - the atomic call by its own name
    return PolicyFile(
        name=target.name,
        format=kind,
        bytes=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
        max_abs_difference=difference,
    )


@torch.inference_mode()
def largest_difference(
    deployed: DeployedPolicy, run: Run, observation_dim: int
) -> tuple[float, float]:
    """Over random observations of several batch sizes and scales.

    A steep policy rounds coarsely: another order of the same float32 sums may then differ by
    more than `TOLERANCE`, and says nothing. So the live policy's own rounding, against itself
    in float64, is the yardstick where it is the larger one.

    Returns:
        The largest difference and what is allowed, in half action ranges.
    """
    generator = torch.Generator().manual_seed(0)
    exact = copy.deepcopy(deployed).double()
    worst, rounding = 0.0, 0.0
    for batch in _BATCHES:
        for spread in (0.1, 1.0, 10.0):
            observation = spread * torch.randn(batch, observation_dim, generator=generator)
            expected = deployed(observation)
            share = ((run(observation) - expected) / deployed.scale).abs().max()
            worst = max(worst, float(share)) if bool(share.isfinite()) else float("inf")
            own = ((exact(observation.double()) - expected) / deployed.scale).abs().max()
            rounding = max(rounding, float(own))
    return worst, max(TOLERANCE, ROUNDINGS * rounding)


@contextmanager
def _exporters_quiet() -> Iterator[None]:
    """Hide what Torch's exporters say of their own internals, such as an absent torchvision."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _export_torch(deployed: DeployedPolicy, example: Tensor, path: Path) -> Run:
    batch = torch.export.Dim("batch")
    program = torch.export.export(deployed, (example,), dynamic_shapes=({0: batch},))
    torch.export.save(program, path)
    loaded: Run = torch.export.load(path).module()
    return loaded


def _export_onnx(deployed: DeployedPolicy, example: Tensor, path: Path) -> Run:
    torch.onnx.export(
        deployed,
        (example,),
        path,
        dynamo=True,
        input_names=[INPUT],
        output_names=[OUTPUT],
        dynamic_shapes=({0: torch.export.Dim("batch")},),
        external_data=False,
        verbose=False,
    )
    import onnxruntime  # noqa: PLC0415 - an extra, absent from most installations

    session = onnxruntime.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"])
    return lambda observation: torch.from_numpy(
        session.run([OUTPUT], {INPUT: observation.numpy()})[0]
    )


_EXPORTERS: Final[dict[ExportFormat, Callable[[DeployedPolicy, Tensor, Path], Run]]] = {
    ExportFormat.ONNX: _export_onnx,
    ExportFormat.TORCH: _export_torch,
}


def _action_bounds(loaded: LoadedPolicy) -> tuple[Tensor, Tensor]:
    env = make_env(
        loaded.task,
        num_envs=1,
        seed=0,
        sim=loaded.config.sim,
        overrides=loaded.config.task.overrides,
    )
    try:
        return env.action_low.clone(), env.action_high.clone()
    finally:
        env.close()


def _versions(formats: Sequence[ExportFormat]) -> dict[str, str]:
    packages = ["drivetrain", "torch"]
    if ExportFormat.ONNX in formats:
        packages += ONNX_PACKAGES
    return {name: version(name) for name in packages}
