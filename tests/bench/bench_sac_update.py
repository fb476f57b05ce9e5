"""SAC updates a second against a loop in the usual single-file style, on one thread.

Both gather a batch from a replay of their own and make one full update: critics, actor,
temperature, targets; twin Q, 256 x 256, batch 256, observations 17, actions 6.
"""

from __future__ import annotations

import statistics
import time
from typing import Protocol

import torch
from tests.bench.result import Result
from torch import Tensor, nn
from torch.nn import functional

from drivetrain_api.algorithms import Activation, CriticKind, Precision, SacConfig
from drivetrain_trainer.algorithms.precision import cpu_precision
from drivetrain_trainer.algorithms.sac.agent import SacAgent
from drivetrain_trainer.runtime.replay_layout import RowLayout

OBSERVATIONS, ACTIONS, BATCH, HIDDEN, ROWS = 17, 6, 256, 256, 100_000

TARGETS = {Precision.FP32: 1.2, Precision.BF16: 2.0}
"""Least multiple of the reference's rate."""

_WARM_UP = 20
_UPDATES = 8


class Contender(Protocol):
    updates: int
    """Of one call of `learn`."""

    def learn(self) -> None: ...


def random_rows() -> Tensor:
    """Packed rows (ROWS, W) of the sizes above, none of them an episode's last."""
    layout = RowLayout(OBSERVATIONS, ACTIONS)
    rows = torch.randn(ROWS, layout.width, generator=torch.Generator().manual_seed(0))
    views = layout.view(rows)
    views.action.tanh_()
    views.done.zero_()
    views.truncated.zero_()
    return rows


class Ours:
    """The agent as the learner loop calls it, with the CPU presets' updates an iteration."""

    updates = 4

    def __init__(self, precision: Precision) -> None:
        self._agent = SacAgent(
            SacConfig(
                batch_size=BATCH,
                updates_per_step=self.updates,
                policy_frequency=1,
                gamma=0.99,
                tau=0.005,
                adam_betas=(0.9, 0.999),
                weight_decay=0.0,
                alpha_init=1.0,
                actor_hidden=(HIDDEN, HIDDEN),
                critic_hidden=(HIDDEN, HIDDEN),
                activation=Activation.RELU,
                layer_norm=False,
                critic=CriticKind.TWIN_Q,
                observation_normalization=False,
                precision=precision,
            ),
            observation_dim=OBSERVATIONS,
            action_dim=ACTIONS,
            device=torch.device("cpu"),
            seed=0,
        )
        self._rows = random_rows()
        self._layout = RowLayout(OBSERVATIONS, ACTIONS)
        self._generator = torch.Generator()
        self._iteration = 0

    def learn(self) -> None:
        """Sample from the packed ring, seeded by the iteration, and learn."""
        self._generator.manual_seed(self._iteration)
        chosen = torch.randint(ROWS, (self.updates * BATCH,), generator=self._generator)
        rows = self._rows.index_select(0, chosen).view(self.updates, BATCH, -1)
        batch = self._layout.view(rows)
        self._agent.update(batch, iteration=self._iteration, stop_requested=False)
        self._iteration += 1


