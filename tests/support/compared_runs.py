"""Runs and suites of the real format, with curves that were made up, for comparisons."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from tests.support.measured_run import BEGAN, make_measured_run

from drivetrain_api.algorithms import AlgoName
from drivetrain_api.artifacts.suite_record import (
    MemberState,
    SuiteBackend,
    SuiteMember,
    SuiteRecord,
)

REPORTS = 50


@dataclass(frozen=True)
class MadeUp:
    """A run's curve: a logistic rise to `best`, half of it after `midway` of the steps."""

    best: float
    midway: float = 0.4
    noise: float = 0.0
    steps: int = 2_000
    """Environment steps of a report."""
    seconds: float = 6.0
    """Between reports."""
    reports: int = REPORTS
    evaluated: bool = True
    """Each fifth report has an evaluated return."""
    spec: Mapping[str, Any] = field(default_factory=dict)
    summary: Mapping[str, Any] = field(default_factory=dict)

    def write(self, folder: Path, seed: int) -> Path:
        """The run directory."""
        generator = np.random.default_rng(seed)
        rows = []
        for number in range(self.reports):
            done = 1 / (1 + np.exp(-(number / REPORTS - self.midway) * 12))
            value = self.best * done + generator.normal(0, self.noise or 1e-9)
            row = {"Train/mean_reward": 0.9 * value, "Train/iteration": 10.0 * (number + 1)}
            if self.evaluated and number % 5 == 4:
                row["eval-rollout/reward"] = value
            rows.append(row)
        training = {"total_env_steps": self.steps * REPORTS}
        spec = {"seed": seed, "training": training, **self.spec}
        return make_measured_run(
            folder, rows, spec=spec, steps=self.steps, seconds=self.seconds, **self.summary
        )


def flat(value: float, **changes: Any) -> MadeUp:
    """A run that returns the same from its first report to its last."""
    return MadeUp(best=value, midway=-1e3, **changes)


def write_seeds(
    folder: Path, made: Callable[[int], MadeUp], seeds: Sequence[int], task: str = "half_cheetah"
) -> Path:
    """A folder of runs, one a seed, as an artifact directory has them."""
    for index, seed in enumerate(seeds):
        one = made(seed)
        spec = {**one.spec, "task": {"name": task}}
        MadeUp(**{**vars(one), "spec": spec}).write(folder / f"run_{index}_seed_{seed}", seed)
    return folder


def write_suite(
    root: Path,
    made: Mapping[str, Callable[[int], MadeUp]],
    seeds: Sequence[int],
    *,
    task: str = "half_cheetah",
    overrides: Mapping[str, Mapping[str, Any]] | None = None,
    states: Mapping[tuple[str, int], tuple[MemberState, str | None]] | None = None,
) -> Path:
    """A suite: variant -> its runs by seed; members of `states` end so, without a directory."""
    members = []
    for variant, runs in made.items():
        above = Path() if len(made) == 1 else Path(variant)
        folder = above / "sac" / task
        ended = {seed: states[variant, seed] for seed in seeds if (variant, seed) in (states or {})}
        for index, seed in enumerate(seeds):
            directory = folder / f"run_{index}_seed_{seed}"
            state, reason = ended.get(seed, (MemberState.COMPLETE, None))
            if seed not in ended:
                spec = {**runs(seed).spec, "task": {"name": task}}
                MadeUp(**{**vars(runs(seed)), "spec": spec}).write(root / directory, seed)
            members.append(
                SuiteMember(
                    name=f"s-{variant}-{index}",
                    variant=variant,
                    overrides=dict((overrides or {}).get(variant, {})),
                    seed=seed,
                    run_idx=index,
                    algo=AlgoName.SAC,
                    task=task,
                    state=state,
                    reason=reason,
                    run_directory=str(directory),
                )
            )
    record = SuiteRecord(
        name=root.name,
        invocation="first",
        created=datetime.fromtimestamp(BEGAN, UTC),
        backend=SuiteBackend.LOCAL,
        template={},
        members=tuple(members),
    )
    (root / "suite.json").write_text(record.to_json())
    return root


def write_timings(
    directory: Path, stages: Mapping[str, Sequence[float]], *, cpu: str, gpu: str | None = None
) -> None:
    """`timings.json` and its hardware in an artifact directory, a run index each."""
    gpus = [] if gpu is None else [{"model": gpu}]
    hardware = {
        "hw-1": {
            "cpu": {"guest_visible_name": cpu, "logical_threads": 16, "physical_cores": 8},
            "memory": {"limit_bytes": 64 << 30, "source": "cgroup_v2"},
            "gpus": gpus,
        }
    }
    content = {
        stage: {
            "total_seconds": sum(seconds),
            "runs": [
                {"seconds": one, "hardware_id": "hw-1", "run_idx": index}
                for index, one in enumerate(seconds)
            ],
        }
        for stage, seconds in stages.items()
    }
    (directory / "timings.json").write_text(json.dumps(content))
    (directory / "timings_hardware.json").write_text(
        json.dumps({"schema_version": 1, "hardware": hardware})
    )
