"""From what a monitor saw to the artifact: every rule in order, the first cause first."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from drivetrain_api.artifacts.soak import (
    REASON_LIMIT,
    RESIDUAL_LIMIT,
    SOAK_VERSION,
    Classification,
    MonitorFailure,
    PostShutdown,
    ResidualProcess,
    ResourceSummary,
    SoakArtifact,
    SoakFinding,
    SoakMonitorRecord,
    SoakResources,
    SoakStatus,
    ThroughputSummary,
    producer_failure,
)
from drivetrain_api.soak import Resource
from drivetrain_trainer.soak.evidence import (
    completion_findings,
    shutdown_of,
    torn_findings,
    version_findings,
)
from drivetrain_trainer.soak.replay_fill import replay_fill
from drivetrain_trainer.soak.trend import decay, growth

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from pydantic import JsonValue

    from drivetrain_api.artifacts.soak import SoakFigures
    from drivetrain_trainer.soak.monitor import Monitor
    from drivetrain_trainer.soak.replay_fill import ReplayFill
    from drivetrain_trainer.soak.samples import Sample
    from drivetrain_trainer.soak.trend import Decay, Growth, Point

WARM_UP_SHARE: Final = 0.2
"""Of the time since the first tick, that is left out at least."""
_COMMAND_WORDS: Final = 256
_WORD_LIMIT: Final = 4096
_NAMES: Final = {
    Resource.RSS: "resident memory",
    Resource.PSS: "proportional memory",
    Resource.FDS: "open file descriptors",
    Resource.THREADS: "threads",
    Resource.SHM: "shared-memory files",
    Resource.GPU: "GPU memory",
}
_COUNTS: Final = frozenset({Resource.FDS, Resource.THREADS})
_RESIDENT: Final = frozenset({Resource.RSS, Resource.PSS})


@dataclass(frozen=True)
class Ending:
    """How the watched run ended, as whoever owns its processes saw it."""

    returncode: int | None
    """Exit code, negative for a signal; None where it never ended."""
    problem: SoakFinding | None = None
    """What the monitor ended it for."""
    cancelled: str | None = None
    """Words on who asked the run to stop from outside, where somebody did."""
    residual: tuple[ResidualProcess, ...] = ()
    residual_shm: tuple[Path, ...] = ()


@dataclass(frozen=True)
class Origin:
    """What was watched."""

    command: Sequence[str]
    context: Mapping[str, JsonValue]
    console_log: Path | None = None
    console_log_cut: bool = False


def judge(monitor: Monitor, ending: Ending, origin: Origin) -> SoakArtifact:
    """The verdict on a run that has ended.

    Args:
        monitor: Took its last sample already.
        ending: How the run ended.
        origin: What was watched.
    """
    document = monitor.watch.document
    judged = _judged(monitor)
    fill = replay_fill(document, monitor.timing.first_steps)
    trends = {resource: _growth(judged, resource, monitor, fill) for resource in Resource}
    speed = decay([sample.rate for sample in judged if sample.rate is not None])
    findings = (
        *_ending_findings(ending),
        *version_findings(document),
        *torn_findings(monitor.watch),
        *_completion(monitor, ending),
        *_left_behind(ending),
        *_leaks(trends, monitor),
        *_decay(speed, judged, monitor),
    )
    shutdown = shutdown_of(document)
    return SoakArtifact(
        schema_version=SOAK_VERSION,
        status=SoakStatus.FAILED if findings else SoakStatus.PASSED,
        failure_reason=_reason(findings, shutdown),
        failure_classification=_classification(findings, shutdown),
        command=tuple(word[:_WORD_LIMIT] for word in origin.command[:_COMMAND_WORDS]),
        context=dict(origin.context),
        started_at_utc=monitor.started_at,
        ended_at_utc=datetime.now(UTC),
        duration_s=monitor.elapsed,
        returncode=ending.returncode,
        monitor=_record(monitor, findings),
        samples=tuple(sample.record() for sample in monitor.store.samples),
        resource_summary=SoakResources(
            judged_samples=len(judged),
            resources=dict(_summaries(monitor, judged, trends)),
            throughput=_throughput(judged, speed),
        ),
        shutdown=shutdown,
        post_shutdown=PostShutdown(
            residual_processes=ending.residual[:RESIDUAL_LIMIT],
            residual_shm=tuple(str(path) for path in ending.residual_shm[:RESIDUAL_LIMIT]),
        ),
        run_summary=document,
        console_log=None if origin.console_log is None else str(origin.console_log),
        console_log_cut=origin.console_log_cut,
    )


def _ending_findings(ending: Ending) -> Iterator[SoakFinding]:
    """What ended the run: the monitor's reason, somebody outside, or the run itself."""
    if ending.problem is not None:
        yield ending.problem
    elif ending.cancelled is not None:
        yield SoakFinding(
            rule="cancelled", classification=MonitorFailure.CANCELLED, message=ending.cancelled
        )
    elif ending.returncode != 0:
        code = ending.returncode
        how = "did not end" if code is None else _exit_words(code)
        yield SoakFinding(rule="exit", classification=MonitorFailure.CRASH, message=how)


