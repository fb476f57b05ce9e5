"""MkDocs hook: reference pages made from the models when the documentation is built.

Nothing generated is committed, so that no page can drift from the code.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click
from mkdocs.structure.files import File, Files

from drivetrain_api.artifacts.runtime_manifest import CompletedManifest, RuntimeManifest
from drivetrain_api.base import INT64_MAX
from drivetrain_api.compose import plain_preset
from drivetrain_api.exit_codes import ExitCode
from drivetrain_api.explain import allowed
from drivetrain_api.metrics import EVERY_ALGORITHM, FAMILIES, METRICS
from drivetrain_api.schema import Schema, inlined_schema, without_null
from drivetrain_api.tasks import load_task, registered_tasks
from drivetrain_api.training import TaskConfig
from drivetrain_api.trainingrun import TrainingRun
from drivetrain_operator.cli.main import cli as command_line
from drivetrain_operator.kubectl.main import cli as kubectl_plugin

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mkdocs.config.defaults import MkDocsConfig


_ABOUT_KEYS = (
    "Generated from the models. Keys are written as in a manifest; on the command line, in "
    "`run_config.json` and in presets they are snake_case (`algo.num_envs`).\n"
)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    for name, text in pages().items():
        files.append(File.generated(config, f"reference/{name}.md", content=text))
    return files


def pages() -> dict[str, str]:
    """Name -> Markdown of each generated page."""
    return {
        "trainingrun": _trainingrun(),
        "metrics": _metrics(),
        "tasks": _tasks(),
        "runtime-manifest": _runtime_manifest(),
        "exit-codes": _exit_codes(),
        "cli": _command_line("Command line", "drivetrain", command_line),
        "kubectl": _command_line("kubectl plugin", "kubectl drivetrain", kubectl_plugin),
    }


def _cell(text: object) -> str:
    return " ".join(str(text).split()).replace("|", "\\|")


def _table(head: tuple[str, ...], rows: Iterator[tuple[object, ...]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(_cell(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def _trainingrun() -> str:
    schema = inlined_schema(TrainingRun, by_alias=True)
    parts = [
        "# TrainingRun\n",
        _ABOUT_KEYS,
    ]
    for section in ("spec", "status"):
        parts.append(f"## {section}\n")
        parts.append(
            _table(
                ("Key", "Value", "Default", "Meaning"),
                _rows(schema["properties"][section], section),
            )
        )
    return "\n".join(parts)


def _rows(schema: Schema, prefix: str) -> Iterator[tuple[str, str, str, str]]:
    for key, raw in schema.get("properties", {}).items():
        value, _ = without_null(raw)
        path = f"{prefix}.{key}"
        items, _ = without_null(value.get("items", {}))
        nested = value if value.get("properties") else items
        description = raw.get("description", value.get("description", ""))
        if nested.get("properties"):
            yield f"**`{path}`**", "list" if nested is items else "", "", description
            yield from _rows(nested, f"{path}[]" if nested is items else path)
        else:
            yield f"`{path}`", allowed(value).replace("[", "\\["), _default(raw), description


def _default(schema: Schema) -> str:
    if "default" not in schema or schema["default"] in (None, [], {}):
        return ""
    return f"`{json.dumps(schema['default'])}`"


_METRICS = """# Metrics

Metric schema 1, generated from `drivetrain_api.metrics`. The step axis is environment steps over
all ranks. A tag is submitted once a report, by the owner that stands here; an unknown one raises
with the nearest names. Within a version tags are added, never renamed, removed or given another
unit.
`_ms` tags are milliseconds. See [Metrics and where they go](../guide/telemetry.md).
"""
_FAMILIES = """## Families

Tags of these prefixes are named at run time; an environment declares prefixes of its own. A family
that counts holds the number of events since the report before, where the others hold means.
"""


def _metrics() -> str:
    parts = [_METRICS]
    for group in dict.fromkeys(tag.partition("/")[0] for tag in METRICS):
        rows = (
            (
                f"`{m.tag}`",
                m.unit.value,
                m.reduction.value,
                m.owner.value,
                m.label,
                "all" if m.algorithms == EVERY_ALGORITHM else ", ".join(sorted(m.algorithms)),
            )
            for m in METRICS.values()
            if m.tag.startswith(f"{group}/")
        )
        head = ("Tag", "Unit", "Across ranks", "Submitted by", "Terminal label", "Algorithms")
        parts += [f"## {group}\n", _table(head, rows)]
    families = (
        (
            f"`{f.prefix}`",
            f.unit.value,
            f.reduction.value,
            f.owner.value,
            "counts" if f.counted else "mean",
            ", ".join(f"`{name}`" for name in sorted(f.reserved)),
        )
        for f in FAMILIES
    )
    head = ("Prefix", "Unit", "Across ranks", "Submitted by", "Over a report", "Reserved names")
    return "\n".join([*parts, _FAMILIES, _table(head, families)])


def _tasks() -> str:
    parts = ["# Tasks\n", "Registered tasks and their presets, generated.\n"]
    for name in registered_tasks():
        task = load_task(TaskConfig(name=name))
        parts.append(f"## {name}\n\n{task.description}\n")
        parts.append(
            f"{task.observation_dim} observations, {task.action_dim} actions, "
            f"{task.episode_length} steps an episode.\n"
        )
        for algorithm in task.presets:
            preset: dict[str, Any] = plain_preset(task, algorithm)
            parts.append(f"Preset for `{algorithm}`:\n")
            parts.append(_table(("Key", "Value"), _flat(preset, "")))
        offered = {
            s: preset for s, preset in task.simulator_presets.items() if s in task.simulators
        }
        for simulator, special in offered.items():
            parts.append(f"Put over it on `{simulator}`:\n")
            parts.append(_table(("Key", "Value"), _flat(dict(special), "")))
    return "\n".join(parts)


def _flat(mapping: dict[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
    for key, value in mapping.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"`{prefix}{key}`", f"`{json.dumps(value, default=str)}`"


_MANIFEST = """# Runtime manifest

