"""The parts of a run's description, each a heading and lines; empty where there is nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from drivetrain_api import labels
from drivetrain_api.trainingrun import RestartConfig
from drivetrain_operator.cli import report
from drivetrain_operator.cli.figures import NOTHING, duration
from drivetrain_operator.cli.table import pairs, table, wrapped
from drivetrain_operator.kubectl import timeline
from drivetrain_operator.kubectl.artifacts import artifact_lines, where
from drivetrain_operator.kubectl.events import last_seen, times_seen
from drivetrain_operator.kubectl.listing import COLORS
from drivetrain_operator.reconcile.fields import count, mapping, text
from drivetrain_operator.reconcile.views import PodPhase

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from drivetrain_operator.kubectl.runs import Run
    from drivetrain_operator.reconcile.fields import Object
    from drivetrain_operator.reconcile.views import PodView

_INDENT: Final = "  "
_NOT_ALLOWED: Final = "  (you may not list them)"


def _section(title: str, lines: Sequence[str]) -> list[str]:
    return [click.style(title, bold=True), *(f"{_INDENT}{line}" for line in lines)]


def _ago(at: datetime, moment: datetime | None) -> str:
    return NOTHING if moment is None else duration((at - moment).total_seconds())


def overview(run: Run, at: datetime) -> list[str]:
    """What it is and where it stands."""
    status, spec = run.status, run.spec
    phase = click.style(str(run.phase), fg=COLORS[run.phase], bold=True)
    told = f"{phase}: {status.message}" if status.message else phase
    upcoming = timeline.next_words(status, at)
    return pairs(
        [
            ("Name", f"{run.namespace}/{run.name}"),
            ("Phase", told),
            ("Next", upcoming),
            ("Trains", _trains(spec)),
            ("Ranks", _ranks(run)),
            ("Image", text(spec, "image")),
            ("Queue", text(spec, "queueName")),
            ("Scheduler", text(spec, "schedulerName")),
            ("Storage", _storage(run)),
            ("Suspend", _suspend(run)),
            ("Restarts", _restarts(run)),
            ("Age", _age(run, at)),
        ]
    )


def _trains(spec: Object) -> str:
    algo, task = text(mapping(spec, "algo"), "name"), text(mapping(spec, "task"), "name")
    return f"{algo} on {task}, {text(spec, 'sim') or 'mujoco'}, seed {count(spec, 'seed')}"


def _ranks(run: Run) -> str:
    accelerator = mapping(run.spec, "accelerator")
    gpus = count(accelerator, "gpusPerNode")
    pods = f"{run.nodes} pod{'s' if run.nodes > 1 else ''}"
    each = f"{run.ranks_per_node} rank{'s' if run.ranks_per_node > 1 else ''}"
    on = f"{gpus} {text(accelerator, 'resourceName') or 'nvidia.com/gpu'}" if gpus else "CPU"
    mode = text(mapping(accelerator, "mps"), "mode")
    mps = f", MPS {mode}" if mode and mode != "Disabled" else ""
    return f"{pods} of {each} on {on}{mps}"


def _storage(run: Run) -> str:
    if run.status.storage is not None:
        return f"PersistentVolumeClaim {run.status.storage}"
    asked = mapping(run.spec, "storage")
    kept = text(asked, "claimName") or text(asked, "size")
    return "" if kept else "emptyDir: files are lost with the pod, and so is resume"


def _suspend(run: Run) -> str:
    if not run.suspend:
        return ""
    by = text(run.annotations, labels.SUSPENDED_BY)
    return f"asked for by {by}" if by else "asked for"


def _restarts(run: Run) -> str:
    limit = mapping(run.spec, "restart").get("maxRestarts", RestartConfig().max_restarts)
    words = f"{run.status.restarts} of {limit}"
    moved = run.status.disruptions
    return f"{words}; {moved} disruption{'s' if moved > 1 else ''}, not counted" if moved else words


def _age(run: Run, at: datetime) -> str:
    status = run.status
    ran = status.active_seconds
    if status.attempt_running_at is not None:
        ran += int((at - status.attempt_running_at).total_seconds())
    words = f"{_ago(at, run.created_at)}, ran for {duration(ran)}"
    if status.finished_at is None:
        return words
    return f"{words}, finished {_ago(at, status.finished_at)} ago"


def progress(run: Run, at: datetime) -> list[str]:
    """A bar, and the trainer's figures."""
    found = run.status.progress
    if found is None:
        return []
    live = run.status.attempt_running_at is not None
    return _section("Progress", report.progress_lines(found, at, live=live))


