"""What to check first, in the order of what was measured; settings as a manifest names them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from drivetrain_trainer.analysis.findings import EXTRACT, INFERENCE, REPLAY_WRITE, REQUEST
from drivetrain_trainer.analysis.quantities import ms
from drivetrain_trainer.telemetry.timeline import ENV_STEP

if TYPE_CHECKING:
    from collections.abc import Mapping

    from drivetrain_trainer.analysis.findings import Evidence, Setup

_INFERENCE_PARTS: Final = {
    "H2D": (
        "H2D: training.collectorTensorDevice (observations that are on the device already need "
        "no copy), other users of the bus"
    ),
    "forward": (
        "forward: algo.actorHidden, algo.precision, algo.numEnvs; the CPUs of a rank where "
        "training.device is cpu"
    ),
    "D2H": "D2H: it waits for the forward pass; then training.collectorTensorDevice",
}


def collector_first(evidence: Evidence) -> tuple[str, ...]:
    """Where the collector is what an iteration waits for: its longest work first."""
    setup, values = evidence.setup, evidence.values
    step = values.get(ENV_STEP, 0.0)
    after = values.get(EXTRACT, 0.0) + values.get(REPLAY_WRITE, 0.0)
    request = values.get(REQUEST, 0.0)
    env_step = f"Env Step ({ms(step)}): {_thread_advice(setup)}"
    processing = (
        f"transition post-processing ({ms(after)}): it grows with algo.numEnvs and the width "
        f"of a row; a full ingress (training.replayIngressDepth, {setup.ingress_depth}) "
        "shows as back-pressure"
    )
    transport = f"IPC: Inference Request ({ms(request)}); a busy machine delays the hand-over"
    measured = sorted(
        [(step, env_step), (after, processing), (request, transport)], key=lambda x: -x[0]
    )
    room = f"the learner has room: algo.updatesPerStep ({setup.updates_per_step}) may rise"
    return (
        *(text for _, text in measured),
        "that the collector is alive: its log, and when it last reported",
        *((room,) if setup.updates_per_step is not None else ()),
    )


def _thread_advice(setup: Setup) -> str:
    threads = f"training.simThreads ({setup.sim_threads})"
    envs = "" if setup.num_envs is None else f"; algo.numEnvs ({setup.num_envs}) sets its length"
    if setup.usable_cpus is None:
        return f"{threads}{envs}"
    free = setup.usable_cpus // max(setup.ranks_per_node, 1)
    if free > setup.sim_threads:
        return f"raise {threads}, a rank has {free} CPUs{envs}"
    return f"{threads} uses what CPUs a rank has ({free}): give it more{envs}"


def learner_first(evidence: Evidence) -> tuple[str, ...]:
    """Where the learner is what a tick waits for: its update, then inference."""
    setup = evidence.setup
    advice = ["Learning: what an update costs"]
    if setup.updates_per_step is not None:
        advice.append(f"algo.updatesPerStep ({setup.updates_per_step}): fewer updates a step")
    if setup.batch_size is not None:
        advice.append(f"algo.batchSize ({setup.batch_size}): smaller batches")
    if setup.precision == "fp32":
        advice.append("algo.precision (fp32): bf16 where the device has it")
    if not setup.on_cuda:
        advice.append("training.device (cpu): a GPU for the learner")
    if setup.num_envs is not None:
        advice.append(
            f"algo.numEnvs ({setup.num_envs}): the collector has room for more, which gives more "
            "steps for the same updates"
        )
    advice.append(f"then Inference ({ms(evidence.values.get(INFERENCE, 0.0))})")
    return tuple(advice)


def inference_first(spent: Mapping[str, float]) -> tuple[str, ...]:
    """The parts of Inference, the longest first; the forward pass where none was measured.

    Args:
        spent: Milliseconds of H2D, forward and D2H, as far as they are known.
    """
    order = sorted(spent, key=lambda name: -spent[name]) or ["forward"]
    return tuple(_INFERENCE_PARTS[name] for name in order)
