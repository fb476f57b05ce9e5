"""Run directories with timings, a summary and a configuration, for tests of what reads them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.support.event_files import event_path, report, write_events

from drivetrain_api.algorithms import Precision
from drivetrain_api.artifacts.run_config import (
    HostFacts,
    ResolvedDevice,
    ResolvedDevices,
    RunConfig,
    RunFacts,
)
from drivetrain_api.artifacts.run_summary import RunSeeds, RunSummary
from drivetrain_api.compose import compose, layered, resolve_task
from drivetrain_api.trainingrun import TrainingRunSpec

BEGAN = 1_800_000_000.0
"""Wall time of the first report; one comes every second."""
STEPS_A_REPORT = 80

MEASURED: Mapping[str, float] = {
    "Perf/iteration_time": 0.020,
    "Perf/learning_time": 0.017,
    "Perf/learner_collector_wait_ms": 1.0,
    "Perf/learner_inference_ms": 1.0,
    "Perf/learner_collector_release_ms": 0.1,
    "Perf/learner_replay_batch_wait_ms": 0.1,
    "Perf/learner_replay_sample_ms": 0.2,
    "Perf/collector_inference_request_ms": 0.2,
    "Perf/collector_learner_action_wait_ms": 4.0,
    "Perf/collector_env_step_ms": 14.0,
    "Perf/collector_transition_extract_ms": 0.5,
    "Perf/collector_replay_write_ms": 1.0,
    "Perf/collector_metrics_publish_ms": 0.2,
    "Perf/total_fps": 400.0,
    "Train/mean_reward": 10.0,
}
"""A balanced run."""

SPEC: dict[str, Any] = {
    "algo": {"name": "sac", "num_envs": 8, "batch_size": 256, "updates_per_step": 4},
    "task": {"name": "half_cheetah"},
    "training": {"total_env_steps": 100_000},
}


def reports(
    count: int, values: Callable[[int], Mapping[str, float]] = lambda _: {}
) -> list[dict[str, float]]:
    """`count` reports of a balanced run, each with what `values` says of its number."""
    return [
        {**MEASURED, "Train/iteration": 10.0 * (number + 1), **values(number)}
        for number in range(count)
    ]


def make_measured_run(
    folder: Path,
    rows: Sequence[Mapping[str, float]],
    *,
    spec: Mapping[str, Any] | None = None,
    config: bool = True,
    device: str = "cpu",
    steps: int = STEPS_A_REPORT,
    seconds: float = 1.0,
    **summary: Any,
) -> Path:
    """A run directory with an event file, `run_summary.json` and `run_config.json`.

    Each row is a report, so many environment `steps` and `seconds` after the one before it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    write_events(
        event_path(folder),
        (
            report(steps * (number + 1), values, BEGAN + seconds * number)
            for number, values in enumerate(rows)
        ),
    )
    composed = TrainingRunSpec.model_validate(layered(SPEC, dict(spec or {})))
    composed = compose(composed, resolve_task(composed))
    told = {"total_env_steps": steps * len(rows), **summary}
    write_summary(folder, composed, len(rows), **told)
    if config:
        (folder / "run_config.json").write_text(run_config(composed, device).to_json())
    return folder


def write_summary(folder: Path, spec: TrainingRunSpec, count: int, **fields: Any) -> None:
    """`run_summary.json` of a run with so many reports; completed unless said otherwise."""
    content = RunSummary.model_validate(
        {
            "status": "completed",
            "algo": spec.algo.name,
            "task": spec.task.name,
            "sim_backend": spec.sim,
            "log_dir": str(folder),
            "seeds": RunSeeds(run=spec.seed, algo=spec.seed, env=spec.seed),
            "start_time_utc": datetime.fromtimestamp(BEGAN, UTC),
            "completed_iterations": 10 * count,
            "total_env_steps": STEPS_A_REPORT * count,
            **fields,
        }
    )
    (folder / "run_summary.json").write_text(content.to_json())


def run_config(spec: TrainingRunSpec, device: str = "cpu") -> RunConfig:
    """`run_config.json` of a composed spec, whose learner and collector got `device`."""
    resolved = ResolvedDevice(configured="auto", resolved=device)
    return RunConfig.of(
        spec,
        RunFacts(
            name="run",
            namespace="default",
            uid="u",
            attempt=1,
            created=datetime.fromtimestamp(BEGAN, UTC),
            world_size=spec.topology.world_size,
            resolved_devices=ResolvedDevices(learner=resolved, collector_tensor=resolved),
            resolved_precision=Precision.FP32,
            observation_dim=17,
            action_dim=6,
            versions={"python": "3.11"},
            host=HostFacts(
                platform="Linux",
                cpu_model="a CPU",
                cpu_capability="AVX2",
                usable_cpus=4,
                torch_threads=1,
                memory_bytes=1 << 30,
            ),
        ),
    )


def write_jsonl(folder: Path, rows: Sequence[Mapping[str, float]]) -> None:
    """The same reports as `metrics.jsonl`, in place of the event file."""
    event_path(folder).unlink()
    lines = [json.dumps({"metric_schema_version": 1, "attempt": 1, "start_env_steps": 0})]
    lines.extend(
        json.dumps(
            {
                "step": STEPS_A_REPORT * (number + 1),
                "iteration": 10 * (number + 1),
                "wall_time": BEGAN + number,
                "values": dict(values),
            }
        )
        for number, values in enumerate(rows)
    )
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")