def summary(run: Run) -> list[str]:
    """What the trainer wrote at its end."""
    found = run.status.run_summary
    if found is None or not run.phase.terminal:
        return []
    return _section("Result", report.summary_lines(found))


def soak(run: Run) -> list[str]:
    """The soak monitor's verdict on the newest attempt that it watched to its end."""
    found = run.status.soak
    return _section("Soak", report.soak_lines(found)) if found is not None else []


def attempts(run: Run, at: datetime, width: int) -> list[str]:
    """The timeline."""
    entries = timeline.timeline(run.status)
    if not entries:
        return []
    lines = wrapped(
        timeline.HEADER,
        [entry.cells(at) for entry in entries],
        width - len(_INDENT),
        right=timeline.RIGHT,
    )
    earlier = timeline.forgotten(run.status)
    if earlier:
        lines.append(f"({earlier} earlier attempts are no longer in the status)")
    return _section("Attempts", lines)


def conditions(run: Run, at: datetime, width: int) -> list[str]:
    """The conditions, and since when they are so."""
    rows = [
        (c.type.value, c.status.value, _ago(at, c.last_transition_time), c.reason, c.message)
        for c in run.status.conditions
    ]
    if not rows:
        return []
    header = ("TYPE", "STATUS", "FOR", "REASON", "MESSAGE")
    return _section("Conditions", wrapped(header, rows, width - len(_INDENT), right=("FOR",)))


def pods(run: Run, found: Sequence[PodView] | None, at: datetime) -> list[str]:
    """Pods of the current attempt, with the ranks in each."""
    if found is None:
        return [*_section("Pods", []), _NOT_ALLOWED]
    if not found:
        return []
    rows = [
        (
            pod.meta.name,
            rank_range(run, pod.index),
            pod_state(pod),
            pod.node or NOTHING,
            _ago(at, pod.meta.created_at),
        )
        for pod in found
    ]
    return _section("Pods", table(("NAME", "RANKS", "STATE", "NODE", "AGE"), rows, right=("AGE",)))


def rank_range(run: Run, index: int | None) -> str:
    """Ranks in the pod of that index: `4-7`."""
    if index is None:
        return NOTHING
    first = index * run.ranks_per_node
    last = first + run.ranks_per_node - 1
    return str(first) if first == last else f"{first}-{last}"


def pod_state(pod: PodView) -> str:
    """One word, as kubectl's own column has it."""
    if pod.meta.deletion_at is not None:
        return "Terminating"
    if pod.reason:
        return pod.reason
    for container in pod.containers:
        if container.waiting is not None and container.waiting.reason:
            return (
                f"Init:{container.waiting.reason}" if container.init else container.waiting.reason
            )
        ended = container.terminated
        if ended is not None and ended.exit_code and pod.phase is PodPhase.FAILED:
            return f"{ended.reason or 'Error'} ({ended.exit_code})"
    return "Unscheduled" if pod.phase is PodPhase.PENDING and not pod.scheduled else str(pod.phase)


def artifacts(run: Run) -> list[str]:
    """Files on the storage."""
    if not run.status.artifacts:
        return []
    return _section("Artifacts", [*artifact_lines(run, full=False), f"({where(run)})"])


def events(found: Sequence[Object] | None, at: datetime, width: int, most: int) -> list[str]:
    """The newest Events of the run, and of its pods that wait."""
    if found is None:
        return [*_section("Events", []), _NOT_ALLOWED]
    if not found:
        return []
    rows = [
        (
            _ago(at, last_seen(event)),
            f"x{times_seen(event)}" if times_seen(event) > 1 else "",
            text(event, "type"),
            text(event, "reason"),
            text(event, "message"),
        )
        for event in found[-most:]
    ]
    header = ("AGE", "SEEN", "TYPE", "REASON", "MESSAGE")
    return _section("Events", wrapped(header, rows, width - len(_INDENT), right=("AGE",)))
