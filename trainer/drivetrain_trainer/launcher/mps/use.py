"""Whether MPS is in use: each rank of the pod seen as a client of its GPU's server.

The questions are asked one after the other without waiting for an answer, so that the
launcher's loop goes on; the loop reaps the children and passes their ends on.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog

from drivetrain_trainer.launcher.mps.control import ANSWER_SECONDS, MpsError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from drivetrain_trainer.launcher.mps.control import Control, Query

log = structlog.get_logger(__name__)

NOT_SERVING: Final = ("INITIALIZING", "FAULT")
"""States of a server whose clients do not count; drivers before 2022 tell of no state."""

_PAUSE_SECONDS = 2.0


@dataclass(frozen=True)
class ServedRank:
    """A rank that was seen as a client."""

    rank: int
    server: int
    """Process id of the server."""


@dataclass(frozen=True)
class Clients:
    """What a daemon says of its servers."""

    servers: Mapping[int, int]
    """Process id of the server by that of its client, where the server is fit to serve."""
    words: str
    """The servers and their states, for a refusal."""


def ask_clients() -> Generator[str, str, Clients]:
    """One round of commands, each sent its answer: the servers, the state of each, its clients."""
    servers: dict[int, int] = {}
    states: list[str] = []
    for server in _pids((yield "get_server_list")):
        state = (yield f"get_server_status {server}").strip()
        states.append(f"{server} is {state or 'silent'}")
        if any(word in state.upper() for word in NOT_SERVING):
            continue
        for client in _pids((yield f"get_client_list {server}")):
            servers[client] = server
    words = f"servers: {', '.join(states)}" if states else "no server was started"
    return Clients(servers, words)


@dataclass
class UseCheck:
    """Asks one daemon until its ranks are its clients."""

    control: Control
    ranks: frozenset[int]
    """Ranks that its GPU belongs to."""
    rank_of: Callable[[int], int | None]
    """The rank that a process belongs to."""
    served: dict[int, ServedRank] = field(default_factory=dict)
    problem: str = "it has not been asked yet"
    """Why not all ranks are served, as of the last round."""
    _query: Query | None = None
    _round: Generator[str, str, None] | None = None
    _asked_at: float = 0.0
    _next_round: float = 0.0

    @property
    def done(self) -> bool:
        """Whether every rank was seen as a client."""
        return self.ranks <= self.served.keys()

    def poll(self, codes: Mapping[int, int]) -> None:
        """Take an answer that has come, and ask the next question."""
        now = time.monotonic()
        if self._query is not None:
            if self._query.pid in codes:
                self._take(codes[self._query.pid])
            elif now - self._asked_at > ANSWER_SECONDS:
                self._query.kill()  # its end comes through `codes`
        elif not self.done and now >= self._next_round:
            self._round = self._questions()
            self._ask(next(self._round))

    def close(self) -> None:
        """Drop a question that is under way."""
        if self._query is not None:
            self._query.kill()
            self._query.close()
            self._query = None

    def _questions(self) -> Generator[str, str, None]:
        """One round, and which ranks it finds."""
        found = yield from ask_clients()
        for client, server in found.servers.items():
            rank = self.rank_of(client)
            if rank in self.ranks:
                self.served[rank] = ServedRank(rank, server)
        missing = sorted(self.ranks - self.served.keys())
        self.problem = f"rank {', '.join(map(str, missing))} is no client ({found.words})"

    def _ask(self, command: str) -> None:
        try:
            self._query = self.control.start(command)
            self._asked_at = time.monotonic()
        except MpsError as error:
            self._end_round(str(error))

    def _take(self, exit_code: int) -> None:
        assert self._query is not None  # asked, or there is nothing to take
        assert self._round is not None  # likewise
        query, self._query = self._query, None
        try:
            self._ask(self._round.send(query.answer(exit_code)))
        except StopIteration:
            self._end_round(None)
        except MpsError as error:
            self._end_round(str(error))

    def _end_round(self, problem: str | None) -> None:
        self.problem = problem or self.problem
        self._round = None
        self._next_round = time.monotonic() + _PAUSE_SECONDS


def rank_of_process(pid: int) -> int | None:
    """The rank that torchrun gave a process, or one above it, by its environment."""
    try:
        content = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return None
    for entry in content.split(b"\0"):
        name, _, value = entry.partition(b"=")
        if name == b"RANK" and value.isdigit():
            return int(value)
    return None


def _pids(text: str) -> list[int]:
    """Process ids in an answer, one a line; other words are left out."""
    return [int(line) for line in re.findall(r"^\s*([0-9]+)\s*$", text, re.MULTILINE)]
