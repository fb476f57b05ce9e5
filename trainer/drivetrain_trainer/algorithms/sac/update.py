"""One SAC update: fixed tensors in, everything left on the device, the host never waits."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import torch

from drivetrain_trainer.algorithms.distributed import GradientReducer, broadcast_from_first
from drivetrain_trainer.algorithms.host_mirror import HostMirror
from drivetrain_trainer.algorithms.optimizer import VectorAdamW
from drivetrain_trainer.algorithms.parameters import ParameterVector, parameter_count
from drivetrain_trainer.algorithms.sac.critics import make_objective
from drivetrain_trainer.algorithms.sac.metrics import ACTOR_TAGS, CRITIC_TAGS
from drivetrain_trainer.algorithms.sac.networks import Actor, make_critic, squash
from drivetrain_trainer.algorithms.sac.temperature import Temperature
from drivetrain_trainer.stats import DeviceMeans

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor, nn
    from torch.distributed import ProcessGroup

    from drivetrain_api.algorithms import SacConfig

_ALPHA: Final = 1
"""Leading elements of the actor's reduction: the temperature's gradient travels with it."""


@dataclass(frozen=True)
class PreparedRows:
    """U batches of B rows, as the update function takes them."""

    observation: Tensor
    """(U, B, o) normalised, in the type of the products."""
    state_action: Tensor
    """(U, B, o + a) normalised observation and action, in that type."""
    next_observation: Tensor
    """(U, B, o) likewise."""
    reward: Tensor
    """(U, B) float32."""
    discount: Tensor
    """(U, B) float32: gamma times the bootstrap weight."""
    noise: Tensor
    """(2, U, B, a) float32 standard normal: of the next actions, of the actions."""


@dataclass(frozen=True)
class UpdateStatus:
    """What the host learns of the ranks' latest updates; the same on every rank."""

    consecutive_skips: int
    """Updates skipped in a row, the latest included."""
    stop_requested: bool
    """Whether any rank asked to stop."""
    faults: tuple[str, ...]
    """What was not finite in the latest update of each network, by rank where a loss tells."""