def _exit_words(code: int) -> str:
    return f"the run was killed by signal {-code}" if code < 0 else f"the run exited with {code}"


def _completion(monitor: Monitor, ending: Ending) -> Iterator[SoakFinding]:
    """Whether the run shows that it completed; one that was ended need not."""
    if monitor.restarts:
        words = f"the run began again {monitor.restarts} time(s) during the soak"
        yield SoakFinding(rule="restart", classification=MonitorFailure.CRASH, message=words)
    if next(_ending_findings(ending), None) is None and monitor.watch.torn is None:
        yield from completion_findings(monitor.watch.document)


def _left_behind(ending: Ending) -> Iterator[SoakFinding]:
    if ending.residual:
        shown = ", ".join(f"{one.name} ({one.pid})" for one in ending.residual[:5])
        more = f" and {len(ending.residual) - 5} more" if len(ending.residual) > 5 else ""  # noqa: PLR2004 - as above
        yield SoakFinding(
            rule="residual_processes",
            classification=MonitorFailure.RESIDUAL_PROCESS,
            message=f"{len(ending.residual)} process(es) outlived the run: {shown}{more}",
        )
    if ending.residual_shm:
        shown = ", ".join(str(path) for path in ending.residual_shm[:5])
        yield SoakFinding(
            rule="residual_shm",
            classification=MonitorFailure.RESOURCE_LEAK,
            message=f"{len(ending.residual_shm)} file(s) left in shared memory: {shown}"[:2048],
        )


def _leaks(trends: Mapping[Resource, Growth | None], monitor: Monitor) -> Iterator[SoakFinding]:
    for resource, trend in trends.items():
        if trend is None or not trend.leaks:
            continue
        limit = _shown(resource, monitor.settings.limits[resource])
        yield SoakFinding(
            rule=f"growth.{resource.value}",
            classification=MonitorFailure.RESOURCE_LEAK,
            message=(
                f"{_NAMES[resource]} grew by {_shown(resource, trend.amount)} in "
                f"{trend.seconds:.0f} s and went on growing (limit {limit})"
            ),
        )


def _decay(
    speed: Decay | None, judged: Sequence[Sample], monitor: Monitor
) -> Iterator[SoakFinding]:
    limit = monitor.settings.throughput_decay
    if speed is None or speed.lost <= limit or _starved(judged, limit):
        return
    yield SoakFinding(
        rule="throughput_decay",
        classification=MonitorFailure.THROUGHPUT_DECAY,
        message=(
            f"throughput fell by {speed.lost:.0%}, from {speed.first:.6g} to {speed.last:.6g} "
            f"steps/s (limit {limit:.0%})"
        ),
    )


def _starved(judged: Sequence[Sample], limit: float) -> bool:
    """Whether throughput held out by the processors that the run was given: others took them."""
    told = [sample.undisturbed_rate for sample in judged if sample.rate is not None]
    known = [rate for rate in told if rate is not None]
    given = decay(known) if len(known) == len(told) else None
    return given is not None and given.lost <= limit


