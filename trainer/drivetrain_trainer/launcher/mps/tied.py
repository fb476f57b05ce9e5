"""Become another program that ends with the process which started it.

Run as ``python -m drivetrain_trainer.launcher.mps.tied PARENT PROGRAM ARGUMENT...``.
"""

from __future__ import annotations

import os
import sys

from drivetrain_trainer.launcher.parent_death import die_with_parent

if __name__ == "__main__":
    die_with_parent(int(sys.argv[1]))
    os.execv(sys.argv[2], sys.argv[2:])  # noqa: S606 - the program that the launcher found