class Reference:
    """Separate networks, default Adam, a buffer a field, targets parameter by parameter."""

    updates = 1

    def __init__(self) -> None:
        torch.manual_seed(0)
        self._trunk = _mlp(OBSERVATIONS, HIDDEN)[:-1]
        self._mean, self._log_std = nn.Linear(HIDDEN, ACTIONS), nn.Linear(HIDDEN, ACTIONS)
        self._critics = [_mlp(OBSERVATIONS + ACTIONS, 1) for _ in range(2)]
        self._targets = [_mlp(OBSERVATIONS + ACTIONS, 1) for _ in range(2)]
        actor = nn.ModuleList([self._trunk, self._mean, self._log_std])
        self._actor_optimizer = torch.optim.Adam(actor.parameters(), lr=3e-4)
        self._critic_optimizer = torch.optim.Adam(
            nn.ModuleList(self._critics).parameters(), lr=1e-3
        )
        self._log_alpha = torch.zeros(1, requires_grad=True)
        self._alpha_optimizer = torch.optim.Adam([self._log_alpha], lr=1e-3)
        views = RowLayout(OBSERVATIONS, ACTIONS).view(random_rows())
        fields = (views.observation, views.action, views.reward, views.done, views.next_observation)
        self._fields = tuple(field.contiguous() for field in fields)

    def learn(self) -> None:
        """One update of critics, actor, temperature and targets, in that order."""
        chosen = torch.randint(ROWS, (BATCH,))
        observation, action, reward, done, following = (field[chosen] for field in self._fields)
        with torch.no_grad():
            fresh, log_prob = self._sample(following)
            after = self._least(self._targets, following, fresh)
            target = reward + (1 - done) * 0.99 * (after - self._log_alpha.exp() * log_prob)
        pair = torch.cat([observation, action], 1)
        errors = [functional.mse_loss(q(pair).view(-1), target) for q in self._critics]
        _step(self._critic_optimizer, errors[0] + errors[1])
        fresh, log_prob = self._sample(observation)
        value = self._least(self._critics, observation, fresh)
        _step(self._actor_optimizer, (self._log_alpha.exp() * log_prob - value).mean())
        with torch.no_grad():
            _, log_prob = self._sample(observation)
        _step(self._alpha_optimizer, (-self._log_alpha.exp() * (log_prob - ACTIONS)).mean())
        for critic, copy in zip(self._critics, self._targets, strict=True):
            for online, slow in zip(critic.parameters(), copy.parameters(), strict=True):
                slow.data.copy_(0.005 * online.data + 0.995 * slow.data)

    def _sample(self, observation: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self._trunk(observation)
        log_std = -5 + 3.5 * (torch.tanh(self._log_std(hidden)) + 1)
        normal = torch.distributions.Normal(self._mean(hidden), log_std.exp())
        drawn = normal.rsample()
        action = torch.tanh(drawn)
        density = normal.log_prob(drawn)  # type: ignore[no-untyped-call]  # torch has no stub
        return action, (density - torch.log(1 - action.pow(2) + 1e-6)).sum(1)

    def _least(self, critics: list[nn.Sequential], observation: Tensor, action: Tensor) -> Tensor:
        pair = torch.cat([observation, action], 1)
        values: list[Tensor] = [critic(pair).view(-1) for critic in critics]
        return torch.min(*values)


def _mlp(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(inputs, HIDDEN),
        nn.ReLU(),
        nn.Linear(HIDDEN, HIDDEN),
        nn.ReLU(),
        nn.Linear(HIDDEN, outputs),
    )


def _step(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]  # torch has no stub
    optimizer.step()


def measure() -> list[Result]:
    """Ours in fp32, and in bf16 where the CPU has the instructions."""
    torch.set_num_threads(1)
    best = cpu_precision(torch.cpu.get_capabilities())
    return [compare(precision) for precision in TARGETS if precision in {Precision.FP32, best}]


def compare(precision: Precision, *, rounds: int = 40) -> Result:
    """Updates a second of both in turn, a few at a time, by the thread's own CPU time.

    CPU time of the one thread is its wall time on a core of its own, whatever else runs.

    Args:
        precision: Of ours; the reference computes in float32.
        rounds: Pairs that the medians are taken over.
    """
    ours, reference = Ours(precision), Reference()
    for contender in (ours, reference):
        _seconds(contender, _WARM_UP)
    pairs = []
    for index in range(rounds):
        # Each goes first in turn, so that neither always finds the caches warm.
        if index % 2:
            mine, theirs = _seconds(ours), _seconds(reference)
        else:
            theirs, mine = _seconds(reference), _seconds(ours)
        pairs.append((mine, theirs))
    rates = [1 / mine for mine, _ in pairs]
    return Result(
        name=f"sac_update_{precision.value}",
        metric=f"updates/s, B = {BATCH}, {HIDDEN}x{HIDDEN} twin Q, 1 thread",
        ours=statistics.median(rates),
        reference=statistics.median(1 / theirs for _, theirs in pairs),
        reference_name="single-file loop in float32",
        ratio=statistics.median(theirs / mine for mine, theirs in pairs),
        target=TARGETS[precision],
        better="higher",
        runs=rounds,
        spread=(min(rates), max(rates)),
    )


def _seconds(contender: Contender, updates: int = _UPDATES) -> float:
    """CPU seconds of this thread for one update."""
    began = time.thread_time()
    for _ in range(updates // contender.updates):
        contender.learn()
    return (time.thread_time() - began) / updates
