"""What environments need of a simulator: the port, and the plain data that crosses it."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, Self

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from torch import Tensor


class PhysicsError(RuntimeError):
    """The simulator refused a model, a field or a call; more steps cannot mend it."""


class BackendWorkerError(PhysicsError):
    """The external simulator process of a backend is gone, or no longer answers."""

    def __init__(self, backend: str, pid: int, how: str) -> None:
        self.backend = backend
        self.pid = pid
        super().__init__(f"simulator process {pid} of backend {backend!r} {how}")


class BackendKind(StrEnum):
    """Where a backend's worlds live, seen from the process that steps environments."""

    HOST_BRIDGE = "host_bridge"
    """In host memory of the same process; tensors for another device are packed and copied."""
    NATIVE = "native"
    """On the backend's own device, in the same process."""
    EXTERNAL_PROCESS = "external_process"
    """In a simulator process of their own, the backend worker."""


@dataclass(frozen=True)
class BackendCapabilities:
    """What a backend offers, so that what it cannot do is refused before it is built."""

    kind: BackendKind
    torch_devices: frozenset[str]
    """Device types on which environments over it can give their tensors: ``cpu``, ``cuda``."""
    carriers: frozenset[str] = frozenset()
    """Of a host bridge: device types to which it carries packed tensors."""
    packed_transfer: bool = False
    """Whether it has plans for that: one copy a step in each direction, whatever the terms."""
    hip: bool = False
    """Of another kind: whether its CUDA device may be an AMD one. A host bridge's may."""

    def __post_init__(self) -> None:
        bridge = self.kind is BackendKind.HOST_BRIDGE
        if bool(self.carriers) != bridge or self.packed_transfer != bridge:
            raise ValueError("a host bridge, and nothing else, has carriers and packed transfers")
        if not self.torch_devices or not self.carriers <= self.torch_devices:
            raise ValueError(
                f"torch_devices {sorted(self.torch_devices)} must hold at least one device, and "
                f"the carriers {sorted(self.carriers)}"
            )


@dataclass(frozen=True, kw_only=True)
class SimulationSetup:
    """Which worlds a backend makes."""

    model: Path | str
    """An MJCF file, or MJCF text."""
    num_worlds: int
    num_threads: int = 1
    outputs: frozenset[str] = frozenset()
    """Derived fields that terms read, by their MuJoCo names, such as ``xpos``."""
    device: str = "cpu"
    """Torch device of a native backend's worlds: ``cpu``, or ``cuda`` with an index."""


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """Sizes, names and constants of the compiled model; tensors have the backend's dtype."""

    nq: int
    nv: int
    nu: int
    timestep: float
    """Seconds of one substep."""
    initial_qpos: Tensor
    """(nq,), the model's reference configuration."""
    initial_qvel: Tensor
    """(nv,), zeros."""
    control_low: Tensor
    """(nu,), actuator units; -inf where the actuator is not limited."""
    control_high: Tensor
    """(nu,), actuator units; inf where the actuator is not limited."""
    body_mass: Tensor
    """(nbody,), kg; body 0 is the world."""
    body_names: tuple[str, ...]
    site_names: tuple[str, ...]
    actuator_names: tuple[str, ...]

    def body(self, name: str) -> int:
        """Index of a body.

        Raises:
            PhysicsError: with near matches.
        """
        return _index("body", name, self.body_names)

    def site(self, name: str) -> int:
        """Index of a site.

        Raises:
            PhysicsError: with near matches.
        """
        return _index("site", name, self.site_names)


@dataclass(frozen=True)
class Divergence:
    """What a simulator reported of the latest step; absent where nothing was wrong."""

    worlds: Tensor
    """(N,) bool: these must be reset, their step means nothing."""
    counts: Mapping[str, int]
    """Worlds that raised each warning, by MuJoCo's name without its prefix (``BADQACC``)."""
    first: Mapping[str, int] = field(default_factory=dict)
    """Index of the first world that must be reset, by the warnings that say so."""

    @classmethod
    def of(cls, raised: Tensor, names: Sequence[str], fatal: Tensor) -> Self:
        """What warnings tell.

        Args:
            raised: (N, n) bool on the host.
            names: Of the n columns.
            fatal: (n,) bool, after which a world must be reset.
        """
        columns = zip(names, raised.sum(0).tolist(), raised.int().argmax(0).tolist(), strict=True)
        found = {name: (count, world) for name, count, world in columns if count}
        resets = {name for name, is_fatal in zip(names, fatal.tolist(), strict=True) if is_fatal}
        return cls(
            worlds=(raised & fatal).any(1),
            counts={name: count for name, (count, _) in found.items()},
            first={name: world for name, (_, world) in found.items() if name in resets},
        )


class PendingStep(Protocol):
    """A step that its backend's device still runs, while the host goes on to enqueue work."""

    def wait(self) -> Divergence | None:
        """Wait until physics is done, not for what was enqueued after it; then what was wrong.

        To be called before the host reads anything of the step, so that the time is charged
        to physics and not to whoever reads first.
        """
        ...


@dataclass(frozen=True)
class RenderState:
    """One world, to be drawn: copies, but for the model."""

    model: Any
    """The ``mujoco.MjModel``; not to be written to."""
    qpos: Tensor
    """(nq,) float64."""
    qvel: Tensor
    """(nv,) float64."""


class Physics(Protocol):
    """N worlds of one model.

    State tensors are live views of the simulator's memory: a write is the world's state at
    its next call. Outputs are those of the last substep and must not be written.
    """

    @property
    def capabilities(self) -> BackendCapabilities:
        """What the backend offers."""
        ...

    @property
    def model(self) -> ModelFacts:
        """The compiled model."""
        ...

    @property
    def num_worlds(self) -> int:
        """N."""
        ...

    @property
    def warning_names(self) -> tuple[str, ...]:
        """Every name that `Divergence.counts` may hold."""
        ...

    @property
    def qpos(self) -> Tensor:
        """(N, nq) generalized positions, a strided view."""
        ...

    @property
    def qvel(self) -> Tensor:
        """(N, nv) generalized velocities, a strided view."""
        ...

    @property
    def ctrl(self) -> Tensor:
        """(N, nu) controls, a strided view."""
        ...

    def output(self, name: str) -> Tensor:
        """(N, ...) a derived field that the set-up asked for.

        Raises:
            PhysicsError: the set-up did not ask for it.
        """
        ...

    def step(self, substeps: int) -> Divergence | PendingStep | None:
        """Advance every world by `substeps` of the model's time step under `ctrl`.

        Returns:
            What was wrong, None for nothing; or, of a backend whose device runs on by itself,
            the step under way: tensor operations of the same device see its results, and the
            host does after `PendingStep.wait`.
        """
        ...

    def reset(self, ids: Tensor, qpos: Tensor, qvel: Tensor) -> None:
        """Put worlds into a state, all else at the model's defaults; others stay as they are.

        Args:
            ids: (n,) int64, ascending, each once.
            qpos: (n, nq).
            qvel: (n, nv).
        """
        ...

    def render_state(self, world: int) -> RenderState:
        """A copy of one world's state, and the model to draw it with."""
        ...

    def close(self) -> None:
        """Let go of threads and memory; later calls raise, a second close does nothing."""
        ...


def _index(kind: str, name: str, names: tuple[str, ...]) -> int:
    if name in names:
        return names.index(name)
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    hint = f"did you mean {', '.join(near)}?" if near else f"it has: {', '.join(names)}"
    raise PhysicsError(f"the model has no {kind} {name!r}; {hint}")
