"""Where a run stands on its step axis, and what is due there."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Cursor:
    """Position of a run; environment steps are counted over all ranks.

    `tick` counts vector steps of a rank's environments since the first attempt began, and
    seeds what is drawn in it, so that a resumed run goes on in the same streams.
    """

    tick: int = 0
    iteration: int = 0
    env_steps: int = 0


@dataclass
class Every:
    """Due whenever the step axis passes a multiple of `interval`; never where it is None."""

    interval: int | None
    last: int = 0

    def due(self, env_steps: int) -> bool:
        """Whether a multiple of the interval lies in (last, env_steps]."""
        return self.interval is not None and (
            env_steps // self.interval > self.last // self.interval
        )

    def done(self, env_steps: int) -> None:
        """What was due has been done at this step."""
        self.last = env_steps
