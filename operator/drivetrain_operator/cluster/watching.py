"""What is followed around runs: their Jobs, pods and ConfigMaps, and Events on the Jobs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from drivetrain_operator.cluster.pruning import CHILD_SELECTOR, EVENT_SELECTOR
from drivetrain_operator.cluster.reflector import Pace, Reflector, Sink
from drivetrain_operator.cluster.resources import CONFIG_MAPS, EVENTS, JOBS, PODS

if TYPE_CHECKING:
    from drivetrain_operator.cluster.client import Cluster

_EVENTS_SHARE: Final = 0.45
"""Of the silence: watches of Events get no bookmarks, so that a sound one is ended, after this
time and up to as much again, before its silence means anything."""


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
    pace = pace if pace is not None else Pace()
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
        cluster,
        EVENTS,
        sink,
        namespaces=namespaces,
        field_selector=EVENT_SELECTOR,
        pace=replace(pace, watch_timeout_s=pace.silence_s * _EVENTS_SHARE),
    )
    return (*children, events)
