"""Becomes another program that the kernel ends with its parent: ``run_tied.py PARENT PROGRAM ...``.

Run by path, on a bare interpreter, so it imports the standard library alone.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(parent: int, argv: list[str]) -> None:
    """Does not return. The wish outlives ``exec``; the process id stays the same."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:  # it ended before the wish was made
        os._exit(1)
    os.execv(argv[0], argv)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
