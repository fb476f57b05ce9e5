"""A stand-in for the launcher of a suite's members: writes what a trainer would, in no time.

The folder of the command may hold ``<member>.plan``: ``fail`` exits with 3, ``hang`` waits for
SIGTERM and then says that it checkpointed. Otherwise the member is complete at once, with
``miss`` below its threshold.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from drivetrain_api.artifacts.outcome import RunStatus
from drivetrain_api.artifacts.run_config import (
    ResolvedDevice,
    ResolvedDevices,
    RunConfig,
    RunFacts,
)
from drivetrain_api.artifacts.run_summary import RunSeeds, RunSummary
from drivetrain_api.attempt import AttemptSpec
from drivetrain_api.compose import compose, resolve_task
from drivetrain_api.timings.model import StageRun
from drivetrain_api.timings.store import TimingsDirectory

STORAGE = Path(os.environ["DRIVETRAIN_STORAGE"])


def main() -> None:
    text = Path(os.environ["DRIVETRAIN_SPEC_FILE"]).read_text(encoding="utf-8")
    attempt = AttemptSpec.model_validate_json(text)
    with (STORAGE / "started").open("a") as file:
        file.write(f"{attempt.name} {os.environ.get('CUDA_VISIBLE_DEVICES', '')}\n")
    plan = STORAGE / f"{attempt.name}.plan"
    what = plan.read_text().strip() if plan.exists() else "complete"
    if what == "fail":
        finish(3, "a wheel fell off")
    if what == "hang":
        signal.signal(signal.SIGTERM, lambda *_: finish(75, "stopped"))
        (STORAGE / f"{attempt.name}.hangs").touch()
        while True:
            time.sleep(60)
    write(attempt)
    finish(0, "done", missed=what == "miss")


def write(attempt: AttemptSpec) -> None:
    """The files of a complete run, and a record of its training."""
    spec = compose(attempt.spec, resolve_task(attempt.spec))
    assert spec.training.log_dir is not None
    assert spec.experiment is not None
    folder = STORAGE / spec.training.log_dir
    folder.mkdir(parents=True)
    device = ResolvedDevice(configured="cpu", resolved="cpu")
    facts = RunFacts(
        name=attempt.name,
        namespace=attempt.namespace,
        uid=attempt.uid,
        attempt=attempt.attempt,
        created=attempt.created,
        world_size=1,
        resolved_devices=ResolvedDevices(learner=device, collector_tensor=device),
        resolved_precision="fp32",
        observation_dim=4,
        action_dim=1,
        versions={},
    )
    (folder / "run_config.json").write_text(RunConfig.of(spec, facts).to_json())
    summary = RunSummary(
        status=RunStatus.COMPLETED,
        algo=spec.algo.name,
        task=spec.task.name,
        sim_backend=spec.sim,
        log_dir=str(folder),
        seeds=RunSeeds(run=spec.seed, algo=spec.seed, env=0),
        start_time_utc=datetime.now(UTC),
    )
    (folder / "run_summary.json").write_text(summary.to_json())
    run = StageRun(
        seconds=1.5, run_idx=spec.experiment.run_idx, invocation=spec.experiment.invocation
    )
    TimingsDirectory(folder.parent).record("sac_train", run)


def finish(code: int, message: str, *, missed: bool = False) -> None:
    digest: dict[str, Any] = {
        "schemaVersion": 1,
        "attempt": 1,
        "exitCode": code,
        "message": message,
    }
    digest["progress"] = {"envSteps": 400, "checkpointEnvSteps": 400, "meanReward": "12.5"}
    if missed:
        digest["runSummary"] = {
            "status": "completed",
            "totalEnvSteps": 400,
            "finalEvaluatedReturn": "7.5",
            "thresholdMissed": True,
        }
    Path(os.environ["DRIVETRAIN_TERMINATION_LOG"]).write_text(json.dumps(digest))
    sys.exit(code)


if __name__ == "__main__":
    main()
