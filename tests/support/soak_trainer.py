"""A stand-in for a training run: real processes, a real run directory, and one fault at will.

``python soak_trainer.py RUN_DIR --seconds 3 --leak memory``; nothing but the standard library,
so that it starts at once.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import mmap
import os
import random
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

MEBIBYTE = 1 << 20
ENVS = 8
ZERO = "1970-01-01T00:00:00Z"


def ingress(ticks: int, *, slot_rows: int, dropped: int = 0) -> dict[str, Any]:
    """Counters of rank 0: chunks, several of them a tick where slot rows do not divide."""
    chunks = ticks * -(-ENVS // slot_rows)
    return {
        "ingress_depth": 2,
        "ingress_slot_rows": slot_rows,
        "published_sequence": chunks,
        "release_sequence": chunks,
        "occupancy": 0,
        "high_water_occupancy": 2,
        "backpressure_waits": ticks // 3,
        "backpressure_wait_s": 0.01 * ticks,
        "early_returns": dropped,
        "dropped_batches": dropped,
        "closed_returns": 0,
        "stop_returns": dropped,
    }


def shutdown(classification: str, **fields: Any) -> dict[str, Any]:
    return {
        "classification": classification,
        "owner": "learner",
        "phase": "training",
        "iteration": 3,
        "coordination_tick": 3,
        "inference_epoch": 3,
        "exception": None,
        "learner_coordination": None,
        "inference_ring": None,
        "replay_ingress": None,
        "collector": {"pid": 1, "alive": False, "exitcode": 0, "signal": None},
        "cleanup": {"errors": []},
        **fields,
    }


class Summary:
    """run_summary.json, replaced atomically as the trainer does."""

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        self.path = folder / "run_summary.json"
        self.options = options
        self.began = time.monotonic()
        self.status = "running"
        self.ticks = options.resume_ticks
        self.shutdown: dict[str, Any] | None = None
        self.dropped = 0

    def document(self) -> dict[str, Any]:
        manifest: dict[str, Any] = {
            "schema_version": 1,
            "inference_ring_capacity": 1,
            "collector_metrics_interval": 1,
            "collector_backend_device": None,
            "inference_flight": {
                "queue_depth": 0,
                "publication_lag": 0,
                "max_in_flight": 1,
                "max_publication_lag": 1,
            },
            "replay_ingress": ingress(
                self.ticks - self.options.resume_ticks,
                slot_rows=self.options.slot_rows,
                dropped=self.dropped,
            ),
        }
        if self.shutdown is not None:
            manifest["shutdown"] = self.shutdown
        return {
            "status": self.status,
            "algo": self.options.algo,
            "task": "half_cheetah",
            "sim_backend": "mujoco",
            "log_dir": str(self.path.parent),
            "seeds": {"run": 0, "algo": 0, "env": 0},
            "start_time_utc": ZERO,
            "wall_time_sec": time.monotonic() - self.began,
            "completed_iterations": self.ticks,
            "total_env_steps": self.ticks * ENVS * self.options.ranks,
            "final_learner_replay_rows_per_sec": 1.0,
            "metric_schema_version": 1,
            "runtime_manifest": manifest,
        }

    def write(self) -> None:
        document = self.document()
        for change in self.options.set:
            path, _, value = change.partition("=")
            place, keys = document, path.split(".")
            for key in keys[:-1]:
                place = place[key]
            if value:
                place[keys[-1]] = json.loads(value)
            else:
                place.pop(keys[-1], None)
        text = json.dumps(document)
        if self.options.torn and self.status == "completed":
            self.path.write_text(text[: len(text) // 2])
            return
        temporary = self.path.with_suffix(".tmp")
        temporary.write_text(text)
        temporary.replace(self.path)


class Load:
    """What the run holds, and how that develops."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.kept: list[Any] = []
        self.random = random.Random(7)
        self.done = threading.Event()

    def tick(self, number: int, share: float) -> None:  # noqa: C901 - a table of loads
        """One tick; `share` of the run's time is over."""
        kind = self.options.load
        if kind == "leak-memory" or (kind == "warm-up" and share < 0.25):
            self.kept.append(touched(1))
        elif kind == "late-leak" and share > 0.45:
            self.kept.append(touched(2))
        elif kind == "noisy":
            self.kept = [touched(self.random.randint(1, 48))]
        elif kind == "saw-tooth":
            self.kept = [*self.kept, touched(2)] if number % 12 else []
        elif kind == "step" and not self.kept and share > 0.5:
            self.kept.append(touched(64))
        elif kind == "shrinking":
            self.kept = [touched(max(1, int(64 * (1 - share))))]
        elif kind == "leak-fds":
            self.kept.append(os.open(os.devnull, os.O_RDONLY))
        elif kind == "fd-churn":
            self.kept = [open(os.devnull) for _ in range(self.random.randint(0, 30))]  # noqa: PTH123, SIM115
        elif kind == "leak-threads":
            thread = threading.Thread(target=self.done.wait, daemon=True)
            thread.start()
        elif kind in ("leak-shm", "shm-removed"):
            self.share(number)

    def share(self, number: int) -> None:
        path = Path(self.options.shm_dir) / f"segment-{os.getpid()}-{number}"
        path.write_bytes(b"x" * MEBIBYTE)
        if self.options.load == "shm-removed":
            path.unlink()


