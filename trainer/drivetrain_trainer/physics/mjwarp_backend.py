"""The `mjwarp` backend: float32 worlds on a CUDA device, or on the CPU to be checked there."""

from __future__ import annotations

import logging
import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch import Tensor

from drivetrain_api.artifacts.runtime_manifest import BackendDiagnostics
from drivetrain_trainer.physics.capabilities import MJWARP
from drivetrain_trainer.physics.mjcf import load_model, model_facts
from drivetrain_trainer.physics.mujoco_warnings import redirect_warnings
from drivetrain_trainer.physics.port import (
    Divergence,
    PendingStep,
    PhysicsError,
    RenderState,
    SimulationSetup,
)
from drivetrain_trainer.physics.warp_runtime import drop_headers, load_warp
from drivetrain_trainer.physics.world_batch import check_counts, check_outputs, output_shape

load_warp()  # what is imported below loads Warp, which must have been told where to write

import mujoco_warp as mjw  # noqa: E402
import warp as wp  # noqa: E402

from drivetrain_trainer.physics.warp_fence import Fence, HostFence, StreamFence  # noqa: E402
from drivetrain_trainer.physics.warp_graph import StepLauncher  # noqa: E402
from drivetrain_trainer.physics.warp_kernels import (  # noqa: E402
    CONSTRAINT_OVERFLOWS,
    CONTACT_OVERFLOWS,
    DIVERGED,
    FLAGS,
    flag_worlds,
)

if TYPE_CHECKING:
    import mujoco

UNSOUND: float = 1e10
"""From here on MuJoCo calls a position, velocity or acceleration bad (its mjMAXVAL)."""

_STATE = (
    "act",
    "ctrl",
    "eq_active",
    "history",
    "mocap_pos",
    "mocap_quat",
    "plastic",
    "qacc_warmstart",
    "qfrc_applied",
    "qpos",
    "qvel",
    "time",
    "userdata",
    "xfrc_applied",
)
"""What a world's next step depends on."""

_POST_CONSTRAINT = frozenset({"cacc", "cfrc_ext", "cfrc_int"})
_logger = logging.getLogger(__name__)


