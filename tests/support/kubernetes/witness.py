"""What must hold at every moment of a run's life, whatever fails: looked at state by state.

Whoever writes the states is not asked: the witness follows runs, Jobs and pods itself.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

from tests.support.kubernetes.api import Api, Object, collection_of
from tests.support.kubernetes.follower import Follower

from drivetrain_api import labels

DRIVETRAIN = "drivetrain.dev/v1alpha1"
_OVER = frozenset({"Succeeded", "Failed"})
_NEVER_LESS = ("attempt", "restarts", "disruptions")
_TERMINAL = frozenset({"Complete", "Failed"})


class Witness:
    """Follows a namespace, or all; use as a context, and `check` at the end.

    What it holds a run to:

    - live pods of one attempt at a time, and one Job at a time;
    - one Job an attempt, ever;
    - numbers of attempts and restarts never fall, figures neither;
    - each ended attempt is recorded once; a run that is over stays so.

    Args:
        api: The API server.
        namespace: To follow; all where there is none.
        figures: Whether figures may not fall: real ones do, from a death to the last checkpoint.
    """

    def __init__(self, api: Api, namespace: str | None = None, *, figures: bool = True) -> None:
        self._figures = figures
        self._lock = threading.Lock()
        self._stack = ExitStack()
        followed = (
            ("batch/v1", "Job", self._job, labels.RUN),
            ("v1", "Pod", self._pod, labels.RUN),
            (DRIVETRAIN, "TrainingRun", self._run, None),
        )
        self._followers = [
            Follower(api, collection_of(version, kind, namespace), look, selector=selector)
            for version, kind, look, selector in followed
        ]
        self._live: defaultdict[str, dict[str, str]] = defaultdict(dict)
        self._jobs: defaultdict[str, dict[str, str]] = defaultdict(dict)
        self._job_uids: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        self._statuses: dict[str, Object] = {}
        self.distrusted: set[str] = set()
        """Names of runs whose status is written by others, too: only pods and Jobs count."""
        self._broken: list[str] = []

    def __enter__(self) -> Self:
        for follower in self._followers:
            self._stack.enter_context(follower)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def check(self, run: str = "") -> None:
        """Assert that nothing was broken, by any run or by those whose names begin so."""
        for follower in self._followers:
            assert follower.failure is None, follower.failure
        with self._lock:
            broken = [words for words in self._broken if words.startswith(run)]
        assert broken == []

    def jobs_made(self, run: str, attempt: int) -> int:
        """How many Jobs an attempt ever had."""
        with self._lock:
            return sum(
                len(uids)
                for (_, name), uids in self._job_uids.items()
                if name == f"{run}-a{attempt}"
            )

    # -- states ----------------------------------------------------------------------------

    def _pod(self, item: Object, gone: bool) -> None:
        uid, attempt = _whose(item)
        over = gone or item.get("status", {}).get("phase") in _OVER
        with self._lock:
            self._keep(self._live[uid], item, attempt, there=not over)
            if len(set(self._live[uid].values())) > 1:
                self._break(item, f"live pods of two attempts: {sorted(self._live[uid])}")

    def _job(self, item: Object, gone: bool) -> None:
        uid, attempt = _whose(item)
        with self._lock:
            self._keep(self._jobs[uid], item, attempt, there=not gone)
            if len(self._jobs[uid]) > 1:
                self._break(item, f"two Jobs at once: {sorted(self._jobs[uid])}")
            made = self._job_uids[uid, item["metadata"]["name"]]
            made.add(item["metadata"]["uid"])
            if len(made) > 1:
                self._break(item, f"{len(made)} Jobs of attempt {attempt}")

    @staticmethod
    def _keep(known: dict[str, str], item: Object, attempt: str, *, there: bool) -> None:
        name = f"{item['metadata']['name']} {item['metadata']['uid']}"
        if there:
            known[name] = attempt
        else:
            known.pop(name, None)

    def _run(self, item: Object, gone: bool) -> None:
        uid = item["metadata"]["uid"]
        new = item.get("status") or {}
        with self._lock:
            old = self._statuses.pop(uid, {})
            if gone or item["metadata"]["name"] in self.distrusted:
                return
            self._statuses[uid] = new
            for words in _worse(old, new):
                self._break(item, words)
            if self._figures and _steps(new) < _steps(old):
                self._break(item, f"progress fell from {_steps(old)} to {_steps(new)}")

    def _break(self, item: Object, words: str) -> None:
        run = item["metadata"].get("labels", {}).get(labels.RUN, item["metadata"]["name"])
        self._broken.append(f"{run}: {words}")


def _whose(item: Object) -> tuple[str, str]:
    """UID of the run, and the attempt."""
    found = item["metadata"]["labels"]
    return found.get(labels.RUN_UID, ""), found.get(labels.ATTEMPT, "")


def _worse(old: Object, new: Object) -> list[str]:
    """What a status may not have become."""
    found = [
        f"{field} fell from {old[field]} to {new.get(field)}"
        for field in _NEVER_LESS
        if new.get(field, 0) < old.get(field, 0)
    ]
    if old.get("phase") in _TERMINAL and new.get("phase") != old["phase"]:
        found.append(f"phase {old['phase']} became {new.get('phase')}")
    ended = [record["attempt"] for record in new.get("history", ())]
    if ended != sorted(set(ended)):
        found.append(f"history is out of order: {ended}")
    return found


def _steps(status: Object) -> Any:
    return status.get("progress", {}).get("envSteps", 0)