def touched(mebibytes: int) -> mmap.mmap:
    """Anonymous memory with every page in use."""
    memory = mmap.mmap(-1, mebibytes * MEBIBYTE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for offset in range(0, len(memory), mmap.PAGESIZE):
        memory[offset] = 1
    return memory


def peer(options: argparse.Namespace) -> int:
    """Another rank, or a collector: a process that only waits for its parent's end."""
    pid = os.fork()
    if pid:
        return pid
    parent = os.getppid()
    ends = time.monotonic() + options.seconds + 60
    while os.getppid() == parent and time.monotonic() < ends:
        time.sleep(0.02)
    os._exit(0)


def orphan(options: argparse.Namespace) -> None:
    """A process in a session of its own that outlives the run."""
    if os.fork():
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    with contextlib.suppress(OSError):
        os.closerange(0, 64)
    time.sleep(options.orphan)
    os._exit(0)


def parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("run_dir", type=Path)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--tick", type=float, default=0.03)
    parser.add_argument("--load", default="flat")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--slot-rows", type=int, default=ENVS)
    parser.add_argument("--algo", default="sac")
    parser.add_argument("--resume-ticks", type=int, default=0)
    parser.add_argument("--shm-dir", default="/dev/shm")
    parser.add_argument("--start-after", type=float, default=0.0)
    parser.add_argument("--slow-down", type=float, default=1.0, help="factor of the last tick")
    parser.add_argument("--jitter", action="store_true")
    parser.add_argument("--stall-at", type=float, default=None, help="share of the run")
    parser.add_argument("--deaf", action="store_true", help="ignore SIGTERM")
    parser.add_argument("--crash-at", type=float, default=None)
    parser.add_argument("--exit", type=int, default=0)
    parser.add_argument("--zombie", action="store_true")
    parser.add_argument("--orphan", type=float, default=0.0, help="seconds that it lives")
    parser.add_argument("--torn", action="store_true")
    parser.add_argument("--dropped", type=int, default=0)
    parser.add_argument("--pause-at", type=float, default=None)
    parser.add_argument("--silent-end", action="store_true", help="write no last summary")
    parser.add_argument("--told", default="normal_completion")
    parser.add_argument("--restart-at", type=float, default=None)
    parser.add_argument("--chatty", action="store_true")
    parser.add_argument("--set", action="append", default=[], help="PATH=JSON in the summary")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    options = parsed(arguments)
    if options.deaf:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        signal.signal(signal.SIGTERM, _terminated)
    options.run_dir.mkdir(parents=True, exist_ok=True)
    time.sleep(options.start_after)
    with (options.run_dir / "events.log").open("w") as events:  # as a logger's, kept open
        peers = [peer(options) for _ in range(2 * options.ranks - 1)]
        summary = Summary(options.run_dir, options)
        code = _train(options, summary, events)
        if options.zombie:
            os.kill(peers.pop(), signal.SIGKILL)  # and nobody waits for it
        if options.orphan:
            orphan(options)
        for pid in peers:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        if not options.silent_end:
            summary.dropped = options.dropped
            summary.status = "completed" if code == 0 else "failed"
            summary.shutdown = shutdown(options.told if code == 0 else "learner_failure")
            summary.write()
    return code


def _train(options: argparse.Namespace, summary: Summary, events: Any) -> int:
    load = Load(options)
    chance = random.Random(3)
    began = time.monotonic()
    crash = options.crash_at if options.crash_at is not None else 2.0
    restart = options.restart_at
    while (share := (time.monotonic() - began) / options.seconds) < 1:
        if share >= crash:
            if options.exit:
                return int(options.exit)
            os.kill(os.getpid(), signal.SIGKILL)
        if restart is not None and share >= restart:
            restart = None
            summary.began = time.monotonic()
            summary.ticks = max(0, summary.ticks - 5)
        summary.ticks += 1
        summary.write()
        events.write(f"{summary.ticks}\n")
        if options.chatty:
            print("x" * 4096, flush=True)
        load.tick(summary.ticks, share)
        if options.stall_at is not None and share >= options.stall_at:
            time.sleep(3600)
        if options.pause_at is not None and share >= options.pause_at:
            options.pause_at = None
            time.sleep(0.4)  # an evaluation, say
        wait = options.tick * options.slow_down**share
        time.sleep(wait * (chance.uniform(0.3, 1.7) if options.jitter else 1))
    return 0


def _terminated(number: int, frame: object) -> None:
    del number, frame
    os._exit(143)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