`runtime_manifest` of `run_summary.json`, generated from the models: what settings, devices and
memory budget the tensor runtime had, and what its counters were. It is there for the off-policy
algorithms; a PPO run has none.

`schema_version` is 1. It moves independently of `metric_schema_version` (1, beside it in the
summary) and of the soak artifact's `schema_version` (`0.3.0`). Readers refuse a manifest without a
version, or of another one, and one whose fields are missing, of another type, or not finite; they
ignore fields that they do not know.

The manifest is begun before the collector makes its environments, with what is decided by then, and
written with the summary from then on. A field that is not known yet, or that a run has none of, has
no key: `null` means something only where the table says so. *Always* is there from the start,
*completed* once the run has reached its end; *stable* fields are never renamed, removed, retyped,
or changed in unit or in what `null` means within version 1. All others are experimental.

`runtime_limits` holds `configured`, `default`, `effective` and `maximum` of each setting;
`backend_diagnostics.diagnostics` holds `requested`, `enabled` and `disable_reason` of each
optimisation of the physics backend, and a section that does not hold together is refused.

Two windows are kept apart: `inference_flight.max_*` are the greatest values since the collector
report before the last one that was published; `replay_ingress.high_water_occupancy` is the greatest
since the attempt began.

"""
_STABLE_SECTIONS = (
    "schema_version",
    "inference_ring_capacity",
    "collector_metrics_interval",
    "collector_backend_device",
    "inference_flight",
    "replay_ingress",
    "inference_memory_budget.ipc_event_count",
)


def _runtime_manifest() -> str:
    completed = inlined_schema(CompletedManifest, by_alias=False)
    begun = set(inlined_schema(RuntimeManifest, by_alias=False)["required"])
    ended = set(completed["required"])

    def rows() -> Iterator[tuple[str, str, str, str, str]]:
        for path, allowed_value, _, description in _rows(completed, ""):
            name = path.strip("*`").removeprefix(".")
            top = name.partition(".")[0]
            there = "always" if top in begun else "completed" if top in ended else "optional"
            stable = any(name == kept or name.startswith(f"{kept}.") for kept in _STABLE_SECTIONS)
            value = allowed_value.replace(f"from 0 to {INT64_MAX:.17g}", "of at least 0")
            yield f"`{name}`", value, there, "stable" if stable else "", description

    head = ("Field", "Value", "There", "Stability", "Meaning")
    return _MANIFEST + _table(head, rows())


def _exit_codes() -> str:
    meanings = {
        ExitCode.DONE: "Training reached its end; the artifacts are written.",
        ExitCode.FAILED: "Anything else. Retried, and counted.",
        ExitCode.REFUSED: "Configuration or preflight refused the run. Never retried.",
        ExitCode.BROKEN: "Training failed for good (not finite beyond recovery). Never retried.",
        ExitCode.CHECKPOINTED: "Stopped by SIGTERM after a checkpoint.",
    }
    rows = ((f"`{code.value}`", code.name, meanings[code]) for code in ExitCode)
    return (
        "# Exit codes\n\nOf a rank and of the launcher of its pod:\n\n"
        + _table(("Code", "Name", "Meaning"), rows)
        + "\n`drivetrain run` itself exits with 0 (Complete), 1 (Failed), 2 (refused) or 130"
        " (suspended by Ctrl-C).\n"
    )


def _command_line(title: str, program: str, group: click.Group) -> str:
    context = click.Context(group, info_name=program)
    parts = [f"# {title}\n", f"```text\n{group.get_help(context)}\n```\n"]
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None or command.hidden:
            continue
        nested = click.Context(command, info_name=name, parent=context)
        parts.append(f"## {program} {name}\n\n```text\n{command.get_help(nested)}\n```\n")
    return "\n".join(parts)
