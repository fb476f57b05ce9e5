"""Load on an API server with as little of its own as possible: bodies made ahead, no models."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp
from tests.bench.operator.playground import NAMESPACES
from tests.support.kubernetes.api import Object, collection_of
from tests.support.kubernetes.control_plane import ControlPlane

from drivetrain_api.trainingrun import TrainingRun
from drivetrain_operator.manifests.children import children

AT_ONCE: Final = 8
"""Runs that are worked on at a time: as many as the operator has workers."""
_METADATA_ALONE: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_DRIVETRAIN: Final = "drivetrain.dev/v1alpha1"
_JOBS: Final = "/apis/batch/v1/jobs"


@dataclass(frozen=True)
class Post:
    """One object to create."""

    path: str
    body: bytes


def manifest(number: int) -> Object:
    """A run of one rank, which goes on for as long as a bench takes."""
    return {
        "apiVersion": _DRIVETRAIN,
        "kind": "TrainingRun",
        "metadata": {
            "name": f"run-{number:05}",
            "namespace": NAMESPACES[number % len(NAMESPACES)],
        },
        "spec": {
            "algo": {"name": "sac"},
            "task": {"name": "half_cheetah"},
            "training": {"totalEnvSteps": 1_000_000},
            "restart": {"stallSeconds": 86_400},  # its pod reports nothing, ever
        },
    }


def post_of(item: Object) -> Post:
    """The request that creates an object."""
    folder = collection_of(item["apiVersion"], item["kind"], item["metadata"]["namespace"])
    return Post(folder, json.dumps(item).encode())


def posts_of_children(run: Object) -> tuple[Post, ...]:
    """What the operator creates for a run, in its order."""
    made = children(TrainingRun.model_validate(run), 1)
    return tuple(post_of(child.manifest) for child in made)


@dataclass
class Arrivals:
    """When the Job of each run was seen for the first time, as `time.perf_counter`."""

    seen: dict[str, float] = field(default_factory=dict)
    wanted: int = 0
    complete: asyncio.Event = field(default_factory=asyncio.Event)

    def see(self, job: str) -> None:
        self.seen.setdefault(job, time.perf_counter())
        if len(self.seen) >= self.wanted:
            self.complete.set()


class Load:
    """Creates objects and watches Jobs appear."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url

    @classmethod
    @asynccontextmanager
    async def on(cls, plane: ControlPlane) -> AsyncIterator[Load]:
        """Connected as an administrator."""
        trust = ssl.create_default_context(cafile=plane.authority)
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=trust, limit=0),
            headers={
                "Authorization": f"Bearer {plane.token}",
                "Content-Type": "application/json",
                "Accept": "application/json",
            },
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=10),
            read_bufsize=2**20,
        ) as session:
            yield cls(session, plane.url)

    async def create(self, post: Post) -> bytes:
        """Create one object; what the server stored."""
        async with self._session.post(self._url + post.path, data=post.body) as answer:
            body = await answer.read()
            if answer.status != 201:
                raise RuntimeError(f"POST {post.path}: {answer.status} {body[:200]!r}")
            return body

    async def create_runs(self, numbers: Iterable[int]) -> list[Object]:
        """Create TrainingRuns, several at a time; what the server stored."""
        posts = [post_of(manifest(number)) for number in numbers]
        made: list[Object] = []

        async def one(post: Post) -> None:
            made.append(json.loads(await self.create(post)))

        await each(posts, one)
        return made

    async def create_in_order(self, groups: Iterable[tuple[Post, ...]]) -> None:
        """Create groups of objects, several groups at a time, each in its order."""

        async def one(group: tuple[Post, ...]) -> None:
            for post in group:
                await self.create(post)

        await each(list(groups), one)

    @asynccontextmanager
    async def jobs(self, wanted: int) -> AsyncIterator[Arrivals]:
        """Note when Jobs appear, from now on, within the block."""
        arrivals = Arrivals(wanted=wanted)
        async with self._session.get(self._url + _JOBS, params={"limit": "1"}) as answer:
            version = (await answer.json())["metadata"]["resourceVersion"]
        task = asyncio.create_task(self._follow(version, arrivals))
        try:
            yield arrivals
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _follow(self, version: str, arrivals: Arrivals) -> None:
        asked = {"watch": "true", "resourceVersion": version, "timeoutSeconds": "3600"}
        headers = {"Accept": _METADATA_ALONE}
        async with self._session.get(self._url + _JOBS, params=asked, headers=headers) as answer:
            async for line in answer.content:
                event: dict[str, Any] = json.loads(line)
                if event["type"] == "ADDED":
                    metadata = event["object"]["metadata"]
                    arrivals.see(metadata["name"].rpartition("-a")[0])


async def each(items: list[Any], act: Callable[[Any], Awaitable[None]]) -> None:
    """`act` on all, `AT_ONCE` at a time, in order of arrival."""
    waiting = iter(items)

    async def work() -> None:
        for item in waiting:
            await act(item)

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(work())
