"""What is checked of a definition and a request before worlds are made."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from drivetrain_trainer.envs.errors import EnvError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from drivetrain_trainer.envs.definition import EnvDefinition
    from drivetrain_trainer.envs.vector_env import EnvRequest


def check_counts_and_names(definition: EnvDefinition, request: EnvRequest) -> None:
    """Refuse what no environment can be made of, before a simulator is.

    Raises:
        EnvError: a count that is no positive int, or two terms of one kind and name.
    """
    counts = {
        "num_envs": request.num_envs,
        "num_threads": request.num_threads,
        "substeps": definition.substeps,
    }
    for name, count in counts.items():
        if type(count) is not int or count < 1:
            raise EnvError(f"{name} must be an int of at least 1, got {count!r}")
    for kind, terms in (
        ("observation", definition.observations),
        ("reward", definition.rewards),
        ("termination", definition.terminations),
        ("reset", definition.resets),
    ):
        _check_names(kind, [term.name for term in terms])
    _check_names("log", [term.tag for term in definition.log])


def _check_names(kind: str, names: Iterable[str]) -> None:
    for name, count in Counter(names).items():
        if count > 1:
            raise EnvError(f"{count} {kind} terms are named {name!r}")