def _judged(monitor: Monitor) -> list[Sample]:
    """Samples from the warm-up's end to the last tick; none where the run never ticked.

    The sample that saw the last tick may have seen processes that were ending already.
    """
    timing = monitor.timing
    samples = monitor.store.samples
    if timing.first_tick is None or not samples:
        return []
    share = WARM_UP_SHARE * (samples[-1].at - timing.first_tick)
    begin = timing.first_tick + max(monitor.settings.warm_up_s, share)
    begin = max(begin, timing.learning or 0.0)
    return [sample for sample in samples if begin <= sample.at < timing.last_tick]


def _amount(figures: SoakFigures, resource: Resource) -> int | None:
    field = resource.value if resource in _COUNTS else f"{resource.value}_bytes"
    amount: int | None = getattr(figures, field)
    return amount


def _growth(
    judged: Sequence[Sample], resource: Resource, monitor: Monitor, fill: ReplayFill
) -> Growth | None:
    points: list[Point] = []
    for sample in judged:
        amount = _amount(sample.mean, resource)
        if amount is not None:
            filled = fill.bytes(sample.env_steps) if resource in _RESIDENT else 0.0
            points.append((sample.at, amount - filled))
    return growth(points, monitor.settings.limits[resource])


def _summaries(
    monitor: Monitor, judged: Sequence[Sample], trends: Mapping[Resource, Growth | None]
) -> Iterator[tuple[str, ResourceSummary]]:
    """Figures of each resource that was measured at all."""
    samples = monitor.store.samples
    for resource in Resource:
        told = [a for s in judged or samples if (a := _amount(s.mean, resource)) is not None]
        peaks = [a for s in samples if (a := _amount(s.peak, resource)) is not None]
        if not told or not peaks:
            continue
        trend = trends[resource]
        yield (
            resource.value,
            ResourceSummary(
                first=told[0],
                last=told[-1],
                peak=max(peaks),
                growth=None if trend is None else round(trend.amount),
                limit=monitor.settings.limits[resource],
            ),
        )


def _throughput(judged: Sequence[Sample], speed: Decay | None) -> ThroughputSummary:
    rates = [sample.rate for sample in judged if sample.rate is not None]
    return ThroughputSummary(
        median=statistics.median(rates) if rates else None,
        first=speed.first if speed is not None else None,
        last=speed.last if speed is not None else None,
    )


def _record(monitor: Monitor, findings: Sequence[SoakFinding]) -> SoakMonitorRecord:
    settings = monitor.settings
    return SoakMonitorRecord(
        sample_s=settings.sample_s,
        start_s=settings.start_s,
        stale_s=settings.stale_s,
        grace_s=settings.grace_s,
        warm_up_s=settings.warm_up_s,
        duration_s=settings.duration_s,
        throughput_decay=settings.throughput_decay,
        raw_samples=monitor.store.raw,
        cpu_s=monitor.cpu_s,
        torn_reads=monitor.watch.torn_reads,
        findings=tuple(findings),
    )


def _classification(
    findings: Sequence[SoakFinding], shutdown: Mapping[str, JsonValue] | None
) -> Classification | None:
    """The producer's where it names one, since it knows who began; else the monitor's."""
    if not findings:
        return None
    return producer_failure(shutdown) or findings[0].classification


def _reason(
    findings: Sequence[SoakFinding], shutdown: Mapping[str, JsonValue] | None
) -> str | None:
    """The first cause, what else was found, and behind them the producer's own words."""
    if not findings:
        return None
    parts = [finding.message for finding in findings]
    if shutdown is not None:
        parts.append(f"the run itself says: {_producer_words(shutdown)}")
    return "; ".join(parts)[:REASON_LIMIT]


def _producer_words(shutdown: Mapping[str, Any]) -> str:
    told = (
        f"{name} {str(shutdown[name])[:512]}"
        for name in ("classification", "owner", "phase", "coordination_tick", "exception")
        if shutdown.get(name) is not None
    )
    return ", ".join(told) or "nothing of its cause"


def _shown(resource: Resource, amount: float) -> str:
    return f"{amount:.0f}" if resource in _COUNTS else f"{amount / (1 << 20):.1f} MiB"
