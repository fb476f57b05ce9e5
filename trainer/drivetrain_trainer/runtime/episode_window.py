"""Returns and lengths of the latest episodes."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import torch

if TYPE_CHECKING:
    from torch import Tensor

WINDOW: Final = 100
"""Episodes that the means are over."""


@dataclass(frozen=True)
class _Episode:
    total_reward: float
    length: int
    timeout: bool


class EpisodeWindow:
    """Means over the latest `WINDOW` episodes of all groups, and counts since the start."""

    def __init__(self) -> None:
        self.episodes = 0
        self.timeouts = 0
        self._latest: deque[_Episode] = deque(maxlen=WINDOW)

    def add(self, total_reward: float, length: int, *, timeout: bool) -> None:
        """An episode has ended."""
        self.episodes += 1
        self.timeouts += timeout
        self._latest.append(_Episode(total_reward, length, timeout))

    def gauges(self) -> dict[str, float]:
        """The means by canonical tag; empty until an episode has ended."""
        count = len(self._latest)
        if not count:
            return {}
        return {
            "Train/mean_reward": sum(episode.total_reward for episode in self._latest) / count,
            "Train/mean_episode_length": sum(episode.length for episode in self._latest) / count,
            "Episode/timeout_rate": sum(episode.timeout for episode in self._latest) / count,
        }


class RunningEpisodes:
    """Return and length so far of each environment of a group."""

    def __init__(self, num_envs: int, window: EpisodeWindow) -> None:
        self._window = window
        # Sums in float64: a float32 sum over a thousand rewards is off in the fourth digit.
        self._total = torch.zeros(num_envs, dtype=torch.float64)
        self._length = torch.zeros(num_envs, dtype=torch.int64)

    def place(self, device: torch.device) -> None:
        """Keep the sums where rewards are."""
        self._total = self._total.to(device)
        self._length = self._length.to(device)

    def step(self, reward: Tensor, done: Tensor, truncated: Tensor, invalid: Tensor) -> None:
        """Count a step.

        Args:
            reward: (n,) float32.
            done: (n,) bool, an episode ended.
            truncated: (n,) bool, it ended by time.
            invalid: (n,) bool, the world diverged and was reset: its episode counts for nothing,
                as one does in which a reward was not finite.
        """
        self._total += reward
        self._length += 1
        over = done | invalid
        if not over.any():
            return
        for index in done.nonzero().flatten().tolist():
            total = self._total[index].item()
            if not invalid[index] and math.isfinite(total):
                self._window.add(
                    total,
                    int(self._length[index]),
                    timeout=bool(truncated[index]),
                )
        self._total.masked_fill_(over, 0.0)
        self._length.masked_fill_(over, 0)
