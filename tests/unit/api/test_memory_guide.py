"""The figures of docs/guide/memory.md are the code's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from drivetrain_api.budget import MIB, MemoryBudget, check, memory_budget, sizes_of
from drivetrain_api.compose import compose, parse_run, resolve_task
from drivetrain_api.errors import SpecError

GUIDE = (Path(__file__).parents[3] / "docs/guide/memory.md").read_text(encoding="utf-8")


def budget(*, on_device: bool) -> MemoryBudget:
    example = yaml.safe_load(GUIDE.partition("```yaml\n")[2].partition("```")[0])
    spec = parse_run(example).spec
    task = resolve_task(spec)
    sizes = sizes_of(
        compose(spec, task),
        observation_dim=task.observation_dim,
        action_dim=task.action_dim,
        on_device=on_device,
    )
    return memory_budget(sizes)


@pytest.mark.parametrize("column", [0, 1])
def test_the_worked_example(column: int) -> None:
    rows = re.findall(r"^\| `(\w+)` \| ([\d,]+) \| ([\d,]+) \|$", GUIDE, re.MULTILINE)
    found = budget(on_device=bool(column))
    told = {name: int(figures[column].replace(",", "")) for name, *figures in rows}
    assert told == {name: getattr(found, name) for name in told}
    assert len(told) == 11


def test_the_refusal_that_is_shown() -> None:
    shown = GUIDE.partition("```text\n")[2].partition("\n```")[0]
    with pytest.raises(SpecError) as caught:
        check(budget(on_device=False), 256 * MIB)
    (violation,) = caught.value.violations
    assert shown == f"{violation.path}: {violation.message}"
