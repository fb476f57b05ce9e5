"""Refusals that name the path, the value and what is allowed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Violation:
    """One refused value."""

    path: str
    """snake_case path, such as ``algo.num_envs``; empty for the whole document."""
    message: str
    """What is wrong and what is allowed, the value included."""

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class SpecError(ValueError):
    """A manifest or configuration that is refused; holds every violation found."""

    def __init__(self, violations: tuple[Violation, ...]) -> None:
        self.violations = violations
        super().__init__("\n".join(str(v) for v in violations))
