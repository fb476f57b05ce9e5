"""What a trial does: a run's shape, a fault, its victim and its moment, all from one seed."""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

NAME = "chaos"
"""Of every trial's run."""
RESTARTS = 3
"""A trial has one fault; what it breaks is mended by then."""


class Fault(StrEnum):
    """What befalls a run."""

    KILL = "kill"
    """SIGKILL to one process."""
    HANG = "hang"
    """SIGSTOP to one process, for good."""
    PAUSE = "pause"
    """SIGSTOP to one process, for a second or two."""
    STOP = "stop"
    """SIGTERM or SIGINT to the command, which is typed again."""
    DISK_FULL = "disk full"
    """No byte left below the run directory, for a while or for good."""
    STATE_FULL = "state full"
    """No byte left for the executor's own state nor for the run, for a while."""
    FILE_LIMIT = "file limit"
    """A rank may write to no file of more than a few KiB any more: what a quota does."""
    MEMORY = "memory"
    """The memory cgroup filled to its limit, so that the kernel kills one process."""
    NETWORK = "network"
    """Nothing passes between ranks: for a moment, or until the run is taken for hung."""
    RESET = "reset"
    """Connections between ranks are refused and cut."""
    CLOCK = "clock"
    """The wall clock of chosen processes is set forward or back by hours."""


class Victim(StrEnum):
    """A process of a run."""

    COMMAND = "command"
    LAUNCHER = "launcher"
    TORCHRUN = "torchrun"
    RANK = "rank"
    COLLECTOR = "collector"


class When(StrEnum):
    """What a fault waits for, before a random delay."""

    LAUNCHED = "launched"
    """The launcher is there."""
    RANKS = "ranks"
    """The victim's rank is there: it imports, and meets the others."""
    COLLECTORS = "collectors"
    """The collectors are there."""
    STEPS = "steps"
    """A random part of the run's steps is done."""
    CHECKPOINT = "checkpoint"
    """A checkpoint is being written."""


class Topology(StrEnum):
    """How many ranks, and where."""

    ALONE = "one rank"
    POD = "two ranks in a pod"
    PODS = "two pods"


@dataclass(frozen=True)
class Plan:
    """One trial."""

    seed: int
    topology: Topology
    task: str
    steps: int
    checkpoint_steps: int
    save_replay: bool
    evaluator_steps: int
    fault: Fault
    victim: Victim
    rank: int
    """Whose process it is, where the victim has a rank."""
    when: When
    part: float
    """Of the run's steps, for `When.STEPS`."""
    delay_s: float
    lasts_s: float | None
    """How long the trouble lasts; None for good, or until the run is taken for hung."""
    sign: int
    """Direction of a clock; which signal stops."""
    hours: float

    def manifest(self, *, stall_s: int) -> dict[str, Any]:
        """Of the run, which takes seconds."""
        pod = {"ranksPerNode": 2} if self.topology is Topology.POD else {}
        pods = {"nodes": 2} if self.topology is Topology.PODS else {}
        return {
            "apiVersion": "drivetrain.dev/v1alpha1",
            "kind": "TrainingRun",
            "metadata": {"name": NAME},
            "spec": {
                "algo": {
                    "name": "sac",
                    "numEnvs": 2,
                    "batchSize": 16,
                    "updatesPerStep": 1,
                    "learningStarts": 8,
                    "actorHidden": [16],
                    "criticHidden": [16],
                    "replayRows": 1000,
                },
                "task": {"name": self.task},
                "seed": self.seed % 1000,
                "training": {"totalEnvSteps": self.steps, "logger": "jsonl", "logInterval": 5},
                "evaluator": {"interval": self.evaluator_steps, "episodes": 1, "target": 1e9},
                "checkpoint": {"interval": self.checkpoint_steps, "saveReplay": self.save_replay},
                "topology": pod | pods,
                "restart": {
                    "maxRestarts": RESTARTS,
                    "backoffSeconds": 0,
                    "stallSeconds": stall_s if self.hangs else 600,
                },
                "gracePeriodSeconds": 5 if self.hangs else 60,
            },
        }

    @property
    def ranks(self) -> int:
        """Of an attempt."""
        return 1 if self.topology is Topology.ALONE else 2

    @property
    def hangs(self) -> bool:
        """Whether the run must be taken for hung before it goes on."""
        return self.fault is Fault.HANG or (self.fault is Fault.NETWORK and self.lasts_s is None)

    def __str__(self) -> str:
        at = f"{self.part:.0%} of the steps" if self.when is When.STEPS else self.when.value
        lasts = "for good" if self.lasts_s is None else f"for {self.lasts_s:.1f} s"
        clock = f", {self.sign * self.hours:+.1f} h" if self.fault is Fault.CLOCK else ""
        return (
            f"{self.fault} of {self.victim} {self.rank} at {at} + {self.delay_s:.2f} s, {lasts}"
            f"{clock}; {self.topology}, {self.task}, {self.steps} steps, a checkpoint each "
            f"{self.checkpoint_steps}{' with replay' if self.save_replay else ''}"
        )


