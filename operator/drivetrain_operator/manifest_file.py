"""Manifest files: bounded, strict YAML; whatever is refused names the file and the line."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NoReturn

import yaml
from yaml import events

from drivetrain_operator.yaml_core import TAG, Scalar, resolve

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

MAX_BYTES: Final = 256 * 1024
"""Bytes of a manifest; the API server itself takes 1.5 MiB, ours are a few hundred bytes."""
MAX_DEPTH: Final = 32
"""Mappings and lists inside one another."""
MAX_NODES: Final = 20_000
"""Values of a manifest, those repeated by aliases counted each time."""

_MAPPING_TAGS = frozenset({None, "!", f"{TAG}map"})
_LIST_TAGS = frozenset({None, "!", f"{TAG}seq"})
_KINDS = {f"{TAG}null": type(None), f"{TAG}bool": bool, f"{TAG}int": int, f"{TAG}float": float}

Value = dict[str, "Value"] | list["Value"] | Scalar
DocumentPath = tuple[str | int, ...]


class ManifestError(ValueError):
    """A file that is no acceptable YAML document."""

    def __init__(self, source: str, line: int | None, message: str) -> None:
        self.source = source
        self.line = line
        place = source if line is None else f"{source}:{line}"
        super().__init__(f"{place}: {message}")


@dataclass(frozen=True)
class ManifestDocument:
    """A parsed manifest and the lines its values stand on."""

    source: str
    """File name for messages."""
    content: dict[str, Any]
    """The document."""
    lines: Mapping[DocumentPath, int] = field(default_factory=dict)
    """Line, from 1, of each key and list item."""

    def place(self, path: str) -> str:
        """``file:line`` of a dotted path, spelt in either case, below spec or from the root.

        A path that the file does not hold is placed at its nearest parent.
        """
        wanted = tuple(_folded(part) for part in re.split(r"[.\[\]]+", path) if part)
        best: tuple[int, int] | None = None
        for known, line in self.lines.items():
            folded = tuple(_folded(str(part)) for part in known)
            for candidate in (folded, folded[1:] if folded[:1] == ("spec",) else ()):
                size = len(candidate)
                if size and candidate == wanted[:size] and (best is None or size > best[0]):
                    best = (size, line)
        return self.source if best is None else f"{self.source}:{best[1]}"


def _folded(part: str) -> str:
    return part.replace("_", "").lower()


def read_manifest(path: Path) -> ManifestDocument:
    """The one document of a file.

    Raises:
        ManifestError: where it cannot be read, is too large, or is refused by `parse`.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ManifestError(str(path), None, error.strerror or str(error)) from error
    return parse(data, str(path))


def parse(data: bytes, source: str) -> ManifestDocument:
    """The one document in `data`.

    Raises:
        ManifestError: no mapping, more than one document, not UTF-8, larger, deeper or with
            more values than allowed, a duplicate key, a key that is not text, a merge key, an
            alias to itself, or a tag that YAML's core schema does not have.
    """
    if len(data) > MAX_BYTES:
        raise ManifestError(source, None, f"is larger than {MAX_BYTES} bytes")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ManifestError(source, line, f"is not UTF-8: {error.reason}") from error
    try:
        return _Composer(source).document(yaml.parse(text, Loader=yaml.SafeLoader))
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise ManifestError(source, line, f"character not allowed: {error.reason}") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = " ".join(part for part in (error.context, error.problem) if part)
        raise ManifestError(source, mark.line + 1 if mark else None, problem) from error


@dataclass
class _Open:
    """A mapping or list whose end has not been read yet."""

    value: dict[str, Value] | list[Value]
    path: DocumentPath
    anchor: str | None
    nodes_before: int
    key: str | None = None
    key_lines: dict[str, int] = field(default_factory=dict)

    def next_path(self) -> DocumentPath:
        if isinstance(self.value, dict):
            return (*self.path, self.key or "")
        return (*self.path, len(self.value))


@dataclass(frozen=True)
class _Anchor:
    """What an alias repeats; `None` stands for a value that is still open."""

    value: Value
    nodes: int
    depth: int


def _line(event: events.Event) -> int:
    assert event.start_mark is not None
    return event.start_mark.line + 1


