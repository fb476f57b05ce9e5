"""The operator's own client in tests that are not asynchronous themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from drivetrain_operator.cluster.client import Cluster

T = TypeVar("T")


def connected(kubeconfig: Path, act: Callable[[Cluster], Awaitable[T]]) -> T:
    """What `act` gives with a connection that lasts as long as it."""

    async def main() -> T:
        async with await Cluster.connect(kubeconfig=kubeconfig) as cluster:
            return await act(cluster)

    return asyncio.run(main())
