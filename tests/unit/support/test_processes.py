from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.kubernetes.api import wait_for
from tests.support.kubernetes.processes import Process, ProcessDiedError


def script(folder: Path, last_words: str) -> Process:
    """Ends with these words the first time, lives the second."""
    path = folder / "server.sh"
    path.write_text(f"""#!/bin/sh
[ -f {folder}/tried ] && exec sleep 60
touch {folder}/tried
echo "{last_words}"
exit 1
""")
    path.chmod(0o755)
    process = Process("server", [path], folder / "log")
    process.start()
    wait_for(lambda: not process.running, "its first end", 20)
    return process


def test_a_program_that_came_too_early_is_started_again(tmp_path: Path) -> None:
    process = script(tmp_path, "E1130 run.go: the socket is not ready yet")
    try:
        process.check_or_restart("not ready yet")
        process.check()
    finally:
        process.stop()


def test_a_program_that_ended_for_another_reason_is_told(tmp_path: Path) -> None:
    process = script(tmp_path, "no such flag")
    with pytest.raises(ProcessDiedError, match="no such flag"):
        process.check_or_restart("not ready yet")
