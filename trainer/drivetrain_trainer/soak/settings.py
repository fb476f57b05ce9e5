"""How a soak is judged, in seconds and bytes; `spec.soak` and the command line both end here."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from drivetrain_api.soak import Resource, SoakConfig

if TYPE_CHECKING:
    from collections.abc import Mapping


def _default_limits() -> dict[Resource, int]:
    growth = SoakConfig().growth
    return {resource: growth.limit(resource) for resource in Resource}


@dataclass(frozen=True)
class MonitorSettings:
    """Intervals in seconds, limits of growth in bytes (or counts)."""

    sample_s: float = 5.0
    start_s: float = 600.0
    stale_s: float = 120.0
    grace_s: float = 5.0
    warm_up_s: float = 60.0
    duration_s: float | None = None
    """Length that was asked for; the run is stopped where it goes on much longer."""
    limits: Mapping[Resource, int] = field(default_factory=_default_limits)
    throughput_decay: float = 0.5
    """Share of the throughput that may be lost."""

    @classmethod
    def of(cls, config: SoakConfig) -> Self:
        """The settings that a manifest asks for."""
        return cls(
            sample_s=config.sample_seconds,
            start_s=config.start_seconds,
            stale_s=config.stale_seconds,
            grace_s=config.grace_seconds,
            warm_up_s=config.warm_up_seconds,
            duration_s=config.duration_seconds,
            limits={resource: config.growth.limit(resource) for resource in Resource},
            throughput_decay=config.throughput_decay_percent / 100,
        )
