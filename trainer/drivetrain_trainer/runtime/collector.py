"""The collector as its learner holds it: spawned, booted, watched, stopped.

Importing this module imports no torch, so that the child can be spawned first and both
processes import at the same time::

    collector = CollectorProcess.spawn()          # the child begins to import
    ...                                           # so does this process; it makes the rings
    collector.boot(CollectorBoot(...))
    ready = collector.await_ready(timeout_s)
    request = collector.port.await_request(tick, timeout_s)
"""

from __future__ import annotations

import select
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol, Self, TypeVar

from drivetrain_trainer.runtime.child_process import ChildProcess
from drivetrain_trainer.runtime.faults import (
    CollectorFailedError,
    StaleTickError,
    StopRequestedError,
    exit_reason,
)
from drivetrain_trainer.tracing import NO_FLOW

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from torch import Tensor

    from drivetrain_api.artifacts.runtime_manifest import BackendDiagnostics
    from drivetrain_api.metrics import Family
    from drivetrain_api.tasks import TaskSpec
    from drivetrain_api.training import Simulator, TaskConfig
    from drivetrain_trainer.envs.vector_env import ActiveTerm, VectorEnv
    from drivetrain_trainer.runtime.collector_report import (
        CollectorReport,
        CollectorTotals,
        ReportReader,
    )
    from drivetrain_trainer.runtime.doorbell import Interrupt
    from drivetrain_trainer.runtime.ingress_consumer import IngressConsumer
    from drivetrain_trainer.runtime.learner_port import LearnerPort
    from drivetrain_trainer.runtime.metrics_board import RngSnapshot
    from drivetrain_trainer.runtime.transport import Transport
    from drivetrain_trainer.tracing import TickFlow, TraceSettings

TARGET: Final = "drivetrain_trainer.runtime.collector_loop:run"
_T = TypeVar("_T")
_FAREWELL_S: Final = 2.0
"""Between a child's last message and its end."""


class EnvFactory(Protocol):
    """Makes environments in the collector; picklable."""

    def __call__(self, *, num_envs: int, seed: int) -> VectorEnv:
        """New environments."""
        ...


@dataclass(frozen=True)
class TaskEnvFactory:
    """Environments of a task as a manifest names it."""

    task: TaskConfig
    sim: Simulator
    num_threads: int = 1
    """Threads with which physics is stepped."""
    device: str = "cpu"
    """Torch device of a native backend's worlds."""

    def __call__(self, *, num_envs: int, seed: int) -> VectorEnv:
        """New environments.

        Raises:
            UnknownTaskError, SpecError, EnvError: as of `load_task` and `make_env`.
        """
        # Imported where environments are made: the learner's side of this module stays light.
        from drivetrain_api.tasks import load_task  # noqa: PLC0415
        from drivetrain_trainer.envs.factory import make_env  # noqa: PLC0415

        spec: TaskSpec = load_task(self.task)
        return make_env(
            spec,
            num_envs=num_envs,
            seed=seed,
            num_threads=self.num_threads,
            sim=self.sim,
            device=self.device,
            overrides=self.task.overrides,
        )


@dataclass(frozen=True)
class CollectorBoot:
    """What a collector needs to know; sent to it once."""

    env_factory: EnvFactory
    seed: int
    """Of the environments' generators, 0 to 2**32 - 1; differs between ranks."""
    transport: Transport
    metrics_interval: int = 1
    """Ticks between two reports."""
    first_tick: int = 0
    """The first tick that it asks for."""
    rng_state: Tensor | None = None
    """State of an `RngSnapshot` to go on from; None starts from the seed."""
    trace: TraceSettings | None = None
    """Where its trace goes; None for none."""
    max_invalid_row_share: float = 0.01
    """Of `training.max_invalid_row_share`."""


@dataclass(frozen=True)
class CollectorReady:
    """A collector's environments, made and reset; the first request follows."""

    episode_length: int
    groups: int
    terms: tuple[ActiveTerm, ...] = ()
    metric_names: tuple[str, ...] = field(default=(), repr=False)
    """Names on the board; further ones may come."""
    log_families: tuple[Family, ...] = ()
    """Families of the environments' own metrics."""
    diagnostics: BackendDiagnostics | None = None
    """What the physics backend tells of its optimisations; None where it was not asked."""
    start_s: float = 0.0
    """Seconds from the boot message to this one."""


@dataclass(frozen=True)
class CollectorEnd:
    """How a collector ended, for the manifest's `shutdown.collector`."""

    exitcode: int | None
    """None where it never ended."""
    killed: bool
    """Whether it had to be killed, because it did not end in time."""

    @property
    def alive(self) -> bool:
        """Whether it is still there, which is a defect."""
        return self.exitcode is None

    @property
    def signal(self) -> int | None:
        """The signal that ended it."""
        return -self.exitcode if self.exitcode is not None and self.exitcode < 0 else None

    def __str__(self) -> str:
        return f"collector {exit_reason(self.exitcode)}" + (
            ", after its grace" if self.killed else ""
        )


