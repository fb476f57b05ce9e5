from __future__ import annotations

import pytest
import torch

from drivetrain_trainer.runtime.episode_window import WINDOW, EpisodeWindow, RunningEpisodes


def flags(*marked: int, count: int = 3) -> torch.Tensor:
    tensor = torch.zeros(count, dtype=torch.bool)
    tensor[list(marked)] = True
    return tensor


def test_nothing_is_said_before_an_episode_has_ended() -> None:
    window = EpisodeWindow()
    episodes = RunningEpisodes(3, window)
    episodes.step(torch.ones(3), flags(), flags(), flags())
    assert window.gauges() == {}


def test_returns_and_lengths_are_those_of_each_episode() -> None:
    window = EpisodeWindow()
    episodes = RunningEpisodes(3, window)
    reward = torch.tensor([1.0, 10.0, 100.0])
    episodes.step(reward, flags(), flags(), flags())
    episodes.step(reward, flags(0, 2), flags(2), flags())
    assert (window.episodes, window.timeouts) == (2, 1)
    assert window.gauges() == {
        "Train/mean_reward": (2.0 + 200.0) / 2,
        "Train/mean_episode_length": 2.0,
        "Episode/timeout_rate": 0.5,
    }
    episodes.step(reward, flags(0, 1), flags(), flags())
    assert window.gauges()["Train/mean_reward"] == (2.0 + 200.0 + 1.0 + 30.0) / 4
    assert window.gauges()["Train/mean_episode_length"] == (2 + 2 + 1 + 3) / 4


def test_a_diverged_world_begins_anew_and_counts_for_nothing() -> None:
    window = EpisodeWindow()
    episodes = RunningEpisodes(3, window)
    episodes.step(torch.full((3,), 5.0), flags(), flags(), flags(1))
    episodes.step(torch.full((3,), 5.0), flags(0, 1), flags(), flags(0))
    assert window.episodes == 1
    assert window.gauges()["Train/mean_reward"] == 5.0
    assert window.gauges()["Train/mean_episode_length"] == 1.0


def test_the_means_are_over_the_latest_hundred() -> None:
    window = EpisodeWindow()
    for number in range(WINDOW + 50):
        window.add(float(number), number, timeout=number < 60)
    assert window.episodes == 150
    assert window.timeouts == 60
    assert window.gauges() == {
        "Train/mean_reward": sum(range(50, 150)) / 100,
        "Train/mean_episode_length": sum(range(50, 150)) / 100,
        "Episode/timeout_rate": 0.1,
    }


def test_long_sums_do_not_drift() -> None:
    window = EpisodeWindow()
    episodes = RunningEpisodes(1, window)
    none = flags(count=1)
    for _ in range(9_999):
        episodes.step(torch.full((1,), 0.1), none, none, none)
    episodes.step(torch.full((1,), 0.1), flags(0, count=1), none, none)
    assert window.gauges()["Train/mean_reward"] == pytest.approx(1_000.0, rel=1e-7)
