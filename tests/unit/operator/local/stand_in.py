"""A stand-in for the launcher: does in milliseconds what its one argument tells it.

The argument names what each attempt does, separated by commas; the last repeats. The steps of
an attempt are joined by ``+``: ``exit=N``, ``die=SIGNAL``, ``hang`` (SIGTERM ends it with 75),
``stubborn`` (SIGTERM is ignored), ``brood`` (starts a child in a session of its own, and that
a grandchild), ``progress=STEPS``, ``message=TEXT``, ``plain=TEXT`` (a termination log that is
no digest), ``noise`` (a line on each stream), ``facts`` (environment and folder, as a file).
A step that starts with ``0:`` or ``1:`` is for the pod of that index alone.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

IGNORING = """import signal, subprocess, sys, time
for number in (1, 2, 15): signal.signal(number, signal.SIG_IGN)
"""
GRANDCHILD = f"{IGNORING}time.sleep(60)"
CHILD = (
    f"{IGNORING}words = [sys.executable, '-S', '-c', {GRANDCHILD!r}]\n"
    "subprocess.run(words, start_new_session=True)"
)


class StandIn:
    def __init__(self) -> None:
        self.attempt = json.loads(Path(os.environ["DRIVETRAIN_SPEC_FILE"]).read_text())["attempt"]
        self.scratch = Path(os.environ["DRIVETRAIN_SCRATCH"])
        self.sink = Path(os.environ["DRIVETRAIN_PROGRESS_SINK"].removeprefix("file:"))
        self.log = Path(os.environ["DRIVETRAIN_TERMINATION_LOG"])
        self.rank = os.environ["PET_NODE_RANK"]
        self.steps = 0
        self.text = ""

    def run(self, plans: list[str]) -> None:
        for step in plans[min(self.attempt, len(plans)) - 1].split("+"):
            only, _, what = step.rpartition(":")
            if only in ("", self.rank):
                name, _, value = what.partition("=")
                getattr(self, f"do_{name}")(value)

    def report(self, exit_code: int | None = None) -> None:
        digest: dict[str, object] = {"schemaVersion": 1, "attempt": self.attempt}
        if self.steps:
            moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            digest["progress"] = {
                "envSteps": self.steps,
                "checkpointEnvSteps": self.steps,
                "at": moment,
            }
        if exit_code is not None:
            digest |= {"exitCode": exit_code, "message": self.text}
            self.log.write_text(json.dumps(digest))
        if self.rank == "0":
            new = self.sink.with_suffix(".new")
            new.write_text(json.dumps(digest))
            new.replace(self.sink)

    def finish(self, code: int) -> None:
        self.report(code)
        sys.exit(code)

    def wait(self) -> None:
        (self.scratch / "ready").touch()
        while True:
            time.sleep(60)

    def do_exit(self, value: str) -> None:
        self.finish(int(value))

    def do_die(self, value: str) -> None:
        os.kill(os.getpid(), getattr(signal, value))

    def do_hang(self, _: str) -> None:
        signal.signal(signal.SIGTERM, lambda *_: self.finish(75))
        self.report()
        self.wait()

    def do_stubborn(self, _: str) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        self.wait()

    def do_brood(self, _: str) -> None:
        subprocess.Popen([sys.executable, "-S", "-c", CHILD], start_new_session=True)

    def do_progress(self, value: str) -> None:
        self.steps = int(value)
        self.report()

    def do_message(self, value: str) -> None:
        self.text = value

    def do_plain(self, value: str) -> None:
        self.log.write_text(value)

    def do_noise(self, _: str) -> None:
        print("to standard output", flush=True)
        print("to standard error", file=sys.stderr, flush=True)

    def do_facts(self, _: str) -> None:
        facts = {"environment": dict(os.environ), "folder": str(Path.cwd()), "pid": os.getpid()}
        (self.scratch / "facts.json").write_text(json.dumps(facts))


if __name__ == "__main__":
    StandIn().run(sys.argv[1].split(","))