class CollectorProcess:
    """A collector, from its spawn to its end.

    Every wait on it raises `CollectorFailedError` within milliseconds of its death, with the
    exception that it died of where it could still say so.
    """

    def __init__(self, child: ChildProcess) -> None:
        self._child = child
        self._transport: Transport | None = None
        self._port: LearnerPort | None = None
        self._ingress: IngressConsumer | None = None
        self._reader: ReportReader | None = None
        self._ready = False

    @classmethod
    def spawn(cls, *, preload: Sequence[str] = ()) -> Self:
        """Start the process; it imports, then waits for `boot`.

        Call it from the main thread: the child dies with the thread that started it.

        Args:
            preload: modules that the environments will need, imported meanwhile.
        """
        child = ChildProcess.spawn(TARGET, "collector", preload=preload, error=CollectorFailedError)
        return cls(child)

    def boot(self, boot: CollectorBoot, *, flow: TickFlow = NO_FLOW) -> None:
        """Hand over what it needs; it makes its environments.

        Args:
            boot: what it needs.
            flow: marks where its rows arrive in the learner's trace.

        Raises:
            CollectorFailedError: it is gone already.
        """
        transport = boot.transport
        peer = self._child.peer
        self._transport = transport
        self._port = transport.ring.learner_port(peer)
        self._ingress = transport.ingress.consumer(peer, first_tick=boot.first_tick, flow=flow)
        try:
            self._child.channel.send(boot)
        except OSError as error:
            self._child.wait(_FAREWELL_S)
            raise self._child.death() from error

    def await_ready(
        self, timeout_s: float, *, interrupt: Interrupt | None = None
    ) -> CollectorReady:
        """Wait until its environments are made and reset.

        Raises:
            CollectorFailedError: it died, or could not make them (the reason is in it).
            StaleTickError: it was not ready within `timeout_s` seconds.
            StopRequestedError: `interrupt` was set.
        """
        started = time.monotonic()
        poller = select.poll()
        for source in (self._child.channel, self._child.peer, interrupt):
            if source is not None:
                poller.register(source, select.POLLIN)
        ready = {fd for fd, _ in poller.poll(timeout_s * 1e3)}
        if self._child.channel.fileno() in ready:
            message = self._child.receive()
            if isinstance(message, CollectorReady):
                self._ready = True
                self._reader = _reader(message)
                return message
            self._child.wait(_FAREWELL_S)
            raise self._child.death()
        if self._child.peer.fileno() in ready:
            raise self._child.death()
        if ready:
            raise StopRequestedError
        waited = time.monotonic() - started
        raise StaleTickError(0, waited, waiting_for="the collector to make its environments")

    @property
    def port(self) -> LearnerPort:
        """The learner's end of the inference ring; after `boot`."""
        return _booted(self._port)

    @property
    def ingress(self) -> IngressConsumer:
        """The learner's end of the replay ingress; after `boot`."""
        return _booted(self._ingress)

    @property
    def pid(self) -> int:
        """Process number."""
        return self._child.pid

    @property
    def exitcode(self) -> int | None:
        """Exit status, negative for a signal; None while it runs."""
        return self._child.exitcode

    def report(self) -> CollectorReport | None:
        """Figures since the last report that was read; None where there are none newer.

        Raises:
            CollectorFailedError: it died in the middle of one.
            StaleTickError: it is stopped in the middle of one.
            UnknownMetricError: environments logged a tag that they did not declare.
        """
        board = _booted(self._transport).board.read(self._child.peer)
        return None if board is None else _booted(self._reader).read(board)

    def totals(self) -> CollectorTotals:
        """Figures since its start; later reports are of what comes after. Errors as of `report`."""
        self.report()
        return _booted(self._reader).totals

    def snapshot(self) -> RngSnapshot | None:
        """The latest generator state, asked for with `Command.SNAPSHOT`; errors as of `report`."""
        return _booted(self._transport).board.read_snapshot(self._child.peer)

    def stop(self, grace_s: float) -> CollectorEnd:
        """Ask it to end, whatever it waits for; kill it where it has not within `grace_s`.

        One that is not ready yet holds nothing worth waiting for and is killed at once. A
        second call only repeats the answer. Nothing of it is left afterwards; the transport
        stays readable until it is closed.
        """
        child = self._child
        killed = False
        if child.exitcode is None:
            if self._ready:
                self.port.stop()
                self.ingress.request_stop()
            if not child.wait(grace_s if self._ready else 0.0):
                killed = True
                child.kill()
        child.close()
        return CollectorEnd(child.exitcode, killed)

    def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        self._child.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._child.close()


def start_collector(boot: CollectorBoot) -> CollectorProcess:
    """Spawn and boot in one, where nothing is won by spawning early."""
    collector = CollectorProcess.spawn()
    collector.boot(boot)
    return collector


def _reader(ready: CollectorReady) -> ReportReader:
    # Imported here: by now the caller has imported torch to make the rings.
    from drivetrain_api.metrics import MetricSchema  # noqa: PLC0415
    from drivetrain_trainer.runtime.collector_report import ReportReader  # noqa: PLC0415

    return ReportReader(MetricSchema().declaring(ready.log_families))


def _booted(value: _T | None) -> _T:
    if value is None:
        raise RuntimeError("the collector has not been booted")
    return value
