"""A member on this machine: ``drivetrain run`` as a child process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from drivetrain_api.artifacts.suite_record import MemberState
from drivetrain_api.exit_codes import ExitCode
from drivetrain_api.status import Phase
from drivetrain_operator.cli.terminal import INTERRUPTED
from drivetrain_operator.local.files import read_tail, write_atomic
from drivetrain_operator.suite.reasons import reason_of
from drivetrain_operator.yaml_core import dump

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from drivetrain_api.trainingrun import TrainingRun
    from drivetrain_operator.suite.plan import Checked

_TAIL_BYTES: Final = 4096
_ERROR: Final = "error: "
_STATES: Final = {
    Phase.COMPLETE: MemberState.COMPLETE,
    Phase.FAILED: MemberState.FAILED,
    Phase.SUSPENDED: MemberState.SUSPENDED,
}


@dataclass(frozen=True)
class Outcome:
    """How a member's command ended."""

    state: MemberState
    reason: str | None = None


class MemberProcess:
    """One ``drivetrain run``, in a session of its own: the terminal's signals come from us."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self._process = process
        self.log = log

    @classmethod
    async def start(
        cls,
        checked: Checked,
        *,
        folder: Path,
        state: Path,
        fresh: bool,
        environment: Mapping[str, str],
    ) -> MemberProcess:
        """Write its manifest and start it.

        Args:
            checked: The member.
            folder: Where the suite keeps manifests and logs of members.
            state: State folder of the runs.
            fresh: Start over whatever is stored under the member's name.
            environment: Its environment.

        Raises:
            OSError: a file cannot be written, or no process be started.
        """
        name = checked.member.name
        manifest, log = folder / f"{name}.yaml", folder / f"{name}.log"
        write_atomic(manifest, dump(checked.document, nulls=True))
        words = ["run", "-f", str(manifest), "--state-dir", str(state), "--output", "none"]
        if fresh:
            words.append("--fresh")
        with log.open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", "drivetrain_operator.cli.main", *words),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=dict(environment),
                start_new_session=True,
            )
        return cls(process, log)

    def signal(self, number: signal.Signals) -> None:
        """Pass a signal on."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    async def wait(self) -> int:
        """Its exit code; negative where a signal ended it."""
        return await self._process.wait()


def outcome(code: int, run: TrainingRun | None, log: Path) -> Outcome:
    """What an ended command amounts to.

    Args:
        code: Its exit code; negative for a signal.
        run: The stored run, if there is one.
        log: What the command printed.
    """
    phase = run.status.phase if run is not None else None
    if code == ExitCode.REFUSED:
        return Outcome(MemberState.FAILED, f"refused: {_refusals(log)}")
    if run is not None and phase is not None and phase in _STATES and code >= 0:
        return Outcome(_STATES[phase], reason_of(run.status, _STATES[phase]))
    if code < 0:
        name = signal.Signals(-code).name
        return Outcome(MemberState.SUSPENDED, f"its command was killed by {name}")
    if code == INTERRUPTED:
        return Outcome(MemberState.SUSPENDED, "killed before a checkpoint")
    last = read_tail(log, _TAIL_BYTES).strip().rpartition("\n")[2]
    return Outcome(MemberState.FAILED, f"its command ended with exit code {code}: {last}")


def _refusals(log: Path) -> str:
    lines = read_tail(log, _TAIL_BYTES).splitlines()
    found = [line.partition(_ERROR)[2] for line in lines if line.startswith(_ERROR)]
    return "; ".join(found) or f"see {log}"
