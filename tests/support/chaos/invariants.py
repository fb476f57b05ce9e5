"""What holds after every trial, whatever befell the run."""

from __future__ import annotations

import fcntl
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import psutil
from tests.support.chaos.arena import Arena
from tests.support.chaos.plan import NAME, Plan
from tests.support.chaos.watch import Watch

from drivetrain_api.artifacts.run_config import RunConfig
from drivetrain_api.artifacts.run_summary import RunSummary
from drivetrain_api.digest import PROGRESS_LIMIT, decode
from drivetrain_operator.local.store import LocalStore
from drivetrain_trainer.analysis.jsonl import JsonlFile
from drivetrain_trainer.evidence.checkpoint_catalog import BEST, BestPointer, CheckpointCatalog
from drivetrain_trainer.evidence.checkpoint_manifest import open_checkpoint

DESCRIPTORS = 12
"""By how many the command's may rise from its first attempt to its last."""

Session = tuple[int, int, list[int]]
"""Attempt, the steps it went on at, and the steps of its reports."""


def faults_of(plan: Plan, arena: Arena, watch: Watch) -> Iterator[str]:
    """Everything that does not hold, in words; nothing where all is well."""
    yield from _left(arena, watch)
    yield from _whole(watch)
    yield from _axis(plan, watch)


def _left(arena: Arena, watch: Watch) -> Iterator[str]:
    """Nothing outlives the command, nothing is held by it longer than an attempt."""
    for process in arena.left():
        with suppress(psutil.NoSuchProcess):
            yield f"process {process.pid} is left: {' '.join(process.cmdline())}"
    for name in arena.memory_left():
        yield f"/dev/shm/{name} is left"
    for path in (arena.folder / "tmp").iterdir():
        yield f"{path} is left"
    for path in (watch.state / "pods").iterdir():  # a pod that is not deleted keeps its folder
        if not (watch.state / "objects" / "Pod" / f"{path.name}.json").exists():
            yield f"the folder of pod {path.name} is left"
    for path in (watch.state / "pods").rglob("mps/*"):
        yield f"{path} is left"
    lock = watch.state.parents[1] / "locks" / f"{NAME}.lock"
    with lock.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield "the lock of the run is held"
        if file.read():
            yield "the lock of the run still names a holder"
    most, first = max(watch.descriptors, default=0), watch.descriptors[:40]
    if first and most > max(first) + DESCRIPTORS:
        yield f"the command's descriptors rose from {max(first)} to {most}"


def _whole(watch: Watch) -> Iterator[str]:
    """Each file is what its model says; each checkpoint is complete or absent."""
    LocalStore(watch.state.parents[1]).get(NAME)
    for path in (*watch.state.glob("*.json"), *watch.state.glob("objects/*/*.json")):
        json.loads(path.read_text())
    for path in watch.state.glob("progress/*.json"):
        text = path.read_text()
        if text and decode(text, PROGRESS_LIMIT) is None:
            yield f"{path}: no digest"
    for path in watch.state.rglob(".*.json.*"):
        yield f"{path} is half of a file"
    if watch.directory is not None:
        yield from directory_faults(
            watch.directory, complete=watch.status.get("phase") == "Complete"
        )


def directory_faults(directory: Path, *, complete: bool) -> Iterator[str]:
    """What is torn in a run directory; of a complete run nothing is missing, nor any draft left."""
    for name, model in (("run_summary.json", RunSummary), ("run_config.json", RunConfig)):
        if complete or (directory / name).exists():
            model.from_json((directory / name).read_text())
    catalog = CheckpointCatalog(directory / "checkpoints")
    for path in catalog.paths():
        open_checkpoint(path).verify()
    if (catalog.folder / BEST).exists():
        BestPointer.from_json((catalog.folder / BEST).read_text())
        if catalog.best_path() is None:
            yield "the best checkpoint is not there"
    drafts = (
        f for p in ("**/.*.tmp", "checkpoints/.*", "checkpoints/*/*.tmp") for f in directory.glob(p)
    )
    for path in drafts if complete else ():
        yield f"{path.relative_to(directory)} is left"


def _axis(plan: Plan, watch: Watch) -> Iterator[str]:
    """The step axis goes on: from a checkpoint, forward, and to the end."""
    falls = Counter(
        later
        for (earlier, before), (later, after) in pairwise(watch.figures)
        if earlier == later and after < before
    )
    for attempt, count in falls.items():
        if count > (attempt > 1):  # it shows those of the one before until it has its own
            yield f"the status of attempt {attempt} went back: {watch.figures}"
    path = watch.directory / "metrics.jsonl" if watch.directory is not None else None
    if path is None or not path.exists():
        return
    yield from report_faults(path, watch.checkpoints, plan.checkpoint_steps)
    if watch.status.get("phase") == "Complete":
        summary = RunSummary.from_json((path.parent / "run_summary.json").read_text())
        if summary.total_env_steps != plan.steps:
            yield f"the run is complete after {summary.total_env_steps} of {plan.steps} steps"


def report_faults(path: Path, checkpoints: dict[int, int], interval: int) -> Iterator[str]:
    """What is wrong in a ``metrics.jsonl``.

    Args:
        path: The file, at rest.
        checkpoints: Step of each checkpoint that was seen -> the newest attempt then.
        interval: Steps between two checkpoints.
    """
    reader = JsonlFile(path)
    list(reader)
    sessions = _sessions(path)
    if len(reader.damage) > len(sessions):
        yield f"metrics.jsonl: {'; '.join(reader.damage)}"
    for session in sessions:
        yield from _forward(session)
    for before, after in pairwise(sessions):
        yield from _goes_on(before, after, checkpoints, interval)


def _forward(session: Session) -> Iterator[str]:
    attempt, start, reports = session
    # What resumes at the very end evaluates once more, and has nothing else to report.
    if any(step < start for step in reports) or (start in reports and max(reports) > start):
        yield f"attempt {attempt} reports what lies before its start at {start}: {reports[:5]}"
    if any(later < earlier for earlier, later in pairwise(reports)):
        yield f"attempt {attempt} reports steps in no order: {reports}"


def _goes_on(
    before: Session, after: Session, checkpoints: dict[int, int], interval: int
) -> Iterator[str]:
    """From the newest checkpoint that was there: none may be lost, none be made up."""
    attempt, start, _ = after
    if attempt <= before[0]:
        yield f"attempt {attempt} wrote after attempt {before[0]}"
    newest = max((step for step, by in checkpoints.items() if by < attempt), default=0)
    if start < newest:
        yield f"attempt {attempt} went on at {start}, though there was a checkpoint at {newest}"
    reached = max([before[1], *before[2]]) + interval
    if start > max(reached, newest):
        yield f"attempt {attempt} went on at {start}: attempt {before[0]} never came there"


def _sessions(path: Path) -> list[Session]:
    found: list[Session] = []
    for line in path.read_bytes().split(b"\n"):
        with suppress(ValueError):
            entry = json.loads(line)
            if "start_env_steps" in entry:
                found.append((entry["attempt"], entry["start_env_steps"], []))
            else:
                found[-1][2].append(entry["step"])
    return found