class MjwarpPhysics:
    """`Physics` over mujoco-warp; state tensors are views of its arrays, no copies.

    In float32, where `mujoco` has float64: a step agrees with MuJoCo's to rounding, and
    trajectories part as chaos amplifies that. On the CPU kernels run one after the other on
    one thread and a seed gives the same numbers each time; a CUDA device sums in no order.

    Unlike MuJoCo, a world whose state became unsound is not put back within the step: it is
    reported, and holds NaN until it is reset.
    """

    warning_names = FLAGS
    capabilities = MJWARP

    def __init__(
        self, setup: SimulationSetup, *, fence: Fence | None = None, cuda_graph: bool = True
    ) -> None:
        """Load the model, compile its kernels, and make worlds in the model's default state.

        Args:
            setup: Model, count, outputs and device; threads mean nothing here.
            fence: In place of the device's own.
            cuda_graph: Whether steps are to be captured, on a CUDA device.

        Raises:
            PhysicsError: the model or the device cannot be used, or an output is unknown.
        """
        redirect_warnings()
        check_counts(setup.num_worlds, setup.num_threads)
        check_outputs(setup.outputs)
        device = _device(setup.device)
        self.num_worlds = setup.num_worlds
        self._mj_model = load_model(setup.model)
        self.model = model_facts(self._mj_model, dtype=torch.float32, device=setup.device)
        self._fence = fence or (StreamFence(setup.device) if device.is_cuda else HostFence())
        with wp.ScopedDevice(device):
            self._warp_model, self._data = _put(self._mj_model, setup)
        self._state = _views(self._data, setup.num_worlds)
        self.qpos, self.qvel, self.ctrl = (self._view(name) for name in ("qpos", "qvel", "ctrl"))
        self._defaults = {name: view[:1].clone() for name, view in self._state.items()}
        self._post_constraint = bool(setup.outputs & _POST_CONSTRAINT)
        self._live = {name: self._live_output(name) for name in sorted(setup.outputs)}
        self._outputs = {name: live.clone() for name, live in self._live.items()}
        self._flags = torch.zeros(
            (setup.num_worlds, len(FLAGS)), dtype=torch.int32, device=setup.device
        )
        self._host_flags = torch.zeros_like(self._flags, device="cpu", pin_memory=device.is_cuda)
        self._diverged = torch.tensor(DIVERGED)
        self._check = self._bind_check()
        self._closed = False
        self._pid = os.getpid()
        self._launcher = self._compile(cuda_graph=cuda_graph)

    def output(self, name: str) -> Tensor:
        """See `Physics.output`."""
        if name not in self._outputs:
            raise PhysicsError(
                f"output {name!r} was not asked for; the set-up has: {', '.join(self._outputs)}"
            )
        return self._outputs[name]

    def step(self, substeps: int) -> Divergence | PendingStep | None:
        """See `Physics.step`; on a CUDA device it returns once everything is launched."""
        self._check_open()
        with self._fence.running():
            self._launcher.step(substeps)
            self._finish_outputs()
            wp.launch(flag_worlds, dim=self.num_worlds, inputs=self._check)
        self._fence.publish(self._flags, self._host_flags)
        for name, own in self._outputs.items():
            own.copy_(self._live[name])
        return self if self._fence.asynchronous else self.wait()

    def wait(self) -> Divergence | None:
        """See `PendingStep.wait`, of the latest step."""
        self._fence.wait()
        flags = self._host_flags
        if not flags.any():
            return None
        found = Divergence.of(flags > 0, FLAGS, self._diverged)
        return replace(found, worlds=found.worlds.to(self._flags.device))

    def reset(self, ids: Tensor, qpos: Tensor, qvel: Tensor) -> None:
        """See `Physics.reset`."""
        self._check_open()
        for name, view in self._state.items():
            view[ids] = self._defaults[name]
        self.qpos[ids] = qpos
        self.qvel[ids] = qvel
        if self._outputs:
            self._refresh(ids)

    def render_state(self, world: int) -> RenderState:
        """See `Physics.render_state`."""
        self._check_open()
        return RenderState(
            self._mj_model,
            self.qpos[world].to("cpu", torch.float64, copy=True),
            self.qvel[world].to("cpu", torch.float64, copy=True),
        )

    def runtime_diagnostics(self) -> BackendDiagnostics:
        """Which optimisations are in use, and why others are not."""
        return BackendDiagnostics(
            available=True, backend_type="mjwarp", diagnostics=dict(self._launcher.states())
        )

    def close(self) -> None:
        """See `Physics.close`. Memory goes once no view of it is left."""
        self._closed = True

    def __reduce__(self) -> NoReturn:
        raise TypeError("a simulation cannot be pickled; make it in the process that steps it")

    def _view(self, name: str) -> Tensor:
        if name in self._state:
            return self._state[name]
        return torch.zeros((self.num_worlds, 0), device=self._data.qpos.device.alias)

    def _live_output(self, name: str) -> Tensor:
        """(N, ...) mujoco-warp's own array of a field, of the shape that MuJoCo gives it."""
        shape = (self.num_worlds, *output_shape(self._mj_model, name)[0])
        array = getattr(self._data, name, None)
        if not isinstance(array, wp.array):
            raise PhysicsError(f"mjwarp computes no output {name!r}")
        live = wp.to_torch(array)
        if live.numel() != torch.Size(shape).numel():
            raise PhysicsError(f"mjwarp computes no output {name!r} of the shape {shape}")
        viewed: Tensor = live.view(shape)
        return viewed

    def _bind_check(self) -> list[Any]:
        data = self._data
        return [
            data.qpos,
            data.qvel,
            data.qacc,
            data.ctrl,
            data.overflow,
            UNSOUND,
            CONTACT_OVERFLOWS,
            CONSTRAINT_OVERFLOWS,
            wp.from_torch(self._flags),
        ]

    def _compile(self, *, cuda_graph: bool) -> StepLauncher:
        """Compile and capture; the worlds are in their default state again afterwards."""
        _logger.info("compiling kernels, or loading them from the cache")
        started = time.monotonic()
        launcher = StepLauncher(self._warp_model, self._data, self._fence, cuda_graph=cuda_graph)
        with self._fence.running():
            wp.launch(flag_worlds, dim=self.num_worlds, inputs=self._check)
        self._fence.publish(self._flags, self._host_flags)
        self._fence.wait()
        for name, view in self._state.items():
            view.copy_(self._defaults[name].expand_as(view))
        if self._outputs:
            self._refresh(torch.arange(self.num_worlds, device=self.qpos.device))
        drop_headers()
        _logger.info("kernels ready after %.1f s", time.monotonic() - started)
        return launcher

    def _refresh(self, ids: Tensor) -> None:
        """Compute the outputs of worlds from their state, as MuJoCo does after a reset.

        All worlds are computed, but the others' outputs stay those of their last substep.
        """
        with self._fence.running():
            mjw.forward(self._warp_model, self._data)
            self._finish_outputs()
        self._fence.publish(self._flags, self._host_flags)
        for name, own in self._outputs.items():
            own[ids] = self._live[name][ids]

    def _finish_outputs(self) -> None:
        """Compute what no step does: once, from the last stage of the last substep, as MuJoCo."""
        if self._post_constraint:
            mjw.rne_postconstraint(self._warp_model, self._data)

    def _check_open(self) -> None:
        if self._closed:
            raise PhysicsError("the simulation is closed")
        if os.getpid() != self._pid:
            raise PhysicsError(
                f"made in process {self._pid}, used in {os.getpid()}: its device does not survive"
                " a fork; make it in the process that steps it"
            )


def _device(name: str) -> Any:  # noqa: ANN401 - Warp has no types
    if torch.device(name).type not in MJWARP.torch_devices:
        offered = ", ".join(sorted(MJWARP.torch_devices))
        raise PhysicsError(f"mjwarp's worlds live on {offered}, not on {name!r}")
    try:
        return wp.get_device(name)
    except (RuntimeError, ValueError) as error:
        raise PhysicsError(f"Warp has no device {name!r}: {error}") from error


def _put(model: mujoco.MjModel, setup: SimulationSetup) -> tuple[Any, Any]:
    """mujoco-warp's model and worlds."""
    try:
        warp_model = mjw.put_model(model)
        data = mjw.make_data(model, nworld=setup.num_worlds)
    except (NotImplementedError, ValueError) as error:
        where = getattr(setup.model, "name", "the MJCF text")
        raise PhysicsError(f"mjwarp cannot simulate {where}: {error}") from error
    warp_model.opt.warn_overflow = 0  # kernels would print them; they are counted instead
    return warp_model, data


def _views(data: Any, num_worlds: int) -> dict[str, Tensor]:  # noqa: ANN401 - Warp has no types
    """(N, ...) views of the state that the model has."""
    arrays = {name: getattr(data, name, None) for name in _STATE}
    return {
        name: wp.to_torch(array)
        for name, array in arrays.items()
        if isinstance(array, wp.array) and array.size and array.shape[0] == num_worlds
    }
