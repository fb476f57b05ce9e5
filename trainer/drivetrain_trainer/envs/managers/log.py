"""Metrics of an environment's own, beside those of its rewards and terminations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from drivetrain_api.metrics import (
    FAMILIES,
    MetricFamilyError,
    MetricSchema,
    Owner,
    UnknownMetricError,
)
from drivetrain_trainer.envs.errors import EnvError

if TYPE_CHECKING:
    from drivetrain_api.metrics import Family
    from drivetrain_trainer.envs.definition import LogTerm
    from drivetrain_trainer.envs.state import TermState


class LogManager:
    """Evaluates the terms after each step, before worlds are reset."""

    def __init__(
        self, terms: tuple[LogTerm, ...], families: tuple[Family, ...], state: TermState
    ) -> None:
        """Check families and terms once.

        Raises:
            EnvError: a family whose prefix is taken or whose owner is somebody else, a tag of
                none of them, two terms of one tag, or a term that does not give (N,).
        """
        schema = declared_schema(families)
        self.families = families
        self._state = state
        self._terms = tuple((term, _counted(term, schema)) for term in terms)
        for term, counted in self._terms:
            _check_value(term, state, counted=counted)
        self._values: list[Tensor] = []
        self._sound: Tensor | None = None

    @property
    def tags(self) -> tuple[str, ...]:
        """Of `log`."""
        return tuple(term.tag for term, _ in self._terms)

    def compute(self) -> None:
        """Take the values of the latest step."""
        self._sound = None
        self._values = [term.compute(self._state).clone() for term, _ in self._terms]

    def void(self, worlds: Tensor) -> None:
        """Leave worlds, (N,) bool, out of the log."""
        self._sound = ~worlds

    def log(self) -> dict[str, Tensor]:
        """Means, and counts, over the worlds in the latest step; 0-dim.

        A mean over no world is left out.
        """
        found = {}
        for (term, counted), full in zip(self._terms, self._values, strict=True):
            values = full if self._sound is None else full[self._sound]
            if counted:
                found[term.tag] = values.sum()
            elif values.numel():
                found[term.tag] = values.mean(dtype=torch.float64)
        return found


def _counted(term: LogTerm, schema: MetricSchema) -> bool:
    try:
        family = schema.family(term.tag)
    except UnknownMetricError as error:
        raise EnvError(f"log term: {error}") from None
    if family in FAMILIES:
        raise EnvError(f"log term {term.tag!r}: family {family.prefix} is not the environment's")
    return family.counted


def declared_schema(families: tuple[Family, ...]) -> MetricSchema:
    """The metric schema with an environment's own families.

    Raises:
        EnvError: a prefix is taken, or a family's owner is not the environment.
    """
    for family in families:
        if family.owner is not Owner.ENVIRONMENT:
            raise EnvError(f"log family {family.prefix!r} must be of owner environment")
    try:
        return MetricSchema().declaring(families)
    except MetricFamilyError as error:
        raise EnvError(f"log family: {error}") from None


def _check_value(term: LogTerm, state: TermState, *, counted: bool) -> None:
    value = term.compute(state)
    boolean = value.dtype is torch.bool
    if value.shape != (state.num_envs,) or boolean is not counted:
        wanted = "bool" if counted else "numbers"
        raise EnvError(
            f"log term {term.tag!r} must give ({state.num_envs},) {wanted}, gave"
            f" {tuple(value.shape)} {value.dtype}"
        )
