"""How a step is launched: kernel by kernel, or as one CUDA graph."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import mujoco_warp as mjw
import warp as wp

from drivetrain_trainer.physics.optimizations import optimization

if TYPE_CHECKING:
    from collections.abc import Mapping

    from drivetrain_api.artifacts.runtime_manifest import OptimizationState
    from drivetrain_trainer.physics.warp_fence import Fence

_ON_CPU = "worlds are on the CPU, which has no CUDA graphs"
_logger = logging.getLogger(__name__)


class StepLauncher:
    """Launches substeps; on a CUDA device as a captured graph, where that can be had.

    A substep is a hundred launches and more: without a graph the host is the bottleneck.
    """

    def __init__(self, model: Any, data: Any, fence: Fence, *, cuda_graph: bool = True) -> None:  # noqa: ANN401 - Warp has no types
        """Compile the kernels by a first step, whose result means nothing, then capture.

        Args:
            model: mujoco-warp's model.
            data: Its worlds.
            fence: Where launches run.
            cuda_graph: Whether a graph is asked for.
        """
        self._model, self._data, self._fence = model, data, fence
        self._requested = cuda_graph
        self._graph: Any = None
        device = data.qpos.device
        self._conditional_refused = _conditional_refusal(device)
        model.opt.graph_conditional = self._conditional_refused is None
        with fence.running():
            mjw.step(model, data)
        self._graph_refused = _graph_refusal(device) if cuda_graph else "not asked for"
        if self._graph_refused is None:
            self._graph_refused = self._capture()

    def step(self, substeps: int) -> None:
        """Launch substeps; within `Fence.running`."""
        for _ in range(substeps):
            if self._graph is not None:
                wp.capture_launch(self._graph)
            else:
                mjw.step(self._model, self._data)

    def states(self) -> Mapping[str, OptimizationState]:
        """Optimisation -> its state."""
        conditional = self._conditional_refused
        if conditional is None and self._graph_refused is not None:
            conditional = "there is no CUDA graph to hold conditional nodes"
        return {
            "cuda_graph": optimization(refused=self._graph_refused, requested=self._requested),
            "cuda_graph_conditional": optimization(refused=conditional, requested=self._requested),
            "event_backed_step": optimization(
                refused=None if self._fence.asynchronous else "a CPU's launch returns when done"
            ),
        }

    def _capture(self) -> str | None:
        """Capture a substep; why it could not be, None where it was."""
        try:
            with self._fence.running(), wp.ScopedCapture() as capture:
                mjw.step(self._model, self._data)
        except Exception as error:  # noqa: BLE001 - Warp raises several kinds; kernels still work
            _logger.warning("no CUDA graph: %s", error)
            return f"capture failed: {error}"[:500]
        self._graph = capture.graph
        return None


def _graph_refusal(device: Any) -> str | None:  # noqa: ANN401 - Warp has no types
    if not device.is_cuda:
        return _ON_CPU
    if not wp.is_mempool_enabled(device):
        return "the driver offers no memory pools, without which a step cannot be captured"
    return None


def _conditional_refusal(device: Any) -> str | None:  # noqa: ANN401 - Warp has no types
    if not device.is_cuda:
        return _ON_CPU
    if not wp.is_conditional_graph_supported():
        return "the driver or Warp's build is older than CUDA 12.4"
    return None