class _Composer:
    """Builds values from parse events, one at a time and without recursion."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._stack: list[_Open] = []
        self._root: Value = None
        self._anchors: dict[str, _Anchor | None] = {}
        self._nodes = 0
        self._lines: dict[DocumentPath, int] = {}

    def document(self, stream: Iterator[Any]) -> ManifestDocument:
        seen = False
        for event in stream:
            if isinstance(event, events.DocumentStartEvent):
                if seen:
                    self._refuse(event, "holds more than one document")
                seen = True
            elif isinstance(event, events.NodeEvent):
                self._node(event)
            elif isinstance(event, events.CollectionEndEvent):
                self._close()
        if not isinstance(self._root, dict):
            kind = "an empty document" if self._root is None else type(self._root).__name__
            raise ManifestError(self._source, 1, f"must be a mapping, not {kind}")
        return ManifestDocument(self._source, self._root, self._lines)

    def _refuse(self, event: events.Event, message: str) -> NoReturn:
        raise ManifestError(self._source, _line(event), message)

    def _count(self, event: events.Event, nodes: int, depth: int) -> None:
        self._nodes += nodes
        if self._nodes > MAX_NODES:
            self._refuse(event, f"holds more than {MAX_NODES} values, aliases counted")
        if len(self._stack) + depth > MAX_DEPTH:
            self._refuse(event, f"nests deeper than {MAX_DEPTH} levels")

    def _node(self, event: events.NodeEvent) -> None:
        top = self._stack[-1] if self._stack else None
        if top is not None and isinstance(top.value, dict) and top.key is None:
            self._take_key(top, event)
            return
        path = top.next_path() if top is not None else ()
        self._lines.setdefault(path, _line(event))
        if isinstance(event, events.AliasEvent):
            self._place(self._alias(event))
            return
        if isinstance(event, events.ScalarEvent):
            self._count(event, 1, 0)
            value: Value = self._scalar(event)
            if event.anchor is not None:
                self._anchors[event.anchor] = _Anchor(value, 1, 0)
            self._place(value)
            return
        assert isinstance(event, events.CollectionStartEvent)
        self._open(event, path)

    def _open(self, event: events.CollectionStartEvent, path: DocumentPath) -> None:
        before = self._nodes
        self._count(event, 1, 1)
        is_mapping = isinstance(event, events.MappingStartEvent)
        if event.tag not in (_MAPPING_TAGS if is_mapping else _LIST_TAGS):
            self._refuse(event, f"tag {event.tag!r} is not allowed")
        if event.anchor is not None:
            self._anchors[event.anchor] = None
        value: dict[str, Value] | list[Value] = {} if is_mapping else []
        self._stack.append(_Open(value, path, event.anchor, before))

    def _take_key(self, top: _Open, event: events.NodeEvent) -> None:
        if not isinstance(event, events.ScalarEvent):
            self._refuse(event, "a key must be plain text")
        key = self._scalar(event)
        if not isinstance(key, str):
            self._refuse(event, f"key {event.value!r} is not text; quote it")
        if key == "<<":
            self._refuse(event, "merge keys (<<) are not supported; write the keys out")
        line = _line(event)
        if key in top.key_lines:
            self._refuse(event, f"duplicate key {key!r} (first on line {top.key_lines[key]})")
        self._count(event, 1, 0)
        top.key_lines[key] = line
        top.key = key
        self._lines[(*top.path, key)] = line

    def _alias(self, event: events.AliasEvent) -> Value:
        name = event.anchor
        if name not in self._anchors:
            self._refuse(event, f"alias *{name} has no anchor before it")
        anchor = self._anchors[name]
        if anchor is None:
            self._refuse(event, f"alias *{name} refers to itself")
        self._count(event, anchor.nodes, anchor.depth)
        return _copy(anchor.value)

    def _close(self) -> None:
        done = self._stack.pop()
        if done.anchor is not None:
            nodes = self._nodes - done.nodes_before
            self._anchors[done.anchor] = _Anchor(done.value, nodes, _depth(done.value))
        self._place(done.value)

    def _place(self, value: Value) -> None:
        if not self._stack:
            self._root = value
            return
        top = self._stack[-1]
        if isinstance(top.value, list):
            top.value.append(value)
        else:
            assert top.key is not None
            top.value[top.key] = value
            top.key = None

    def _scalar(self, event: events.ScalarEvent) -> Scalar:
        text: str = event.value
        if event.tag is None:
            return resolve(text) if event.implicit[0] else text
        if event.tag in ("!", f"{TAG}str"):
            return text
        found = resolve(text)
        if event.tag == f"{TAG}float" and type(found) is int:
            return float(found)
        if _KINDS.get(event.tag) is not type(found):
            self._refuse(event, f"tag {event.tag!r} is not allowed for {text!r}")
        return found


def _copy(value: Value) -> Value:
    """A copy of what an alias names, so that no two places of a document share a value."""
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_copy(item) for item in value]
    return value


def _depth(value: Value) -> int:
    if isinstance(value, dict):
        return 1 + max(map(_depth, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(_depth, value), default=0)
    return 0
