"""The bottleneck table as rules, one row each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivetrain_trainer.analysis.advice import collector_first, inference_first, learner_first
from drivetrain_trainer.analysis.findings import (
    ACTION_WAIT,
    ACTION_WAIT_HIGH,
    BACK_PRESSURE,
    BACK_PRESSURE_HIGH,
    BATCH_WAIT,
    BATCH_WAIT_HIGH,
    COLLECTOR_WAIT,
    HIGH_WATER,
    INFERENCE,
    INFERENCE_HIGH,
    INFERENCE_PARTS,
    OCCUPANCY,
    RELEASE,
    REPLAY_WRITE,
    REPLAY_WRITE_HIGH,
    Finding,
    Kind,
    Problem,
)
from drivetrain_trainer.analysis.quantities import label_of, ms, parts, percent
from drivetrain_trainer.telemetry.timeline import (
    ENV_STEP,
    ENV_STEP_DETAILS,
    LEARNING_TIME,
    ROLLOUT_TIME,
    SYNCHRONOUS,
)

if TYPE_CHECKING:
    from drivetrain_trainer.analysis.findings import Evidence


def collector_wait(evidence: Evidence) -> Finding | None:
    """The learner reaches an iteration's start before the collector's request is there."""
    if not evidence.collector_wait_high:
        return None
    wait = evidence.values[COLLECTOR_WAIT]
    taking_turns = (
        (
            f"The collector waits as well, {percent(evidence.of_cycle(ACTION_WAIT))} of its cycle: "
            "the two take turns instead of working side by side."
        ),
    )
    return Finding(
        Problem.COLLECTOR_WAIT,
        Kind.BOTTLENECK,
        wait,
        f"The learner waits for the collector: Collector Wait is "
        f"{percent(wait / evidence.wall_ms)} of Iter Wall "
        f"({ms(wait)} of {ms(evidence.wall_ms)}).",
        details=(
            *_collector_parts(evidence),
            *(taking_turns if _collector_waits_too(evidence) else ()),
        ),
        check=collector_first(evidence),
    )


def _collector_waits_too(evidence: Evidence) -> bool:
    beside_inference = _wait_for_update(evidence)
    cycle = evidence.collector.cycle_ms if evidence.collector else 0.0
    return bool(cycle) and beside_inference / cycle >= ACTION_WAIT_HIGH


def _collector_parts(evidence: Evidence) -> tuple[str, ...]:
    found = evidence.collector
    if found is None:
        rollout = evidence.values.get(ROLLOUT_TIME)
        return (f"A rollout takes {ms(1e3 * rollout)} on the collector.",) if rollout else ()
    cycle = "The collector's cycle is " + ms(found.cycle_ms)
    rows = [f"{cycle}: {', '.join(parts((one.label, one.milliseconds) for one in found.slices))}."]
    step = evidence.values.get(ENV_STEP, 0.0)
    inside = parts(
        ((label_of(tag), evidence.values.get(tag, 0.0)) for tag in ENV_STEP_DETAILS), whole=step
    )
    if inside:
        rows.append(f"Env Step holds {', '.join(inside)}.")
    return tuple(rows)


def _wait_for_update(evidence: Evidence) -> float:
    """Milliseconds of Learner Action Wait, a tick, beyond the action's own way."""
    own = (evidence.values.get(INFERENCE, 0.0) + evidence.values.get(RELEASE, 0.0)) / max(
        evidence.setup.ticks, 1
    )
    return max(evidence.values.get(ACTION_WAIT, 0.0) - own, 0.0)


def learner_action_wait(evidence: Evidence) -> Finding | None:
    """The collector is at the next barrier first: the update decides how long a tick takes."""
    if evidence.collector_wait_high or evidence.collector is None:
        return _rollouts_wait(evidence)
    share = evidence.of_cycle(ACTION_WAIT)
    if share < ACTION_WAIT_HIGH:
        return None
    setup, wait = evidence.setup, evidence.values[ACTION_WAIT]
    beyond = _wait_for_update(evidence)
    return Finding(
        Problem.LEARNER_ACTION_WAIT,
        Kind.BOTTLENECK,
        min(beyond * max(setup.ticks, 1), evidence.wall_ms),
        f"The collector waits for the learner: Learner Action Wait is {percent(share)} of the "
        f"collector's cycle ({ms(wait)} of {ms(evidence.collector.cycle_ms)}), while the learner "
        f"waits {percent(evidence.of_wall(COLLECTOR_WAIT))} of Iter Wall.",
        details=(
            (
                f"Of a tick's wait {ms(wait - beyond)} are Inference and Collector Release, "
                f"{ms(beyond)} the rest of an update: a long wait means that the collector got "
                "there first, not that inference is slow."
            ),
            *_learning_figures(evidence),
        ),
        check=learner_first(evidence),
    )


def _rollouts_wait(evidence: Evidence) -> Finding | None:
    """A collector that owns its policy: its rollouts are there before the learner is."""
    if evidence.setup.algo in SYNCHRONOUS:  # its rollouts are parts of the iteration
        return None
    rollout = 1e3 * evidence.values.get(ROLLOUT_TIME, 0.0)
    if evidence.collector_wait_high or not rollout or evidence.collector is not None:
        return None
    spare = evidence.wall_ms - rollout
    if spare < ACTION_WAIT_HIGH * evidence.wall_ms:
        return None
    return Finding(
        Problem.LEARNER_ACTION_WAIT,
        Kind.BOTTLENECK,
        spare,
        f"The learner is slower than the collector: Iter Wall is {ms(evidence.wall_ms)}, "
        f"a rollout takes {ms(rollout)}, and Collector Wait is "
        f"{percent(evidence.of_wall(COLLECTOR_WAIT))}.",
        details=_learning_figures(evidence),
        check=learner_first(evidence),
    )


