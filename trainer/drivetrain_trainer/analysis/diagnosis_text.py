"""A diagnosis as text for a person and as JSON for a script."""

from __future__ import annotations

import json
import re
import textwrap
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from drivetrain_trainer.analysis.findings import Kind, Setup
from drivetrain_trainer.analysis.quantities import ms, parts, percent, rate, span

if TYPE_CHECKING:
    from collections.abc import Iterator

    from drivetrain_trainer.analysis.examination import Examination
    from drivetrain_trainer.analysis.findings import Finding
    from drivetrain_trainer.analysis.shares import Slice

_LEAST: Final = 0.005
"""Share from which a phase is listed; the rest rounds to 0 %."""
_SLOWED: Final = 0.95
"""Share of the collector's rate below which the rate over the wall clock is told as well."""
_UNIT: Final = re.compile(r"(?<=[0-9]) (?=(?:ms|s|min|h|%)(?:\W|$))")
_TIE: Final = "\0"
"""Stands for a blank at which no line is broken."""


def as_text(found: Examination, width: int) -> str:
    """Paragraphs of at most `width` columns."""
    blocks = [
        [_which(found), *_what(found), found.condition.says, *_reached(found)],
        [_looked_at(found), *_rates(found), *_clocks(found)],
        *(_finding(number, one, found) for number, one in _numbered(found)),
        _verdict(found),
        [*_trace(found), *(f"Not read: {damage}" for damage in found.damage)],
    ]
    return "\n\n".join(
        "\n".join(line for text in block for line in _wrapped(text, width))
        for block in blocks
        if block
    )


def _wrapped(text: str, width: int) -> list[str]:
    """A paragraph; what begins with a dash is indented below it, numbers keep their units."""
    indent = len(text) - len(text.lstrip(" -"))
    lines = textwrap.wrap(
        _UNIT.sub(_TIE, text),
        width,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(_TIE, " ") for line in lines]


def _which(found: Examination) -> str:
    if not found.others:
        return str(found.run)
    return f"{found.run} (the newest of {found.others + 1} runs there)"


def _what(found: Examination) -> list[str]:
    summary, config = found.summary, found.config
    words = f"{summary.algo} on {summary.task}, {summary.sim_backend}"
    if config is None:
        return [f"{words}; it has no run_config.json, so rows and advice are less exact."]
    setup = Setup.of(config)
    ranks = f"{setup.ranks} rank{'s' if setup.ranks > 1 else ''}"
    envs = "" if setup.num_envs is None else f" of {setup.num_envs} environments"
    return [f"{words}; {ranks}{envs} on {setup.device}, {setup.precision}{_sharing(found)}."]


def _sharing(found: Examination) -> str:
    """How the GPU is shared, as far as the run knows."""
    config, manifest = found.config, found.summary.runtime_manifest
    if config is None or not Setup.of(config).on_cuda:
        return ""
    evidence = manifest.get("cuda_process_sharing") if manifest else None
    if not isinstance(evidence, dict):
        return f"; MPS {config.accelerator.mps.mode}"
    if evidence.get("ambient_server"):
        return "; MPS ambient"
    if evidence.get("effective") != "mps":
        return "; MPS off"
    return "; MPS on" if evidence.get("validated") else "; MPS on, not validated"


def _reached(found: Examination) -> list[str]:
    target = found.config.training.total_env_steps if found.config is not None else None
    of = f" of {target:,}" if target else ""
    steps = f"{found.env_steps:,}{of} environment steps"
    return [f"{steps} in {found.iterations:,} iterations."]


def _looked_at(found: Examination) -> str:
    window = found.window
    text = f"Looked at: the last {window.reports} reports, {span(window.seconds)}"
    if window.only_warm_up:
        return f"{text}. All of it is warm-up: the learner does not learn yet."
    if window.warm_up:
        plural = "s" if window.warm_up > 1 else ""
        return f"{text}; {window.warm_up} report{plural} of warm-up left out."
    return f"{text}."


