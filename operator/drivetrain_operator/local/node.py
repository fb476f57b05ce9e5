"""The node: pods as processes, and what a kubelet would report of them."""

from __future__ import annotations

import shutil
import signal
import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from drivetrain_api.machine import VISIBLE, cuda_devices, free_shared_memory
from drivetrain_api.memory import MemoryCgroup
from drivetrain_operator.local import pod_layout
from drivetrain_operator.local import pod_object as pods_
from drivetrain_operator.local.files import read_tail
from drivetrain_operator.local.pod_environment import Command, PodPaths, Rendezvous, resolve
from drivetrain_operator.local.pod_layout import PodStartError
from drivetrain_operator.local.pod_process import SIGNAL_BASE, PodProcess
from drivetrain_operator.local.processes import Guard, sweep, sweep_until_clean, token

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from datetime import datetime
    from pathlib import Path

    from drivetrain_operator.local.settings import LocalSettings

Object = dict[str, Any]

START_ERROR_CODE: Final = 128
"""Exit code of a container whose command cannot be executed."""
MESSAGE_BYTES: Final = 4096
"""What a kubelet keeps of a termination message: its end."""
SWEEP_SECONDS: Final = 0.2
"""Between two looks for what a pod left running."""


@dataclass
class _Running:
    process: PodProcess
    oom_kills_before: int
    kill_at: float | None = None
    exit_code: int | None = None


@dataclass(frozen=True)
class Place:
    """Where a run's pods live on this machine."""

    folder: Path
    """The run's folder in the store."""
    storage: Path
    """What stands for the volume; working directory of the pods."""

    def paths(self, pod: Mapping[str, Any]) -> PodPaths:
        """Files of a pod."""
        return PodPaths(self.folder / "pods" / pod["metadata"]["name"], self.folder / "progress")

    def log(self, pod_name: str, stream: str) -> Path:
        """Log file of ``stdout`` or ``stderr``; it stays when the pod goes."""
        return self.folder / "logs" / f"{pod_name}.{stream}.log"