def _learning_figures(evidence: Evidence) -> tuple[str, ...]:
    learning = 1e3 * evidence.values.get(LEARNING_TIME, 0.0)
    if not learning or not evidence.wall_ms:
        return ()
    setup = evidence.setup
    of = f"Learning is {percent(learning / evidence.wall_ms)} of Iter Wall ({ms(learning)}"
    if setup.updates_per_step is None or setup.batch_size is None:
        return (f"{of}).",)
    return (
        (
            f"{of}): {setup.updates_per_step} updates of {setup.batch_size} rows, "
            f"{ms(learning / setup.updates_per_step)} each."
        ),
    )


def inference(evidence: Evidence) -> Finding | None:
    """The action path that the learner owns is slow itself."""
    share = evidence.of_wall(INFERENCE)
    if share < INFERENCE_HIGH:
        return None
    spent, values = evidence.values[INFERENCE], evidence.values
    named = {name: values[tag] for name, tag in INFERENCE_PARTS.items() if tag in values}
    known = parts(named.items(), whole=spent, least=0.0)
    return Finding(
        Problem.INFERENCE,
        Kind.BOTTLENECK,
        spent,
        f"Inference is slow: {percent(share)} of Iter Wall "
        f"({ms(spent)} of {ms(evidence.wall_ms)}).",
        details=(f"It holds {', '.join(known)}.",) if known else (),
        check=inference_first(named),
    )


def replay_batch_wait(evidence: Evidence) -> Finding | None:
    """The prefetched batch is not there when the learner wants it."""
    share = evidence.of_wall(BATCH_WAIT)
    if share < BATCH_WAIT_HIGH:
        return None
    wait = evidence.values[BATCH_WAIT]
    side = (
        "the gather on the side stream: algo.batchSize x algo.updatesPerStep rows are gathered "
        "while the learner trains"
        if evidence.setup.on_cuda
        else "on a CPU the rows are committed by the learner itself: algo.numEnvs rows a tick"
    )
    contention = "contention for the GPU: other processes, other ranks, MPS (accelerator.mps)"
    return Finding(
        Problem.REPLAY_BATCH_WAIT,
        Kind.BOTTLENECK,
        wait,
        f"The prefetch misses: Replay Batch Wait is {percent(share)} of Iter Wall "
        f"({ms(wait)} of {ms(evidence.wall_ms)}), where a hit takes next to nothing.",
        details=_ingress_figures(evidence),
        check=(
            f"the ingress commit: training.replayIngressDepth ({evidence.setup.ingress_depth})",
            side,
            *((contention,) if evidence.setup.on_cuda else ()),
        ),
    )


def replay_write(evidence: Evidence) -> Finding | None:
    """Handing rows over takes the collector long, or finds no free slot."""
    share, blocked = evidence.of_cycle(REPLAY_WRITE), _blocked(evidence)
    if share < REPLAY_WRITE_HIGH and blocked < BACK_PRESSURE_HIGH:
        return None
    write, cycle = evidence.values.get(REPLAY_WRITE, 0.0), evidence.collector
    in_iteration = write * max(evidence.setup.ticks, 1)
    cost = min(in_iteration, evidence.values.get(COLLECTOR_WAIT, 0.0))
    hidden = not evidence.collector_wait_high
    beside = " The learner does not wait for it." if hidden else ""
    of = f" of {ms(cycle.cycle_ms)}" if cycle is not None else ""
    return Finding(
        Problem.REPLAY_WRITE,
        Kind.HIDDEN if hidden else Kind.BOTTLENECK,
        0.0 if hidden else cost,
        f"Replay Write is {percent(share)} of the collector's cycle ({ms(write)}{of}).{beside}",
        details=_ingress_figures(evidence),
        check=(
            (
                "exhausted ingress slots: training.replayIngressDepth "
                f"({evidence.setup.ingress_depth}) and training.replayIngressSlotRows"
            ),
            (
                "a late commit on the device: Replay Batch Wait, and the replay_device_sync thread "
                "in a trace"
            ),
            "transition post-processing and packing, which grow with algo.numEnvs",
        ),
    )


def _blocked(evidence: Evidence) -> float:
    """Share of the window's wall time that a rank's collector found no free slot."""
    window = evidence.window
    if not window.seconds:
        return 0.0
    return window.growth.get(BACK_PRESSURE, 0.0) / evidence.setup.ranks / (1e3 * window.seconds)


def _ingress_figures(evidence: Evidence) -> tuple[str, ...]:
    values, ranks = evidence.values, evidence.setup.ranks
    if OCCUPANCY not in values:
        return ()
    waited = evidence.window.growth.get(BACK_PRESSURE, 0.0) / ranks
    rank = " a rank" if ranks > 1 else ""
    return (
        (
            f"Ingress{rank}: {values[OCCUPANCY] / ranks:.2g} of {evidence.setup.ingress_depth} "
            f"slots taken on average, at most {values.get(HIGH_WATER, 0.0) / ranks:.2g}; "
            f"back-pressure {ms(waited)} in this window "
            f"({percent(_blocked(evidence))} of its time)."
        ),
    )
