"""What the environment of the pod tells the launcher."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from drivetrain_api import labels
from drivetrain_api.errors import SpecError, Violation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from drivetrain_api.trainingrun import TopologyConfig

SPEC_FILE: Final = "/etc/drivetrain/run.json"
STORAGE: Final = "/var/lib/drivetrain"
SCRATCH: Final = "/run/drivetrain"
TERMINATION_LOG: Final = "/dev/termination-log"

NNODES: Final = "PET_NNODES"
NPROC_PER_NODE: Final = "PET_NPROC_PER_NODE"
NODE_RANK: Final = "PET_NODE_RANK"
MASTER_ADDR: Final = "PET_MASTER_ADDR"
MASTER_PORT: Final = "PET_MASTER_PORT"

_LOOPBACK = "127.0.0.1"
_PORTS = range(1, 65536)


@dataclass(frozen=True)
class LauncherSettings:
    """Folders and files; a variable that is unset means the pod's mount."""

    spec_file: Path
    storage: Path
    scratch: Path
    progress_sink: str | None
    """Where progress goes; nowhere when unset."""
    termination_log: Path
    termination_log_given: bool
    """Whether the file is created where it does not exist."""

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Self:
        """Read the environment."""
        log = environ.get(labels.ENV_TERMINATION_LOG)
        return cls(
            spec_file=Path(environ.get(labels.ENV_SPEC_FILE) or SPEC_FILE),
            storage=Path(environ.get(labels.ENV_STORAGE) or STORAGE),
            scratch=Path(environ.get(labels.ENV_SCRATCH) or SCRATCH),
            progress_sink=environ.get(labels.ENV_PROGRESS_SINK) or None,
            termination_log=Path(log or TERMINATION_LOG),
            termination_log_given=bool(log),
        )


@dataclass(frozen=True)
class Rendezvous:
    """This pod among the pods of an attempt; torchrun's static rendezvous."""

    nodes: int
    ranks_per_node: int
    node_rank: int
    master_addr: str
    master_port: int

    @property
    def ranks(self) -> range:
        """Global ranks of this pod."""
        first = self.node_rank * self.ranks_per_node
        return range(first, first + self.ranks_per_node)

    @property
    def leads(self) -> bool:
        """Whether rank 0, and with it the run's files, is here."""
        return self.node_rank == 0

    @classmethod
    def of(cls, environ: Mapping[str, str], topology: TopologyConfig) -> Self:
        """Read the ``PET_*`` variables; a single pod needs none of them.

        Raises:
            SpecError: naming each variable that is missing, no number, or not what
                `topology` says.
        """
        found: list[Violation] = []
        nodes = _number(environ, NNODES, topology.nodes, range(1, 65), found)
        ranks = _number(environ, NPROC_PER_NODE, topology.ranks_per_node, range(1, 17), found)
        for name, value, path, wanted in (
            (NNODES, nodes, "topology.nodes", topology.nodes),
            (NPROC_PER_NODE, ranks, "topology.ranks_per_node", topology.ranks_per_node),
        ):
            if value != wanted:
                found.append(Violation(name, f"must be {path} ({wanted}); got {value}"))
        if topology.nodes > 1:
            found += [
                Violation(name, f"is required with {topology.nodes} pods")
                for name in (NODE_RANK, MASTER_ADDR, MASTER_PORT)
                if not environ.get(name)
            ]
        node_rank = _number(environ, NODE_RANK, 0, range(topology.nodes), found)
        port = _number(environ, MASTER_PORT, None, _PORTS, found)
        if found:
            raise SpecError(tuple(found))
        return cls(
            nodes=nodes,
            ranks_per_node=ranks,
            node_rank=node_rank,
            # A pod that is alone needs no name of its own, and so no DNS.
            master_addr=environ[MASTER_ADDR] if nodes > 1 else _LOOPBACK,
            master_port=port or _free_port(),
        )


def _number(
    environ: Mapping[str, str],
    name: str,
    default: int | None,
    allowed: range,
    found: list[Violation],
) -> int:
    text = environ.get(name)
    if not text:
        return default or 0
    if not (text.isascii() and text.isdecimal() and int(text) in allowed):
        limits = f"a whole number from {allowed.start} to {allowed.stop - 1}"
        found.append(Violation(name, f"must be {limits}; got {text!r}"))
        return default or 0
    return int(text)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_LOOPBACK, 0))
        return int(probe.getsockname()[1])