class SacUpdate:
    """Networks, optimizers and the update of all three.

    An update whose losses or gradients are not finite on any rank is skipped on all of
    them: parameters, moments and targets stay as they are. Adam's kernels read the skip
    flag on the device.

    Args:
        config: Sizes, rates, critic kind.
        actor: The float32 master, whose parameters become views of one vector.
        observation_dim: Columns of observations.
        action_dim: Columns of actions.
        dtype: Element type of the matrix products.
        device: Of everything.
        group: The ranks; None for a single one.
        statistics: Elements of one rank's normaliser statistics; 0 for none.
    """

    def __init__(
        self,
        config: SacConfig,
        actor: Actor,
        *,
        observation_dim: int,
        action_dim: int,
        dtype: torch.dtype,
        device: torch.device,
        group: ProcessGroup | None,
        statistics: int,
    ) -> None:
        self._config = config
        self._objective = make_objective(config, device)
        self.critic_outputs = self._objective.outputs
        """Columns of each critic's output."""
        critic = make_critic(
            config, observation_dim, action_dim, outputs=self._objective.outputs
        ).to(device)
        target = copy.deepcopy(critic)
        self.critic_reducer = GradientReducer(
            parameter_count(critic), device=device, group=group, statistics=statistics
        )
        self.actor_reducer = GradientReducer(
            _ALPHA + parameter_count(actor), device=device, group=group
        )
        alpha_gradient, actor_gradient = self.actor_reducer.gradient.tensor_split([_ALPHA])
        critic_gradient = self.critic_reducer.gradient
        self.critic = ParameterVector(critic, dtype=dtype, gradient=critic_gradient)
        self.target = ParameterVector(target, dtype=dtype)
        self.actor = ParameterVector(actor, dtype=dtype, gradient=actor_gradient)
        self.temperature = Temperature(config, action_dim=action_dim, gradient=alpha_gradient[0])
        self._critic_optimizer = VectorAdamW(
            self.critic.values,
            critic_gradient,
            learning_rate=config.critic_learning_rate,
            betas=config.adam_betas,
            weight_decay=config.weight_decay,
        )
        self._actor_optimizer = VectorAdamW(
            self.actor.values,
            actor_gradient,
            learning_rate=config.actor_learning_rate,
            betas=config.adam_betas,
            weight_decay=config.weight_decay,
        )
        self.means = (DeviceMeans(CRITIC_TAGS, device), DeviceMeans(ACTOR_TAGS, device))
        self._world_size = self.critic_reducer.world_size
        self._mean_divisor = torch.full((), float(self._world_size), device=device)
        self._tau = torch.full((), config.tau, device=device)
        self._zero = torch.zeros((), device=device)
        self._critic_skipped = self._actor_skipped = torch.zeros(
            (), dtype=torch.bool, device=device
        )
        self.consecutive_skips = torch.zeros((), device=device)
        """Updates skipped in a row, the latest included."""
        self.total_skips = torch.zeros((), device=device)
        self._mirror = HostMirror(4 + 2 * self._world_size, device)
        broadcast_from_first([self.critic.values, self.target.values, self.actor.values], group)
        self.refresh()

    def step(self, rows: PreparedRows, index: int, *, learn_policy: bool) -> None:
        """Update number `index` of `rows`: critics, then actor and temperature where asked.

        The target critics follow at the end: Polyak averaging.
        """
        alpha = self.temperature.value()
        critic_norm = self._critic_step(rows, index, alpha)
        skipped = self._critic_skipped
        if learn_policy:
            self._actor_step(rows, index, alpha, critic_norm)
            skipped = self._actor_skipped
        weight = torch.where(self._critic_skipped, self._zero, self._tau)
        self.target.values.lerp_(self.critic.values, weight)
        self.target.refresh()
        self.total_skips += skipped
        self.consecutive_skips.add_(skipped).mul_(skipped)

    def _critic_step(self, rows: PreparedRows, index: int, alpha: Tensor) -> Tensor:
        objective = self._objective
        with torch.no_grad():
            observation = rows.next_observation[index]
            mean, log_std = self.actor.compute(observation)
            sample = squash(mean, log_std, rows.noise[0, index])
            target = objective.target(
                self.target.compute(_join(observation, sample.action)),
                reward=rows.reward[index],
                discount=rows.discount[index],
                entropy_cost=alpha * sample.log_prob,
            )
        loss = objective.loss(self.critic.compute(rows.state_action[index]), target)
        self.critic.backward(loss)
        loss = loss.detach()
        self.critic_reducer.reduce(loss)
        norm = self.critic_reducer.norm()
        self._critic_skipped = _not_finite(norm)
        self._critic_optimizer.step(skip=self._critic_skipped.float(), divisor=self._divisor(norm))
        self.critic.refresh()
        low, high = objective.target_values(target).aminmax()
        self.means[0].add((loss, norm, high, low), skipped=self._critic_skipped)
        return norm

    def _actor_step(
        self, rows: PreparedRows, index: int, alpha: Tensor, critic_norm: Tensor
    ) -> None:
        observation = rows.observation[index]
        mean, log_std = self.actor.compute(observation)
        sample = squash(mean, log_std, rows.noise[1, index])
        # Only the actor's gradient is asked for below: the critics' parameters take no part.
        outputs = self.critic.compute(_join(observation, sample.action))
        loss = (alpha * sample.log_prob - self._objective.policy_value(outputs)).mean()
        self.actor.backward(loss)
        with torch.no_grad():
            loss = loss.detach()
            mean_log_prob = sample.log_prob.mean()
            temperature_loss = self.temperature.loss(mean_log_prob)
            self.actor_reducer.reduce(loss)
            norm = self.actor_reducer.norm(start=_ALPHA)
            self._actor_skipped = _not_finite(norm) | self._critic_skipped
            skip = self._actor_skipped.float()
            self._actor_optimizer.step(skip=skip, divisor=self._divisor(norm))
            divisor = self._mean_divisor if self._world_size > 1 else None
            self.temperature.step(skip=skip, divisor=divisor)
            self.actor.refresh()
            figures = (
                loss,
                temperature_loss,
                -mean_log_prob,
                alpha,
                sample.std.mean(),
                norm,
                torch.hypot(norm, critic_norm),
            )
            self.means[1].add(figures, skipped=self._actor_skipped)

    def _divisor(self, norm: Tensor) -> Tensor | None:
        """What the reduced gradient is divided by: the ranks, and the excess over the bound."""
        bound = self._config.max_grad_norm
        if bound > 0:
            return (norm / bound).clamp(min=1.0) * self._mean_divisor
        return self._mean_divisor if self._world_size > 1 else None

    def publish(self) -> UpdateStatus:
        """Send the status to the host, and give the latest that is there (see `HostMirror`)."""
        self._mirror.publish(
            torch.cat(
                [
                    torch.stack(
                        [self.consecutive_skips, self._critic_skipped, self._actor_skipped]
                    ),
                    self.critic_reducer.stop,
                    self.critic_reducer.sentinels,
                    self.actor_reducer.sentinels,
                ]
            )
        )
        consecutive, critic, actor, stop, *sentinels = self._mirror.read()
        named = _name_faults((critic, actor), sentinels) if consecutive else ()
        return UpdateStatus(int(consecutive), stop > 0, named)

    def refresh(self) -> None:
        """Bring all computing copies up to their masters."""
        for vector in (self.critic, self.target, self.actor):
            vector.refresh()

    def modules(self) -> dict[str, nn.Module]:
        """The masters by their names in a checkpoint."""
        return {
            "actor": self.actor.module,
            "critic": self.critic.module,
            "target_critic": self.target.module,
        }

    def named_gradients(self) -> Iterator[tuple[str, Tensor]]:
        """Of the latest updates, summed over the ranks, by network and parameter."""
        for network, vector in (("critic", self.critic), ("actor", self.actor)):
            for name, gradient in vector.named_gradients():
                yield f"{network}.{name}", gradient

    def optimizers(self) -> dict[str, VectorAdamW]:
        """By their names in a checkpoint."""
        return {
            "actor": self._actor_optimizer,
            "critic": self._critic_optimizer,
            "temperature": self.temperature.optimizer,
        }


def _join(observation: Tensor, action: Tensor) -> Tensor:
    return torch.cat([observation, action.to(observation.dtype)], dim=-1)


def _not_finite(norm: Tensor) -> Tensor:
    return torch.isnan(norm * 0.0)


def _name_faults(skipped: tuple[float, float], sentinels: list[float]) -> tuple[str, ...]:
    """Names of what was not finite, from the skips and the sentinels of critics, then actor."""
    faults = []
    world_size = len(sentinels) // 2
    for part, name in enumerate(("critic", "actor")):
        slots = sentinels[part * world_size : (part + 1) * world_size]
        ranks = [str(rank) for rank, slot in enumerate(slots) if math.isnan(slot)]
        if ranks:
            faults.append(f"{name} loss on rank {', '.join(ranks)}")
        elif skipped[part] and not faults:
            faults.append(f"{name} gradient")
    return tuple(faults)
