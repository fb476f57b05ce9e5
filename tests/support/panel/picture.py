"""The picture of the panel in the documentation, drawn from a stored moment of a run.

Usage: ``python -m tests.support.panel.picture [--check] [OUT.svg]``
"""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.segment import Segment, Segments
from rich.terminal_theme import TerminalTheme
from tests.support.panel.stored import stored_snapshot

from drivetrain_trainer.telemetry.terminal.glyphs import UNICODE
from drivetrain_trainer.telemetry.terminal.model import build
from drivetrain_trainer.telemetry.terminal.panel import FULL_COLUMNS, render

PICTURE: Final = Path(__file__).parents[3] / "docs" / "images" / "panel.svg"
_COMMAND = "drivetrain run -f examples/half-cheetah-sac.yaml"
_LINES = 1000
_THEME = TerminalTheme(
    (22, 27, 34),
    (214, 220, 228),
    [
        (22, 27, 34),
        (255, 123, 114),
        (86, 211, 100),
        (227, 179, 65),
        (121, 192, 255),
        (210, 168, 255),
        (86, 212, 221),
        (214, 220, 228),
    ],
    [
        (110, 118, 129),
        (255, 161, 152),
        (126, 231, 135),
        (242, 204, 96),
        (165, 214, 255),
        (226, 197, 255),
        (179, 240, 255),
        (255, 255, 255),
    ],
)
_FORMAT = """\
<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg" role="img">
<title>The live panel of a training run</title>
<style>
.{unique_id}-matrix {{
  font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  font-size: {char_height}px;
  line-height: {line_height}px;
}}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""
"""Of the reader's own fonts: a picture fetches nothing."""


def picture() -> str:
    """The panel at 120 columns as SVG; the same text on every machine."""
    console = Console(
        file=io.StringIO(),
        record=True,
        width=FULL_COLUMNS,
        color_system="truecolor",
        force_terminal=True,
        legacy_windows=False,
        _environ={},
    )
    lines = render(build(stored_snapshot("off_policy")), FULL_COLUMNS, _LINES, UNICODE)
    parts = [part for line in lines for part in (*line, Segment.line())]
    console.print(Segments(parts), end="")
    drawn = console.export_svg(title=_COMMAND, theme=_THEME, code_format=_FORMAT, unique_id="panel")
    return "\n".join(line.strip() for line in drawn.splitlines() if line.strip()) + "\n"


def main(arguments: list[str]) -> int:
    """Write the picture, or with ``--check`` tell whether the stored one is current."""
    check = "--check" in arguments
    paths = [Path(argument) for argument in arguments if not argument.startswith("-")]
    path = paths[0] if paths else PICTURE
    if check:
        current = path.exists() and path.read_text(encoding="utf-8") == picture()
        print(f"{path}: {'current' if current else 'out of date: run `make panel`'}")
        return 0 if current else 1
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(picture(), encoding="utf-8")
    print(f"{path} written")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