class LocalNode:
    """Starts, stops and watches the processes of one run's pods."""

    def __init__(
        self,
        place: Place,
        *,
        run_uid: str,
        gpu_resource: str,
        settings: LocalSettings,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.place = place
        self._run_uid = run_uid
        self._gpu_resource = gpu_resource
        self._settings = settings
        self._clock = clock
        self._executor = str(uuid.uuid4())
        self._guard: Guard | None = None
        self._memory = MemoryCgroup()
        self._running: dict[str, _Running] = {}

    def kill_leftovers(self) -> bool:
        """SIGKILL to whatever an earlier executor of this run left; False where it resists."""
        return sweep_until_clean(self._run_uid)

    def start(
        self,
        pod: Object,
        *,
        rendezvous: Rendezvous,
        config_maps: Mapping[str, Object],
        now: datetime,
    ) -> Object:
        """Start a pod; gives back its object, running or with the reason why it cannot."""
        container = pods_.container_of(pod)
        try:
            devices = self._devices(pod, container)
            command = self._command(pod, container, devices, rendezvous, config_maps)
            self._spawn(pod, command)
        except _NotSchedulableError as error:
            return pods_.unschedulable(pod, str(error), now)
        except PodStartError as error:
            self.clear(pod)
            return pods_.ended(
                pod, exit_code=START_ERROR_CODE, reason=error.reason, message=str(error), now=now
            )
        return pods_.started(pod, now)

    def _devices(self, pod: Object, container: Mapping[str, Any]) -> dict[str, str]:
        """CUDA_VISIBLE_DEVICES of a pod that asks for GPUs; pods share none."""
        wanted = int(container.get("resources", {}).get("limits", {}).get(self._gpu_resource, 0))
        if not wanted:
            return {}
        there = cuda_devices(self._settings.environment)
        first = pods_.index_of(pod) * wanted
        chosen = there.visible[first : first + wanted]
        if len(chosen) < wanted:
            raise _NotSchedulableError(
                f"0/1 nodes are available: 1 Insufficient {self._gpu_resource}. Pods up to this "
                f"one want {first + wanted}: {there.searched}"
            )
        return {VISIBLE: ",".join(chosen)}

    def _command(
        self,
        pod: Object,
        container: Mapping[str, Any],
        devices: Mapping[str, str],
        rendezvous: Rendezvous,
        config_maps: Mapping[str, Object],
    ) -> Command:
        paths = self.place.paths(pod)
        paths.work.mkdir(parents=True, exist_ok=True)
        paths.progress.mkdir(exist_ok=True)
        layout = pod_layout.lay_out(
            pod, container, work=paths.work, storage=self.place.storage, config_maps=config_maps
        )
        command = resolve(
            pod,
            container,
            layout=layout,
            paths=paths,
            rendezvous=rendezvous,
            token=token(self._run_uid, self._executor, pod["metadata"]["uid"]),
            config_maps=config_maps,
            settings=self._settings,
        )
        return Command(command.words, {**command.environment, **devices})

    def _spawn(self, pod: Object, command: Command) -> None:
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        stdout, stderr = self.place.log(name, "stdout"), self.place.log(name, "stderr")
        stdout.parent.mkdir(exist_ok=True)
        terminal = self._settings.terminal if pods_.index_of(pod) == 0 else None
        self._watch_over()
        oom_kills = self._memory.oom_kills()
        process = PodProcess(
            command,
            folder=self.place.storage,
            stdout=stdout if terminal is None else terminal,
            stderr=stderr,
            settings=self._settings,
        )
        self._running[uid] = _Running(process, oom_kills)

    def _watch_over(self) -> None:
        if self._guard is None:
            self._guard = Guard(self._executor)
        self._guard.ensure()

    def stop(self, pod: Mapping[str, Any], grace: int) -> None:
        """SIGTERM now, SIGKILL to everything after `grace` seconds; at once for 0."""
        running = self._running.get(pod["metadata"]["uid"])
        if running is None or running.exit_code is not None:
            return
        ends = self._clock() + grace
        running.kill_at = ends if running.kill_at is None else min(ends, running.kill_at)
        if grace:
            running.process.send(signal.SIGTERM)

    def advance(self, pods: Mapping[str, Object], now: datetime) -> Iterator[Object]:
        """Pods that have ended, each once nothing of them runs any more.

        Args:
            pods: The pods by UID.
            now: When.
        """
        for uid, running in list(self._running.items()):
            if running.exit_code is None:
                running.exit_code = running.process.exit_code()
            overdue = running.kill_at is not None and self._clock() >= running.kill_at
            if running.exit_code is None and overdue:
                running.process.kill_group()
            # PID 1 of a container takes everything else with it when it ends.
            if (running.exit_code is None and not overdue) or sweep(uid):
                continue
            if running.exit_code is None:
                continue
            ended = self._ended(pods[uid], running, running.exit_code, now)
            running.process.close()
            del self._running[uid]
            yield ended

    def _ended(self, pod: Object, running: _Running, exit_code: int, now: datetime) -> Object:
        self.clear(pod)
        kills = self._memory.oom_kills() - running.oom_kills_before
        out_of_memory = exit_code != 0 and kills > 0
        message = read_tail(self.place.paths(pod).termination_log, MESSAGE_BYTES)
        if not message and out_of_memory:
            message = f"the memory cgroup killed {kills} process(es) while it ran"
        elif not message and exit_code == SIGNAL_BASE + signal.SIGBUS:
            message = f"bus error: {free_shared_memory()} bytes of /dev/shm are free"
        reason = "OOMKilled" if out_of_memory else "Error" if exit_code else "Completed"
        return pods_.ended(
            pod,
            exit_code=exit_code,
            signal=running.process.ended_by,
            reason=reason,
            message=message,
            now=now,
        )

    def descriptors(self) -> frozenset[tuple[str, int]]:
        """UIDs of pods, each with the descriptor that becomes readable when its process ends."""
        return frozenset(
            (uid, running.process.pidfd)
            for uid, running in self._running.items()
            if running.exit_code is None
        )

    def wake_after(self) -> float | None:
        """Seconds until `advance` has something to do that no descriptor tells of."""
        waits = []
        for running in self._running.values():
            if running.exit_code is not None:
                waits.append(SWEEP_SECONDS)
            elif running.kill_at is not None:
                waits.append(max(SWEEP_SECONDS, running.kill_at - self._clock()))
        return min(waits, default=None)

    def clear(self, pod: Mapping[str, Any]) -> None:
        """Remove what lies outside the store of a pod that is over."""
        pod_layout.clear_temporary(pod["metadata"]["uid"])

    def remove(self, pod: Mapping[str, Any]) -> None:
        """Remove everything but the logs of a pod that is gone."""
        self.clear(pod)
        shutil.rmtree(self.place.paths(pod).work, ignore_errors=True)

    def close(self) -> None:
        """Kill what still runs, by the guard's hand, and let the guard go."""
        if self._guard is not None:
            self._guard.close()
            self._guard = None
        for uid, running in self._running.items():
            running.process.close()
            pod_layout.clear_temporary(uid)
        self._running.clear()


class _NotSchedulableError(RuntimeError):
    """No room for a pod; the scheduler's words."""
