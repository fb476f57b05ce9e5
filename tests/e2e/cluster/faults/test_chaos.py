"""Runs on a node that are troubled at random: they go on from the newest checkpoint, whole.

``DRIVETRAIN_CHAOS_SEED`` is the first trial's seed, ``DRIVETRAIN_CHAOS_TRIALS`` how many there
are; a failed trial prints the words that repeat it.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.e2e.cluster.faults.trial import (
    CHECKPOINT_STEPS,
    NAME,
    TOTAL_STEPS,
    Trial,
    limited,
)
from tests.support.chaos.invariants import directory_faults, report_faults
from tests.support.kubernetes.kubectl import CommandError, Kubectl
from tests.support.kubernetes.pod_processes import PodProcesses

from drivetrain_api.exit_codes import ExitCode

pytestmark = [pytest.mark.e2e, pytest.mark.nightly, pytest.mark.timeout(1800)]

FIRST = int(os.environ.get("DRIVETRAIN_CHAOS_SEED", "0"))
TRIALS = int(os.environ.get("DRIVETRAIN_CHAOS_TRIALS", "15"))
CLAIM = "small"
STALL_S = 10
KILLED = 137


class Fault(StrEnum):
    """What befalls a run."""

    KILL_RANK = "kill -9 of a rank"
    KILL_COLLECTOR = "kill -9 of a collector"
    KILL_LAUNCHER = "kill -9 of a container's first process"
    HANG = "a collector that hangs"
    MEMORY = "a container out of memory"
    DELETE = "a deleted pod"
    VOLUME = "a full volume"
    LINK = "a link between two pods that is down until the run is taken for hung"
    FLAP = "a link between two pods that is down for seconds"
    STOP = "a run that is suspended"


@dataclass(frozen=True)
class Plan:
    """One trial."""

    seed: int
    fault: Fault
    nodes: int
    index: int
    """Of the pod that is struck."""
    trains: bool
    """Whether there is a checkpoint by then; else its ranks have just begun."""
    delay_s: float
    lasts_s: float

    @classmethod
    def of(cls, seed: int) -> Plan:
        """The trial of a seed: each fault once in ten, in another order each time."""
        draw = random.Random(seed)
        faults = list(Fault)
        random.Random(seed // len(faults)).shuffle(faults)
        fault = faults[seed % len(faults)]
        nodes = 2 if fault in (Fault.LINK, Fault.FLAP) else draw.choice((1, 1, 2))
        late = fault in (Fault.VOLUME, Fault.FLAP, Fault.MEMORY, Fault.STOP)
        return cls(
            seed=seed,
            fault=fault,
            nodes=nodes,
            index=draw.randrange(nodes),
            trains=late or draw.random() < 0.7,
            delay_s=draw.uniform(0.0, 2.0),
            lasts_s=draw.uniform(1.0, 5.0),
        )


@pytest.mark.parametrize("seed", range(FIRST, FIRST + TRIALS))
def test_a_troubled_run_goes_on(seed: int, trial: Trial, namespace: Kubectl) -> None:
    plan = Plan.of(seed)
    print(f"DRIVETRAIN_CHAOS_SEED={seed} DRIVETRAIN_CHAOS_TRIALS=1: {plan}")
    chaos = Chaos(plan, trial, namespace)
    chaos.begin()
    chaos.strike()
    chaos.rest()
    assert list(chaos.faults()) == []
    trial.delete(NAME)
    trial.gone(NAME)
    trial.witness.check()


class Chaos:
    """A trial under way."""

    def __init__(self, plan: Plan, trial: Trial, kubectl: Kubectl) -> None:
        self.plan, self.trial, self.kubectl = plan, trial, kubectl
        self.checkpoint = 0
        """Step of one that the first attempt is known to have written."""
        self.pods: list[PodProcesses] = []
        """Of every attempt."""

    def begin(self) -> None:
        """The run, as far as its moment."""
        sections: dict[str, Any] = {
            "topology": {"nodes": self.plan.nodes},
            "training": {"totalEnvSteps": TOTAL_STEPS, "logger": "jsonl", "logInterval": 5},
        }
        if self.plan.fault is Fault.MEMORY:
            sections["podTemplate"] = limited("1300Mi")
        if self.plan.fault is Fault.VOLUME:
            self._small_volume()
            sections["storage"] = {"claimName": CLAIM}
            sections["restart"] = {"maxRestarts": 1, "backoffSeconds": 20}
        self.trial.start(**sections)
        if self.plan.trains:
            self.checkpoint = self.trial.trains()
        else:
            self.trial.wait(self._rank, "rank that begins")
        time.sleep(self.plan.delay_s)

    def strike(self) -> None:
        """The fault, and what must come of it."""
        self._note_pods(1)
        self.checkpoint = self.trial.checkpoint(1)
        strikes: dict[Fault, Callable[[], None]] = {
            Fault.KILL_RANK: self._kill_rank,
            Fault.KILL_COLLECTOR: self._kill_collector,
            Fault.KILL_LAUNCHER: self._kill_launcher,
            Fault.HANG: self._hang,
            Fault.MEMORY: self._fill_memory,
            Fault.DELETE: self._delete,
            Fault.VOLUME: self._fill_volume,
            Fault.LINK: self._cut,
            Fault.FLAP: self._flap,
            Fault.STOP: self._stop,
        }
        strikes[self.plan.fault]()

    def rest(self) -> None:
        """Suspend the run: its files are at rest then."""
        self._note_pods(self.trial.status(NAME)["attempt"])
        self.trial.change(NAME, suspend=True)
        self.trial.tells("Suspended", "True", "SuspendedBySpec")

    def faults(self) -> Iterator[str]:
        """What does not hold."""
        for pod in self.pods:
            for process in pod.all():
                yield f"{process} is left"
        directory = self._directory()
        yield from directory_faults(directory, complete=False)
        seen = {self.checkpoint: 1} if self.checkpoint else {}
        yield from report_faults(directory / "metrics.jsonl", seen, CHECKPOINT_STEPS)

    def _note_pods(self, attempt: int) -> None:
        self.pods += [self.trial.processes(attempt, i) for i in range(self.plan.nodes)]

    def _directory(self) -> Path:
        if self.plan.fault is not Fault.VOLUME:
            return self.trial.run_directory()
        (found,) = self._volume().glob("logs/sac/inverted_pendulum/*/")
        return found

    # -- processes -------------------------------------------------------------------------

    def _rank(self) -> psutil.Process | None:
        return self.trial.processes(1, self.plan.index).rank(self.plan.index)

    def _collector(self) -> psutil.Process | None:
        for process in self.trial.processes(1, self.plan.index).all():
            with suppress(psutil.Error):
                if "runtime.child_main" in " ".join(process.cmdline()):
                    return process
        return None

    def _kill_rank(self) -> None:
        self.trial.wait(self._rank, "rank").kill()
        self._resumes("AttemptFailed", ExitCode.FAILED, "was killed by SIGKILL")

    def _kill_collector(self) -> None:
        self.trial.wait(self._collector, "collector").kill()
        self._resumes("AttemptFailed", ExitCode.FAILED, "collector_failure")

    def _kill_launcher(self) -> None:
        self.trial.processes(1, self.plan.index).launcher().kill()
        self._resumes("AttemptFailed", KILLED, "137")

    def _hang(self) -> None:
        self.trial.wait(self._collector, "collector").suspend()
        self._stalls()

    def _stalls(self) -> None:
        self.trial.change(NAME, restart={"stallSeconds": STALL_S})
        hung = self.trial.tells("Stalled", "True", "NoProgress", f"no progress for {STALL_S} s")
        self.trial.change(NAME, restart={"stallSeconds": 600})  # the next may be slow to start
        assert hung["history"][0]["reason"] == "Stalled", hung

    # -- what a pod lives on ---------------------------------------------------------------

    def _fill_memory(self) -> None:
        fill = ("dd", "if=/dev/zero", "of=/dev/shm/fill", "bs=1M", "count=1000")
        pod = self.trial.pod(1, self.plan.index)["metadata"]["name"]
        with suppress(CommandError):  # it may be what is killed
            self.kubectl("exec", pod, "--", *fill)
        self.trial.trains(2)
        code = self.trial.endings(1)[self.plan.index].code
        self._resumes("OOMKilled", code, "OOMKilled")

    def _delete(self) -> None:
        pod = self.trial.pod(1, self.plan.index)["metadata"]["name"]
        self.trial.api.delete("v1", "Pod", pod, self.trial.namespace)
        self._resumes("AttemptFailed", ExitCode.CHECKPOINTED, "")

    def _small_volume(self) -> None:
        """A claim of its own, and 64 MiB of memory in the place of its folder."""
        claim = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": CLAIM},
            "spec": {
                "accessModes": ["ReadWriteMany"],
                "resources": {"requests": {"storage": "1Gi"}},
            },
        }
        self.trial.api.create(claim, namespace=self.trial.namespace)
        path = self.trial.wait(self._bound, "claim that is bound")
        self.trial.node.sandbox.run(
            "mount", "-t", "tmpfs", "-o", "size=64m,mode=0777", "small", path
        )

    def _bound(self) -> Path | None:
        claim = self.trial.api.get("v1", "PersistentVolumeClaim", CLAIM, self.trial.namespace)
        volume = claim["spec"].get("volumeName")
        return self.trial.node.volumes.path(volume) if volume else None

    def _volume(self) -> Path:
        """As it is within the node."""
        path = self._bound()
        assert path is not None
        return Path(f"/proc/{self.trial.node.sandbox.first}/root") / path.relative_to("/")

    def _fill_volume(self) -> None:
        fill = self._volume() / "fill"
        with fill.open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(4096))
        self.trial.tells("Restarting", "True", "BackingOff", "No space left on device")
        fill.unlink()
        self._resumes("AttemptFailed", ExitCode.FAILED, "No space left on device")

    # -- between pods ----------------------------------------------------------------------

    @contextmanager
    def _link_down(self) -> Iterator[None]:
        """The node's end of the pod's link, so that the pod keeps its routes."""
        pid = str(self.trial.processes(1, self.plan.index).launcher().pid)
        shown = subprocess.run(
            ["nsenter", "--target", pid, "--net", "ip", "-o", "link", "show", "eth0"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        found = re.search(r"eth0@if(\d+):", shown)
        assert found is not None, shown
        links = self.trial.node.sandbox.run("ip", "-o", "link")
        (peer,) = re.findall(rf"^{found[1]}: ([^@:]+)", links, re.MULTILINE)
        self.trial.node.sandbox.run("ip", "link", "set", peer, "down")
        try:
            yield
        finally:
            with suppress(RuntimeError):  # it went with the pod
                self.trial.node.sandbox.run("ip", "link", "set", peer, "up")

    def _cut(self) -> None:
        with self._link_down():
            self._stalls()
        self._resumes("Stalled", None, "no progress")

    def _flap(self) -> None:
        with self._link_down():
            time.sleep(self.plan.lasts_s)
        before = self.checkpoint
        self.trial.wait(lambda: self.trial.checkpoint(1) > before, "checkpoint after the link")
        status = self.trial.status(NAME)
        assert (status["attempt"], status["restarts"]) == (1, 0), status

    def _stop(self) -> None:
        self.rest()
        stopped = self.trial.steps(1)[-1]
        self.trial.change(NAME, suspend=False)
        self.trial.trains(2)
        assert self.trial.steps(2)[0] >= stopped
        status = self.trial.status(NAME)
        assert (status["restarts"], status["disruptions"]) == (0, 0), status

    def _resumes(self, reason: str, code: int | None, words: str) -> None:
        status = self.trial.resumes(reason, counted=True, checkpoint=self.checkpoint, code=code)
        assert words in status["history"][0]["message"], status
