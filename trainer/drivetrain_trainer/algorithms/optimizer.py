"""AdamW over one vector, skipped on the device where an update must not happen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

EPSILON: Final = 1e-8


class VectorAdamW:
    """Fused AdamW with decoupled weight decay (Loshchilov and Hutter, arXiv:1711.05101).

    Args:
        values: (n,) float32, updated in place.
        gradient: (n,) float32, read at each step; the kernel may scale it in place.
        learning_rate: Step size.
        betas: Decay rates of the two moments.
        weight_decay: Decoupled decay a step, times the learning rate.
    """

    def __init__(
        self,
        values: Tensor,
        gradient: Tensor,
        *,
        learning_rate: float,
        betas: tuple[float, float],
        weight_decay: float = 0.0,
    ) -> None:
        self._values = values
        self._gradient = gradient
        self._learning_rate = learning_rate
        self._betas = betas
        self._weight_decay = weight_decay
        self._first = torch.zeros_like(values)
        self._second = torch.zeros_like(values)
        self._steps = torch.zeros((), dtype=torch.float32, device=values.device)

    def step(self, *, skip: Tensor, divisor: Tensor | None = None) -> None:
        """One step on the gradient divided by `divisor`; none at all where `skip` is 1.

        Args:
            skip: 0-dim float32, 0 or 1; read by the kernel, never by the host.
            divisor: 0-dim float32; None for 1.
        """
        self._steps += 1.0 - skip
        # The kernel under torch.optim.AdamW(fused=True), whose bookkeeping costs as much again.
        torch._fused_adamw_(
            [self._values],
            [self._gradient],
            [self._first],
            [self._second],
            [],
            [self._steps],
            grad_scale=divisor,
            found_inf=skip,
            amsgrad=False,
            beta1=self._betas[0],
            beta2=self._betas[1],
            lr=self._learning_rate,
            weight_decay=self._weight_decay,
            eps=EPSILON,
            maximize=False,
        )

    def state_dict(self) -> dict[str, Tensor]:
        """Moments and step count, copied to the host."""
        state = {"first": self._first, "second": self._second, "steps": self._steps}
        return {name: tensor.detach().clone().cpu() for name, tensor in state.items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Go on from `state`.

        Raises:
            KeyError: a part is missing.
            RuntimeError: it belongs to a vector of another size.
        """
        own = {"first": self._first, "second": self._second, "steps": self._steps}
        for name, tensor in own.items():
            if state[name].shape != tensor.shape:
                raise RuntimeError(
                    f"optimizer state {name} has shape {tuple(state[name].shape)}, "
                    f"the network's is {tuple(tensor.shape)}"
                )
            tensor.copy_(state[name])
