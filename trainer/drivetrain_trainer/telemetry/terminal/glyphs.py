"""The characters a panel is drawn with, for terminals with and without Unicode."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Glyphs:
    """One character each, except where said."""

    horizontal: str
    vertical: str
    top_left: str
    top_right: str
    bottom_left: str
    bottom_right: str
    tee_left: str
    tee_right: str
    tee_down: str
    tee_up: str
    cross: str
    bar_full: str
    bar_half: str
    bar_empty: str
    dot: str
    ellipsis: str
    plus_minus: str
    """May be longer than one character."""
    times: str


UNICODE = Glyphs(
    horizontal="─",
    vertical="│",
    top_left="╭",
    top_right="╮",
    bottom_left="╰",
    bottom_right="╯",
    tee_left="├",
    tee_right="┤",
    tee_down="┬",
    tee_up="┴",
    cross="┼",
    bar_full="━",
    bar_half="╸",
    bar_empty="─",
    dot="·",
    ellipsis="…",
    plus_minus="±",
    times="×",  # noqa: RUF001 - the multiplication sign is meant
)

ASCII = Glyphs(
    horizontal="-",
    vertical="|",
    top_left="+",
    top_right="+",
    bottom_left="+",
    bottom_right="+",
    tee_left="+",
    tee_right="+",
    tee_down="+",
    tee_up="+",
    cross="+",
    bar_full="#",
    bar_half="#",
    bar_empty=".",
    dot="-",
    ellipsis="~",
    plus_minus="+/-",
    times="x",
)


def glyphs_for(encoding: str | None, term: str) -> Glyphs:
    """Unicode where the stream encodes it and the terminal can draw it, else ASCII.

    The Linux console's font lacks most of the characters, whatever its encoding.
    """
    utf8 = (encoding or "").lower().replace("-", "").startswith("utf")
    return UNICODE if utf8 and term not in ("linux", "vt100", "vt102", "ansi") else ASCII
