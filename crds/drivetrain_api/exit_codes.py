"""What a rank, and the launcher of its pod, may exit with."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """The exit-code contract between trainer, launcher and reconcile."""

    DONE = 0
    """Training reached its end; the artifacts are written."""
    FAILED = 1
    """Anything not named below; the attempt is retried."""
    REFUSED = 2
    """Configuration or preflight refused the run; never retried."""
    BROKEN = 3
    """Training failed for good (a broken contract, non-finite beyond recovery)."""
    CHECKPOINTED = 75
    """Stopped by SIGTERM after a checkpoint (EX_TEMPFAIL)."""

    @property
    def retryable(self) -> bool:
        """Whether another attempt may help."""
        return self not in (ExitCode.DONE, ExitCode.REFUSED, ExitCode.BROKEN)


def from_status(code: int) -> ExitCode:
    """The contract's meaning of a process exit status; unknown codes are ``FAILED``."""
    try:
        return ExitCode(code)
    except ValueError:
        return ExitCode.FAILED
