"""The cluster that a suite belongs to: noted in its record, and compared at the next start."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from drivetrain_api.artifacts.suite_record import SUITE_RECORD, SuiteBackend, SuiteCluster
from drivetrain_operator.cli.refusal import Refusal

if TYPE_CHECKING:
    from drivetrain_api.artifacts.suite_record import SuiteRecord
    from drivetrain_operator.kubectl.session import Session
    from drivetrain_operator.suite.suite_file import SuiteFile

_PORTS: Final = {"https": 443, "http": 80}


def place_of(session: Session) -> SuiteCluster:
    """Server and namespace of a connection.

    Both are known without asking anybody: the id of a cluster, which is that of its
    kube-system namespace, is more than somebody with rights on TrainingRuns alone may read.
    """
    return SuiteCluster(
        server=address(session.cluster.host),
        namespace=session.namespace,
        context=session.connection.context,
    )


def address(url: str) -> str:
    """A server's address in one spelling: no user, no password, no port that goes unsaid."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if ":" in host:
        host = f"[{host}]"
    if parts.port is not None and parts.port != _PORTS.get(parts.scheme):
        host = f"{host}:{parts.port}"
    return f"{parts.scheme}://{host}{parts.path.rstrip('/')}"


def refuse_elsewhere(file: SuiteFile, record: SuiteRecord, here: SuiteCluster) -> None:
    """Refuse to go on with a suite in a place that it is not in.

    A record of another suite or backend is not judged, nor one that names no cluster.

    Raises:
        Refusal: names both places, and how to get to the right one.
    """
    there = record.cluster
    if record.name != file.name or record.backend is not SuiteBackend.CLUSTER or there is None:
        return
    if there.key == here.key:
        return
    lines = [f"suite {file.name} was started {_words(there)}; got {_words(here)}"]
    wanted = []
    if there.server != here.server:
        named = f"--context {there.context}" if there.context else "--context"
        wanted.append(f"{named} of {there.server}")
    if there.namespace != here.namespace:
        wanted.append(f"--namespace {there.namespace}")
    hint = (
        f"go on there with {' and '.join(wanted)}; --fresh starts the suite over here and leaves "
        "what is there alone; another metadata.name makes another suite"
    )
    if there.namespace == here.namespace:
        hint += (
            f"; if it is the same cluster by another address, move {file.suite.root}/"
            f"{SUITE_RECORD} away: its TrainingRuns tell where it was"
        )
    raise Refusal(lines, hint)


def _words(place: SuiteCluster) -> str:
    context = f" (context {place.context})" if place.context else ""
    return f"on {place.server}{context} in namespace {place.namespace}"
