"""What is followed around runs: their Jobs, pods and ConfigMaps, and Events on the Jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivetrain_operator.cluster.pruning import CHILD_SELECTOR, EVENT_SELECTOR
from drivetrain_operator.cluster.reflector import Pace, Reflector, Sink
from drivetrain_operator.cluster.resources import CONFIG_MAPS, EVENTS, JOBS, PODS

if TYPE_CHECKING:
    from drivetrain_operator.cluster.client import Cluster


def child_reflectors(
    cluster: Cluster, sink: Sink, *, namespaces: tuple[str, ...] = (), pace: Pace | None = None
) -> tuple[Reflector, ...]:
    """One reflector for each resource that decisions rest on, runs themselves apart.

    Args:
        cluster: The API server.
        sink: The store.
        namespaces: Where; empty for everywhere.
        pace: How they are read.
    """
    children = tuple(
        Reflector(
            cluster,
            resource,
            sink,
            namespaces=namespaces,
            label_selector=CHILD_SELECTOR,
            pace=pace,
        )
        for resource in (JOBS, PODS, CONFIG_MAPS)
    )
    events = Reflector(
        cluster, EVENTS, sink, namespaces=namespaces, field_selector=EVENT_SELECTOR, pace=pace
    )
    return (*children, events)
