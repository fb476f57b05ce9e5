"""MuJoCo models: loaded from MJCF, and what environments need to know of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import mujoco
import torch
from torch import Tensor

from drivetrain_trainer.physics.port import ModelFacts, PhysicsError

if TYPE_CHECKING:
    import numpy as np


def load_model(source: Path | str) -> mujoco.MjModel:
    """Compile an MJCF file, or MJCF text.

    Raises:
        PhysicsError: MuJoCo does not load it.
    """
    try:
        if isinstance(source, Path):
            return mujoco.MjModel.from_xml_path(str(source))
        return mujoco.MjModel.from_xml_string(source)
    except (ValueError, mujoco.FatalError) as error:
        where = source if isinstance(source, Path) else "the MJCF text"
        raise PhysicsError(f"MuJoCo does not load {where}: {error}") from error


def model_facts(
    model: mujoco.MjModel, *, dtype: torch.dtype = torch.float64, device: str = "cpu"
) -> ModelFacts:
    """Sizes, names and constants, as tensors of the backend's dtype on its device."""

    def tensor(array: np.ndarray[Any, Any]) -> Tensor:
        return torch.tensor(array, dtype=dtype, device=device)

    limited = torch.tensor(model.actuator_ctrllimited.astype(bool), device=device)
    low, high = tensor(model.actuator_ctrlrange).unbind(1)
    infinity = torch.full_like(low, torch.inf)
    return ModelFacts(
        nq=model.nq,
        nv=model.nv,
        nu=model.nu,
        timestep=float(model.opt.timestep),
        initial_qpos=tensor(model.qpos0),
        initial_qvel=torch.zeros(model.nv, dtype=dtype, device=device),
        control_low=torch.where(limited, low, -infinity),
        control_high=torch.where(limited, high, infinity),
        body_mass=tensor(model.body_mass),
        body_names=tuple(model.body(i).name for i in range(model.nbody)),
        site_names=tuple(model.site(i).name for i in range(model.nsite)),
        actuator_names=tuple(model.actuator(i).name for i in range(model.nu)),
    )
