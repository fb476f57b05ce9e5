"""The examples in the guide of the stats tracker do what they say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from drivetrain_trainer import stats

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "stats.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_examples_run(number: int) -> None:
    stats.forget_all()
    example = compile(EXAMPLES[number], f"{PAGE.name}, example {number + 1}", "exec")
    exec(example, {"__name__": "example"})
    stats.forget_all()
