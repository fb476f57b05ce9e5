from __future__ import annotations

import subprocess
import sys


def test_a_collector_starts_without_what_only_a_trace_has_to_say() -> None:
    code = (
        "import sys, drivetrain_trainer.runtime.collector_loop; print('structlog' in sys.modules)"
    )
    shown = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert shown.stdout == "False\n"
