"""The process that holds the client of Weights & Biases, apart from training.

The client takes over the process it runs in: it replaces ``sys.exit`` and the exception
hook, starts threads and a service, waits for the network at exit, and interrupts the main
thread when somebody presses "stop" in the browser. So it lives here: one request a line on
standard input, one answer a line on standard output, both JSON. Whatever the client prints
goes to a log file. When the input ends, training is gone: what there is is sent within a
bound, and the process ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import sys
import threading
from typing import IO, TYPE_CHECKING, Any, Final

import psutil

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

STEP_METRIC: Final = "env_steps"
"""Axis of every chart. The client's own step only counts reports: it must not go back, while
a resumed run repeats the environment steps after its checkpoint."""
ORPHAN_GRACE_S: Final = 5.0
"""Seconds for sending the rest once training is gone."""
FLUSH_INTERVAL_S: Final = 5.0
"""Seconds after which the run's file holds what was logged, whatever becomes of us."""
NICENESS: Final = 5
"""Training goes first."""
_WARNING: Final = 30


class Session:
    """A run of Weights & Biases, from `open` to `finish`."""

    def __init__(self) -> None:
        self._run: Any = None

    def open(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Start or go on with the run; blocks until the service answers or the time is over."""
        import wandb  # noqa: PLC0415 - takes 0.35 s; the input is watched before

        online = request["online"]
        self._run = wandb.init(
            config=request["config"],
            settings=wandb.Settings(
                mode="online" if online else "offline",
                root_dir=request["directory"],
                use_dot_wandb=False,
                project=request["project"],
                entity=request["entity"],
                run_group=request["group"],
                run_name=request["name"],
                run_tags=tuple(request["tags"]) or None,
                run_notes=request["notes"],
                run_id=request["run_id"],
                resume="allow",
                init_timeout=request["init_timeout_s"],
                # Ours: charts of the trainer's process, nothing of the code and the console.
                x_stats_pid=request["trainer_pid"],
                console="off",
                disable_git=True,
                disable_code=True,
                save_code=False,
                disable_job_creation=True,
                silent=True,
                symlink=False,
                stop_fn=_ignore_stop,
                x_log_level=_WARNING,
                x_transaction_log_flush_interval=FLUSH_INTERVAL_S,
                x_update_finish_state=request["trains"],
                x_disable_stats=not request["trains"],
                x_save_requirements=request["trains"],
                finish_timeout=request["finish_timeout_s"],
                finish_timeout_raises=True,
            ),
        )
        _log_tables_without_asking(self._run)
        self._run.define_metric("*", step_metric=STEP_METRIC)
        return {
            "url": self._run.url if online else None,
            "files": self._run.settings.sync_dir,
        }

    def log(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """One report; never waits for the network."""
        import wandb  # noqa: PLC0415 - imported by `open`

        tables = {
            name: wandb.Table(columns=table["columns"], data=table["rows"])
            for name, table in request["tables"].items()
        }
        at = {STEP_METRIC: request["env_steps"], "_timestamp": request["wall_time"]}
        self._run.log({**request["values"], **tables, **at})
        return {}

    def upload(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """A video, shown among the run's media."""
        import wandb  # noqa: PLC0415 - imported by `open`

        video = wandb.Video(request["path"], format="mp4")
        at = {} if request["env_steps"] is None else {STEP_METRIC: request["env_steps"]}
        self._run.log({request["name"]: video, **at})
        return {}

    def finish(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Send the rest; raises where that takes longer than `finish_timeout_s`."""
        run, self._run = self._run, None
        if run is not None:
            run.finish(exit_code=request["exit_code"])
        return {}


def _ignore_stop() -> None:
    """The browser's stop button: a run is stopped where it was started."""
    print("stop asked for in Weights & Biases: ignored", flush=True)  # noqa: T201 - to the log


def _log_tables_without_asking(run: Any) -> None:  # noqa: ANN401 - the client is untyped
    """Keep the network out of the way of a table.

    Before each table the client asks the service whether its name is taken by another type,
    and whose key it holds: neither can fail here, and a dead service would hold up the report.
    """
    run._assert_can_log_artifact = lambda _artifact: None  # noqa: SLF001 - nothing public does it
    run._cached_public_api = _NoSaveHandles()  # noqa: SLF001 - likewise


class _NoSaveHandles:
    """Takes the place of the client's API object, which would keep a handle for `wait`."""

    def _set_artifact_save_handle(self, _artifact: object, _handle: object) -> None:
        return None


class Requests:
    """Lines of the input, read by a thread so that its end is seen at any moment."""

    def __init__(self, stream: IO[str]) -> None:
        self._lines: queue.Queue[str | None] = queue.Queue(1)
        self._stream = stream
        threading.Thread(target=self._read, name="requests", daemon=True).start()

    def next(self) -> Mapping[str, Any] | None:
        """The next request; None once the input has ended."""
        line = self._lines.get()
        return json.loads(line) if line is not None else None

    def _read(self) -> None:
        for line in self._stream:
            self._lines.put(line)
        timer = threading.Timer(ORPHAN_GRACE_S, _give_up)
        timer.daemon = True
        timer.start()
        self._lines.put(None)


def _give_up() -> None:
    """End with the client's service, which alone would take seconds to notice."""
    for service in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            service.kill()
    os._exit(1)


def serve(requests: Requests, answers: IO[str]) -> None:
    """Answer requests until the run is finished or the input ends."""
    session = Session()
    actions: dict[str, Callable[[Mapping[str, Any]], Mapping[str, Any]]] = {
        "open": session.open,
        "log": session.log,
        "upload": session.upload,
        "finish": session.finish,
    }
    while (request := requests.next()) is not None:
        try:
            answer = {"ok": True, **actions[request["do"]](request)}
        except Exception as error:  # noqa: BLE001 - whatever it is, the other side is told
            answer = {"ok": False, "kind": type(error).__name__, "error": str(error)}
        print(json.dumps(answer), file=answers, flush=True)
        if request["do"] == "finish":
            return
    session.finish({"exit_code": 1})


def main() -> None:
    """Serve standard input; standard output and error go to the log file given."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # training decides when the run ends
    os.nice(NICENESS)
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    requests = os.fdopen(os.dup(0), encoding="utf-8")
    log = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    os.dup2(null, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    serve(Requests(requests), answers)


if __name__ == "__main__":
    main()
