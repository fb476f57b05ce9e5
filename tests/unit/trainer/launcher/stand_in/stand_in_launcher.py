"""The launcher with a rank module of the test's choice; else as `main` does it."""

from __future__ import annotations

import os
import sys

from drivetrain_trainer.launcher.signals import StopSignals

if __name__ == "__main__":
    signals = StopSignals()
    signals.install()
    from drivetrain_trainer.launcher.launch import launch

    if "STAND_IN_GPUS" in os.environ:
        import stand_in_gpus

        stand_in_gpus.pretend()
    sys.exit(launch(os.environ, signals, module="stand_in_rank"))
