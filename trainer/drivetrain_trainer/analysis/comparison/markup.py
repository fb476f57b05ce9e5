"""HTML by elements, every word escaped, and SVG made fit to stand within it."""

from __future__ import annotations

import re
from html import escape
from typing import TYPE_CHECKING, Final
from xml.etree import ElementTree as ET

from drivetrain_trainer.analysis.comparison.words import clean

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_SVG: Final = "http://www.w3.org/2000/svg"
_XLINK: Final = "http://www.w3.org/1999/xlink"
_REFERENCE: Final = re.compile(r"url\(#([^)]+)\)")
_BLACK: Final = "#000000"


class Markup(str):
    """Text that is HTML already; all other text is escaped when it becomes a part of some."""

    __slots__ = ()


def element(name: str, *content: str, **attributes: str | None) -> Markup:
    """One element around its content, which is escaped where it is no markup.

    Args:
        name: Its tag.
        content: What is within.
        attributes: With ``_`` for ``-``, and after ``class``; left out where None.
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(clean(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{name}{written}>{joined(content)}</{name}>")


def joined(parts: Iterable[str]) -> Markup:
    """Parts one after the other, each escaped where it is no markup."""
    return Markup(
        "".join(part if isinstance(part, Markup) else escape(clean(part)) for part in parts)
    )


def table(
    title: str, head: Sequence[str], rows: Sequence[Sequence[str]], kinds: Sequence[str | None]
) -> Markup:
    """A table that scrolls by itself where it is too wide.

    Args:
        title: Stands above it.
        head: Names of the columns.
        rows: Cells; the first of a row names it.
        kinds: Class of each column's cells.
    """
    heads = [
        element("th", text, scope="col", class_=kind)
        for text, kind in zip(head, kinds, strict=True)
    ]
    lines = [
        element(
            "tr",
            *(
                element("td", cell, class_=kind)
                if place
                else element("th", cell, scope="row", class_=kind)
                for place, (cell, kind) in enumerate(zip(row, kinds, strict=True))
            ),
        )
        for row in rows
    ]
    body = element(
        "table",
        element("thead", element("tr", *heads)),
        element("tbody", *lines),
        aria_label=title,
    )
    scrolled = element("div", body, class_="wide", tabindex="0", role="region", aria_label=title)
    return joined([element("h3", title), scrolled])


def inline_svg(picture: str, *, key: str, title: str, description: str) -> Markup:
    """A picture of matplotlib's as an element: one with a name, in the page's colour of ink.

    Args:
        picture: The SVG document.
        key: Told apart from the page's other pictures by this.
        title: Read out for it.
        description: Read out after the title.
    """
    ET.register_namespace("", _SVG)
    ET.register_namespace("xlink", _XLINK)
    root = ET.fromstring(picture)  # noqa: S314 - matplotlib wrote it a moment ago
    for above in list(root.iter()):
        for child in list(above):
            if child.tag == f"{{{_SVG}}}metadata":
                above.remove(child)
    for one in root.iter():
        _own_ids(one, key)
        for name in ("style", "fill", "stroke"):
            if name in one.attrib:
                one.set(name, one.attrib[name].replace(_BLACK, "currentColor"))
    for name in ("width", "height"):
        root.attrib.pop(name, None)
    root.set("role", "img")
    root.set("aria-labelledby", f"{key}-title {key}-desc")
    for place, (kind, words) in enumerate((("title", title), ("desc", description))):
        told = ET.Element(f"{{{_SVG}}}{kind}", {"id": f"{key}-{kind}"})
        told.text = clean(words)
        root.insert(place, told)
    return Markup(ET.tostring(root, encoding="unicode"))


def _own_ids(one: ET.Element, key: str) -> None:
    """Ids are the page's: two pictures must not share one."""
    for name, value in one.attrib.items():
        if name == "id":
            one.set(name, f"{key}-{value}")
        elif name.endswith("href") and value.startswith("#"):
            one.set(name, f"#{key}-{value[1:]}")
        else:
            one.set(name, _REFERENCE.sub(rf"url(#{key}-\1)", value))
