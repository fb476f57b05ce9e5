"""The SAC agent: what the learner loop, evaluation and checkpoints meet."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from drivetrain_trainer.algorithms.noise import NoiseStreams, Stream
from drivetrain_trainer.algorithms.nonfinite import (
    NonFiniteTrainingError,
    describe_batch,
    describe_tensors,
)
from drivetrain_trainer.algorithms.normalization import (
    ObservationNormalizer,
    PendingStatistics,
    statistics_size,
)
from drivetrain_trainer.algorithms.precision import compute_dtype, resolve_precision
from drivetrain_trainer.algorithms.sac.flops import sac_flops
from drivetrain_trainer.algorithms.sac.networks import Policy
from drivetrain_trainer.algorithms.sac.update import PreparedRows, SacUpdate, UpdateStatus
from drivetrain_trainer.stats import StatsTracker
from drivetrain_trainer.stats.throughput import ThroughputMeter
from drivetrain_trainer.tracing import NULL_TRACER

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torch.distributed import ProcessGroup

    from drivetrain_api.algorithms import SacConfig
    from drivetrain_trainer.runtime.replay_layout import Batch
    from drivetrain_trainer.tracing import Tracer

__all__ = ["NonFiniteTrainingError", "SacAgent"]


class SacAgent:
    """Acts, learns, and keeps everything that a resumed run needs.

    Whatever is random depends on the seed, the rank, and the tick or iteration given: a
    resumed agent draws what the interrupted one would have drawn.

    Args:
        config: The composed `spec.algo`.
        observation_dim: Columns of observations.
        action_dim: Columns of actions.
        device: Where the agent lives.
        seed: The run's, the same on every rank; ranks get noise of their own from it.
        group: The ranks to learn in step with; None for a single one.
        tracer: Shows each update and each gradient synchronisation.

    Attributes:
        policy: (..., o) raw float32 observations -> (..., a) deterministic actions in
            [-1, 1]; holds its normaliser and follows the learning.
        throughput: Time, rows and estimated FLOPs of the updates; its export is collective.
    """

    def __init__(
        self,
        config: SacConfig,
        *,
        observation_dim: int,
        action_dim: int,
        device: torch.device,
        seed: int,
        group: ProcessGroup | None = None,
        tracer: Tracer = NULL_TRACER,
    ) -> None:
        self._config = config
        self._tracer = tracer
        self._action_dim = action_dim
        self._device = device
        self._dtype = compute_dtype(resolve_precision(config.precision, device))
        normalizes = config.observation_normalization
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.policy = Policy(config, observation_dim, action_dim).to(device)
            self._update = SacUpdate(
                config,
                self.policy.actor,
                observation_dim=observation_dim,
                action_dim=action_dim,
                dtype=self._dtype,
                device=device,
                group=group,
                statistics=statistics_size(observation_dim) if normalizes else 0,
            )
        self._alone = group is None
        for reducer in (self._update.critic_reducer, self._update.actor_reducer):
            reducer.timer.tracer = tracer
        self._noise = NoiseStreams(seed, rank=self._update.critic_reducer.rank, device=device)
        self._pending = (
            PendingStatistics(self.policy.normalizer)
            if isinstance(self.policy.normalizer, ObservationNormalizer)
            else None
        )
        self.throughput = ThroughputMeter(
            device,
            estimator=sac_flops(
                config,
                observation_dim=observation_dim,
                action_dim=action_dim,
                critic_outputs=self._update.critic_outputs,
            ),
            group=group,
        )
        self._stats = StatsTracker()
        self._updates = 0
        self._iterations_reported = 0
        self._findings: list[str] = []

    @property
    def device(self) -> torch.device:
        """Where it takes observations and gives actions."""
        return self._device

    @torch.no_grad()
    def act(self, observation: Tensor, *, tick: int) -> Tensor:
        """Actions (N, a) float32 in [-1, 1], drawn from the policy at `observation` (N, o)."""
        noise = self._draw(Stream.ACTION, tick, observation.shape[0], self._action_dim)
        observation = self.policy.normalizer(observation.to(self._device))
        mean, log_std = self._update.actor.compute(observation.to(self._dtype))
        return torch.tanh(torch.addcmul(mean, log_std.exp(), noise))

    def random_action(self, num_envs: int, *, tick: int) -> Tensor:
        """Actions (num_envs, a) float32, uniform over [-1, 1]."""
        generator = self._noise.at(Stream.WARM_UP, tick)
        shape = (num_envs, self._action_dim)
        return torch.rand(shape, generator=generator, device=self._device) * 2.0 - 1.0

    def observe(self, observation: Tensor) -> None:
        """Count raw observations (N, o) for the normaliser; merged by `update` or `sync`."""
        if self._pending is not None:
            self._pending.add(observation.to(self._device))

    def update(self, batch: Batch, *, iteration: int, stop_requested: bool) -> bool:
        """Learn from U batches of B rows, in step with the other ranks.

        Args:
            batch: Leading dimensions (U, B), on the agent's device.
            iteration: Numbers the noise; each iteration once.
            stop_requested: Whether this rank wants to stop.

        Returns:
            Whether any rank wants to stop, the same on every rank: as of this call on a
            CPU, as of the call before on CUDA, so that the host never waits.

        Raises:
            NonFiniteTrainingError: `algo.max_nonfinite_updates` updates in a row were
                skipped; it names what was not finite.
        """
        self._attach(stop_requested=stop_requested)
        with self.throughput.measure((batch.reward.numel(),)):
            rows = self._prepare(batch, iteration)
            for index in range(rows.reward.shape[0]):
                self._updates += 1
                learn_policy = self._updates % self._config.policy_frequency == 0
                with self._tracer.span("Update"):
                    self._update.step(rows, index, learn_policy=learn_policy)
        self._merge_statistics()
        self._iterations_reported += 1
        status = self._update.publish()
        if status.consecutive_skips:
            self._examine(status, batch, iteration)
        return stop_requested if self._alone else status.stop_requested

    def sync(self, *, stop_requested: bool) -> bool:
        """What `update` agrees on, without learning: for iterations of the warm-up."""
        self._attach(stop_requested=stop_requested)
        self._update.critic_reducer.exchange()
        self._merge_statistics()
        self._iterations_reported += 1
        return stop_requested if self._alone else self._update.publish().stop_requested

    def metrics(self) -> dict[str, float]:
        """Canonical tags: means over the updates since the last call, in one device fetch.

        Tags of what did not happen since then (no update, or none of the actor) are left
        out. Gradient synchronisation is given for an iteration of one rank.
        """
        for gathered in self._update.means:
            gathered.hand_over(self._stats)
        means = self._stats.export()
        if not self._config.alpha_autotune:
            means.pop("Loss/temperature", None)
        if means:
            means["Loss/learning_rate"] = self._config.actor_learning_rate
        iterations, self._iterations_reported = self._iterations_reported, 0
        if not self._alone and iterations:
            reducers = (self._update.critic_reducer, self._update.actor_reducer)
            taken = [reducer.timer.take() for reducer in reducers]
            means["Perf/dp_gradient_sync_ms_per_rank"] = sum(t[0] for t in taken) / iterations
            means["Perf/dp_gradient_sync_calls_per_rank"] = sum(t[1] for t in taken) / iterations
        return means

    @property
    def skipped_updates(self) -> int:
        """Updates skipped so far because something was not finite; waits for the device."""
        return int(self._update.total_skips)

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on to the bit: host tensors, numbers, nested dicts."""
        update = self._update
        return {
            "modules": {name: _on_host(module) for name, module in update.modules().items()},
            "normalizer": _on_host(self.policy.normalizer),
            "pending": None if self._pending is None else self._pending.state(),
            "log_alpha": update.temperature.log_alpha.clone().cpu(),
            "optimizers": {name: o.state_dict() for name, o in update.optimizers().items()},
            "updates": self._updates,
            "consecutive_skips": update.consecutive_skips.clone().cpu(),
            "total_skips": update.total_skips.clone().cpu(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`, which may come from another device.

        Raises:
            KeyError: a part is missing.
            RuntimeError: it belongs to networks of other sizes.
        """
        update = self._update
        for name, module in update.modules().items():
            module.load_state_dict(state["modules"][name])
        self.policy.normalizer.load_state_dict(state["normalizer"])
        if self._pending is not None:
            self._pending.load(state["pending"])
        update.temperature.log_alpha.copy_(state["log_alpha"])
        for name, optimizer in update.optimizers().items():
            optimizer.load_state_dict(state["optimizers"][name])
        self._updates = state["updates"]
        update.consecutive_skips.copy_(state["consecutive_skips"])
        update.total_skips.copy_(state["total_skips"])
        update.refresh()

    def parameter_hash(self) -> str:
        """SHA-256 over names and bytes of all parameters and buffers; waits for the device."""
        digest = hashlib.sha256()
        for name, tensor in self._named_tensors():
            digest.update(name.encode())
            digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()

    @staticmethod
    def policy_from_checkpoint(
        config: SacConfig, observation_dim: int, action_dim: int, state: Mapping[str, Any]
    ) -> nn.Module:
        """The policy alone, on the CPU, from what `state_dict` gave.

        Raises:
            KeyError: a part is missing.
            RuntimeError: it belongs to networks of other sizes.
        """
        policy = Policy(config, observation_dim, action_dim)
        policy.actor.load_state_dict(state["modules"]["actor"])
        policy.normalizer.load_state_dict(state["normalizer"])
        return policy.requires_grad_(requires_grad=False).eval()

    def _draw(self, stream: Stream, counter: int, *shape: int) -> Tensor:
        generator = self._noise.at(stream, counter)
        return torch.randn(shape, generator=generator, device=self._device)

    @torch.no_grad()
    def _prepare(self, batch: Batch, iteration: int) -> PreparedRows:
        observation = self.policy.normalizer(batch.observation)
        state_action = torch.cat([observation, batch.action], dim=-1).to(self._dtype)
        return PreparedRows(
            observation=state_action[..., : observation.shape[-1]],
            state_action=state_action,
            next_observation=self.policy.normalizer(batch.next_observation).to(self._dtype),
            reward=batch.reward,
            discount=batch.bootstrap * self._config.gamma,
            noise=self._draw(Stream.UPDATE, iteration, 2, *batch.action.shape),
        )

    def _attach(self, *, stop_requested: bool) -> None:
        statistics = None if self._pending is None else self._pending.take()
        self._update.critic_reducer.attach(stop_requested=stop_requested, statistics=statistics)

    def _merge_statistics(self) -> None:
        statistics = self._update.critic_reducer.statistics()
        if statistics is not None and isinstance(self.policy.normalizer, ObservationNormalizer):
            self.policy.normalizer.merge(statistics)

    def _examine(self, status: UpdateStatus, batch: Batch, iteration: int) -> None:
        """Note what is wrong while updates are being skipped, and give up at the bound."""
        found = describe_batch(batch)
        if found:
            self._findings = [f"{finding} of iteration {iteration}" for finding in found]
        bound = self._config.max_nonfinite_updates
        if status.consecutive_skips >= bound:
            found = describe_tensors(self._named_tensors())
            if not any("loss" in fault for fault in status.faults):  # that spoils all gradients
                found += describe_tensors(self._update.named_gradients(), "gradient of")
            named = "; ".join([*status.faults, *self._findings, *found])
            raise NonFiniteTrainingError(
                f"{status.consecutive_skips} updates in a row were not finite and skipped "
                f"(algo.max_nonfinite_updates is {bound}): {named}"
            )

    def _named_tensors(self) -> Iterator[tuple[str, Tensor]]:
        modules = {**self._update.modules(), "normalizer": self.policy.normalizer}
        for prefix, module in modules.items():
            for name, tensor in module.state_dict().items():
                yield f"{prefix}.{name}", tensor
        yield "log_alpha", self._update.temperature.log_alpha


def _on_host(module: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone().cpu() for name, tensor in module.state_dict().items()}
