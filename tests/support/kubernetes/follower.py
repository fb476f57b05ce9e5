"""Every state of some objects in the server's own order, through whatever befalls the server."""

from __future__ import annotations

import http.client
import json
import threading
import urllib.parse
from collections.abc import Callable
from types import TracebackType
from typing import Self

from tests.support.kubernetes.api import Api, Object, RefusedError, wait_for

TROUBLE = (OSError, http.client.HTTPException, RefusedError)
"""What an API server that is restarted or paused answers with."""
_ROUND_S = 5
"""Seconds that one watch lasts."""
_SILENCE_S = 30.0
_PAUSE_S = 0.05

OnState = Callable[[Object, bool], None]
"""Called with an object's state, and whether it is gone; from the follower's thread."""


class Follower:
    """Lists and watches; use as a context.

    Args:
        api: The API server.
        collection: Path of the objects, such as ``/api/v1/namespaces/a/pods``.
        on_state: Told of each state.
        selector: Of labels.
    """

    def __init__(
        self, api: Api, collection: str, on_state: OnState, *, selector: str | None = None
    ) -> None:
        self._api = api
        self._collection = collection
        self._on_state = on_state
        self._params = {} if selector is None else {"labelSelector": selector}
        self._known: dict[str, Object] = {}
        self._version = ""
        self._stopping = threading.Event()
        self._listed = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"follow {collection}", daemon=True)
        self.failure: BaseException | None = None
        """What ended it though nobody asked it to end."""

    def __enter__(self) -> Self:
        self._thread.start()
        wait_for(lambda: self._listed.is_set() or self.failure, f"list of {self._collection}")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopping.set()

    def objects(self) -> list[Object]:
        """The newest state of each object that is there."""
        return list(self._known.values())

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                try:
                    if not self._version:
                        self._list()
                    self._watch()
                except TROUBLE:
                    self._stopping.wait(_PAUSE_S)
        except BaseException as error:
            self.failure = error
            raise

    def _list(self) -> None:
        listed = self._api.request("GET", self._collection, **self._params)
        kind = {"kind": listed["kind"].removesuffix("List"), "apiVersion": listed["apiVersion"]}
        there = {item["metadata"]["uid"]: kind | item for item in listed["items"]}
        for uid in self._known.keys() - there.keys():
            self._on_state(self._known.pop(uid), True)
        for item in there.values():
            self._seen(item)
        self._version = listed["metadata"]["resourceVersion"]
        self._listed.set()

    def _seen(self, item: Object) -> None:
        self._known[item["metadata"]["uid"]] = item
        self._on_state(item, False)

    def _watch(self) -> None:
        params = self._params | {
            "watch": "true",
            "resourceVersion": self._version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(_ROUND_S),
        }
        target = f"{self._collection}?{urllib.parse.urlencode(params)}"
        for line in self._api.lines(target, timeout_s=_SILENCE_S):
            event = json.loads(line)
            if event.get("type") not in ("ADDED", "MODIFIED", "DELETED", "BOOKMARK"):
                self._version = ""  # history is gone: what is there tells the rest
                return
            item = event["object"]
            self._version = item["metadata"]["resourceVersion"]
            if event["type"] == "DELETED":
                self._known.pop(item["metadata"]["uid"], None)
                self._on_state(item, True)
            elif event["type"] != "BOOKMARK":
                self._seen(item)
            if self._stopping.is_set():
                return
