"""Entry point of ``drivetrain-launcher``.

Thin on purpose: PID 1 has no default action for SIGTERM, so that one which arrives before
the handlers are there is lost. They are installed before anything else is imported.
"""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from drivetrain_trainer.launcher.signals import StopSignals


def main() -> NoReturn:
    """Run the attempt that the environment describes; exit with the contract's code."""
    signals = StopSignals()
    signals.install()
    from drivetrain_trainer.launcher.launch import launch  # noqa: PLC0415 - handlers come first

    sys.exit(launch(os.environ, signals))


if __name__ == "__main__":
    main()
