"""A pseudo-terminal with a small screen emulation."""

from __future__ import annotations

import codecs
import contextlib
import fcntl
import os
import re
import struct
import termios
import threading
from collections.abc import Callable, Iterator
from typing import TextIO

import pytest

_TOKEN = re.compile(r"\x1b\[\?*([0-9;]*)([A-Za-z])|\r|\n|[^\x1b\r\n]+")


class Screen:
    """Interprets what the panel writes: cursor up, erase below, clear, home, new lines."""

    def __init__(self) -> None:
        self.lines = [""]
        self.row = self.column = 0
        self.cursor_visible = True

    def feed(self, text: str) -> None:
        for match in _TOKEN.finditer(text):
            argument, command = match.group(1), match.group(2)
            if command is not None:
                self._control(argument, command)
            elif match.group() == "\r":
                self.column = 0
            elif match.group() == "\n":
                self.row, self.column = self.row + 1, 0
                if self.row == len(self.lines):
                    self.lines.append("")
            else:
                self._write(match.group())

    @property
    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self.lines).rstrip("\n")

    def _write(self, text: str) -> None:
        line = self.lines[self.row].ljust(self.column)
        self.lines[self.row] = line[: self.column] + text + line[self.column + len(text) :]
        self.column += len(text)

    def _control(self, argument: str, command: str) -> None:
        if command == "A":
            self.row = max(self.row - int(argument or 1), 0)
        elif command == "J" and argument == "2":
            self.lines = [""] * len(self.lines)
        elif command == "J":
            self.lines = [*self.lines[: self.row], self.lines[self.row][: self.column]]
        elif command == "H":
            self.row = self.column = 0
        elif command in "hl" and argument == "25":
            self.cursor_visible = command == "h"


class PseudoTerminal:
    """Both ends of a pty; what is written is collected on a thread."""

    def __init__(self, columns: int, rows: int) -> None:
        self._master, slave = os.openpty()
        self.resize(columns, rows)
        self.stream: TextIO = os.fdopen(slave, "w", encoding="utf-8")
        self.received = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._changed = threading.Condition()
        self._reading = threading.Event()
        self._reading.set()
        self._thread = threading.Thread(target=self._collect, daemon=True)
        self._thread.start()

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def wait_for(self, condition: Callable[[str], bool]) -> str:
        """What was received once `condition` holds of it."""
        with self._changed:
            met = self._changed.wait_for(lambda: condition(self.received), 20)
            assert met, self.received[-3000:]
            return self.received

    def screen(self) -> Screen:
        """The screen after everything that was written, once the stream is closed."""
        self.stream.close()
        self._thread.join(10)
        shown = Screen()
        shown.feed(self.received)
        return shown

    def stop_reading(self) -> None:
        """As a terminal that was stopped with Ctrl-S, or behind a line that is down."""
        self._reading.clear()

    def go_on_reading(self) -> None:
        self._reading.set()

    def hang_up(self) -> None:
        os.close(self._master)

    def _collect(self) -> None:
        while True:
            self._reading.wait()
            try:
                data = os.read(self._master, 65536)
            except OSError:
                return
            with self._changed:
                self.received += self._decoder.decode(data)
                self._changed.notify_all()


@pytest.fixture
def make_terminal_pair(
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Callable[[int, int], PseudoTerminal]]:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    made: list[PseudoTerminal] = []

    def make(columns: int, rows: int) -> PseudoTerminal:
        made.append(PseudoTerminal(columns, rows))
        return made[-1]

    yield make
    for pair in made:
        pair.go_on_reading()
        with contextlib.suppress(OSError):  # one that hung up cannot be flushed
            pair.stream.close()
