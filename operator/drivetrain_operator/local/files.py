"""Files that are complete or absent."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from drivetrain_api.atomic import write_text_atomically

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def write_atomic(path: Path, text: str) -> None:
    """Replace `path` by `text` at once; a reader, or a crash, never meets half of it.

    The folder is made where it is missing.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text_atomically(path, text)


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """`write_atomic` of an object as indented JSON."""
    write_atomic(path, json.dumps(content, indent=1, allow_nan=False) + "\n")


def read_json(path: Path) -> dict[str, Any] | None:
    """The object in `path`, or None where there is no such file.

    Raises:
        ValueError: naming the file, where it does not hold a JSON object.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    try:
        content = json.loads(text)
    except ValueError as error:
        raise ValueError(f"{path}: not JSON: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path}: holds a {type(content).__name__}, not an object")  # noqa: TRY004 - the file is wrong, no caller
    return content


def read_tail(path: Path, limit: int) -> str:
    """The last `limit` bytes of a file as text; empty where there is no such file."""
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - limit))
            return file.read(limit).decode("utf-8", "replace")
    except FileNotFoundError:
        return ""