def _rates(found: Examination) -> list[str]:
    diagnosis, window = found.diagnosis, found.window
    words = []
    if diagnosis.steps_per_second is not None:
        words.append(f"{rate(diagnosis.steps_per_second)} steps/s")
    if diagnosis.rows_per_second is not None:
        words.append(f"{rate(diagnosis.rows_per_second)} replay rows/s")
    overall = window.env_steps / window.seconds if window.seconds else 0.0
    if diagnosis.steps_per_second and 0 < overall < _SLOWED * diagnosis.steps_per_second:
        words.append(f"{rate(overall)} steps/s with evaluations and checkpoints")
    return [f"{', '.join(words)}."] if words else []


def _clocks(found: Examination) -> Iterator[str]:
    learner, collector = found.diagnosis.learner, found.diagnosis.collector
    if learner is not None:
        yield f"Learner, Iter Wall {ms(learner.wall_ms)}: {_slices(learner.slices)}."
    if collector is not None:
        yield f"Collector, cycle {ms(collector.cycle_ms)}: {_slices(collector.slices)}."
    if learner is not None and collector is not None:
        yield "The two run beside each other; their times are not added."


def _slices(slices: tuple[Slice, ...]) -> str:
    return ", ".join(parts(((one.label, one.milliseconds) for one in slices), least=_LEAST))


def _numbered(found: Examination) -> Iterator[tuple[int, Finding]]:
    return enumerate(found.diagnosis.findings, start=1)


def _finding(number: int, one: Finding, found: Examination) -> list[str]:
    learner = found.diagnosis.learner
    cost = ""
    if one.cost_ms and learner is not None:
        share = percent(min(one.cost_ms / learner.wall_ms, 1.0))
        cost = f", at most {ms(one.cost_ms)} of an iteration ({share})"
    names = {
        Kind.DEFECT: "Defect",
        Kind.BOTTLENECK: "Bottleneck",
        Kind.HIDDEN: "In the background",
    }
    return [
        f"{number}. {names[one.kind]}{cost}: {one.problem}",
        f"   {one.says}",
        *(f"   - {detail}" for detail in one.details),
        *(["   Check first:"] if one.check else []),
        *(f"   - {text}" for text in one.check),
    ]


def _verdict(found: Examination) -> list[str]:
    diagnosis = found.diagnosis
    if diagnosis.balanced:
        return ["Balanced: neither side waits for the other, and no phase is above its threshold."]
    if diagnosis.learner is None:
        return ["No complete iteration was measured, so there is nothing to compare."]
    if any("algo." in text for one in diagnosis.findings for text in one.check):
        return ["Settings below algo. change what is learnt, and not only how fast."]
    return []


def _trace(found: Examination) -> list[str]:
    if found.traces is not None:
        return [f"Timeline: drivetrain trace summary {found.traces}"]
    words = (
        "Whether copies, gathers and both processes really overlap shows in a trace: "
        "training.traceEnabled, then drivetrain trace summary."
    )
    return [words]


def as_json(found: Examination) -> str:
    """One object; shares are fractions, times milliseconds or seconds by their names."""
    diagnosis, window = found.diagnosis, found.window
    value: dict[str, Any] = {
        "run": str(found.run),
        "other_runs": found.others,
        "algo": found.summary.algo,
        "task": found.summary.task,
        "sim": found.summary.sim_backend,
        "condition": asdict(found.condition),
        "setup": asdict(Setup.of(found.config)) if found.config is not None else None,
        "completed_iterations": found.iterations,
        "total_env_steps": found.env_steps,
        "window": {
            "reports": window.reports,
            "warm_up_reports": window.warm_up,
            "only_warm_up": window.only_warm_up,
            "seconds": window.seconds,
            "env_steps": window.env_steps,
        },
        "steps_per_second": diagnosis.steps_per_second,
        "rows_per_second": diagnosis.rows_per_second,
        "learner": asdict(diagnosis.learner) if diagnosis.learner is not None else None,
        "collector": asdict(diagnosis.collector) if diagnosis.collector is not None else None,
        "balanced": diagnosis.balanced,
        "findings": [asdict(one) for one in diagnosis.findings],
        "traces": str(found.traces) if found.traces is not None else None,
        "damage": list(found.damage),
    }
    return json.dumps(value, indent=2, allow_nan=False)