VICTIMS: dict[Fault, tuple[Victim, ...]] = {
    Fault.KILL: tuple(Victim),
    Fault.HANG: (Victim.LAUNCHER, Victim.RANK, Victim.RANK, Victim.COLLECTOR, Victim.COLLECTOR),
    Fault.PAUSE: tuple(Victim),
    Fault.FILE_LIMIT: (Victim.RANK,),
    Fault.MEMORY: (Victim.RANK, Victim.COLLECTOR, Victim.LAUNCHER),
    Fault.CLOCK: tuple(Victim),
}
"""Whom a fault may strike; the command stands for the whole run elsewhere."""
WEIGHTS: dict[Fault, int] = {
    Fault.KILL: 26,
    Fault.HANG: 12,
    Fault.PAUSE: 8,
    Fault.STOP: 8,
    Fault.DISK_FULL: 10,
    Fault.STATE_FULL: 4,
    Fault.FILE_LIMIT: 5,
    Fault.MEMORY: 9,
    Fault.NETWORK: 8,
    Fault.RESET: 4,
    Fault.CLOCK: 10,
}
ALONE = 0.6
"""Part of the runs that have one rank: they take half the time."""
BETWEEN_RANKS = (Fault.NETWORK, Fault.RESET)
"""Faults that need two of them."""


def plan_of(
    seed: int, faults: frozenset[Fault] = frozenset(Fault), fault: Fault | None = None
) -> Plan:
    """The trial of a seed.

    Args:
        seed: Of the trial.
        faults: Those that this machine allows.
        fault: The one to try, where it is not to be drawn.
    """
    draw = random.Random(seed)
    weights = [WEIGHTS[each] if each in faults else 0 for each in Fault]
    drawn = draw.choices(tuple(Fault), weights)[0]
    fault = fault or drawn
    together = (Topology.POD, Topology.PODS)
    topology = draw.choice(together)
    if fault not in BETWEEN_RANKS and draw.random() < ALONE:
        topology = Topology.ALONE
    steps = draw.randrange(600, 1400, 4)
    when = draw.choices(tuple(When), (1, 2, 2, 6, 2))[0]
    brief = draw.uniform(0.5, 2.5)
    for_good = draw.random() < 0.5
    return Plan(
        seed=seed,
        topology=topology,
        task=draw.choice(("inverted_pendulum", "half_cheetah")),
        steps=steps,
        checkpoint_steps=draw.choice((60, 120, 240)),
        save_replay=draw.random() < 0.3,
        evaluator_steps=draw.choice((300, 10**6)),
        fault=fault,
        victim=draw.choice(VICTIMS.get(fault, (Victim.COMMAND,))),
        rank=0 if topology is Topology.ALONE else draw.randrange(2),
        when=when,
        part=draw.uniform(0.0, 0.8),
        delay_s=draw.uniform(0.0, 0.5),
        lasts_s=_lasts(fault, brief, for_good=for_good),
        sign=draw.choice((-1, 1)),
        hours=draw.uniform(0.5, 30.0),
    )


def _lasts(fault: Fault, brief: float, *, for_good: bool) -> float | None:
    if fault in (Fault.PAUSE, Fault.STATE_FULL, Fault.RESET):
        return brief
    if fault in (Fault.DISK_FULL, Fault.NETWORK):
        return None if for_good else brief
    return None
