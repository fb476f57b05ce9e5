"""Leader election by a Lease: at most one replica works at any time.

No replica compares its wall clock with another's. A candidate measures on its own
monotonic clock for how long the Lease has not moved, and takes it over only when that is
longer than the holder promised. The holder counts from before each request that renewed
it, and gives up well before anybody may take over.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import socket
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import structlog

from drivetrain_operator.cluster.client import Method
from drivetrain_operator.cluster.errors import (
    AlreadyExistsError,
    ApiError,
    ConflictError,
    NotFoundError,
)
from drivetrain_operator.cluster.resources import LEASES
from drivetrain_operator.reconcile.fields import count, mapping, text

if TYPE_CHECKING:
    from collections.abc import Callable

    from drivetrain_operator.cluster.client import Cluster
    from drivetrain_operator.reconcile.fields import Object

_RELEASE_TIMEOUT_S: Final = 3.0
_RELEASED_SECONDS: Final = 1
"""Duration on a Lease that nobody holds; the API server takes no 0."""
_log = structlog.get_logger(__name__)


def own_identity() -> str:
    """A holder's name that no other process has: host name and a random part."""
    return f"{socket.gethostname()}_{uuid.uuid4().hex[:12]}"


@dataclass(frozen=True)
class _Seen:
    """A Lease as it was read."""

    object: Object
    moved_at: float
    """When this candidate first saw it so, on its own clock."""

    @property
    def spec(self) -> Object:
        return mapping(self.object, "spec")

    @property
    def holder(self) -> str:
        return text(self.spec, "holderIdentity")

    def free_at(self, default_s: float) -> float:
        """When the holder's promise is over; it may be long ago."""
        if not self.holder:
            return self.moved_at
        return self.moved_at + (count(self.spec, "leaseDurationSeconds") or default_s)


class LeaderElection:
    """One candidate for a Lease; to be acquired once.

    Args:
        cluster: The API server.
        name: The Lease.
        namespace: Its namespace.
        identity: This process, unlike any other (see `own_identity`).
        lease_s: Seconds after which others may take over from a holder that is silent.
        renew_s: Seconds without a renewal after which the holder gives up; below `lease_s`.
        retry_s: Seconds between tries.
        owner: Reference to an object of the namespace that a Lease made here goes with.
        now: The time, with an offset; written for people to read, never compared.

    Raises:
        ValueError: the times are in no such order.
    """

    def __init__(
        self,
        cluster: Cluster,
        name: str,
        namespace: str,
        identity: str,
        *,
        lease_s: float = 15.0,
        renew_s: float = 10.0,
        retry_s: float = 2.0,
        owner: Object | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        if not 0 < retry_s < renew_s < lease_s:
            raise ValueError(
                "lease times must be 0 < retry_s < renew_s < lease_s; "
                f"got {retry_s}, {renew_s}, {lease_s}"
            )
        self._cluster = cluster
        self._name = name
        self._namespace = namespace
        self._identity = identity
        self._lease_s = lease_s
        self._renew_s = renew_s
        self._retry_s = retry_s
        self._owners = [owner] if owner is not None else []
        self._now = now
        self._seen: _Seen | None = None
        self._current = False
        """Whether `_seen` is what the server holds, as far as we know."""
        self._renewed_at: float | None = None
        self._renewing: asyncio.Task[None] | None = None
        self.trouble = ""
        """Why the Lease cannot be read or written, in words; empty while it can."""
        self.lost = asyncio.Event()
        """Set once a Lease that was held is not, or may not be, any more."""

    @property
    def held(self) -> bool:
        """Whether nobody else can hold it at this moment, even if the loop was stopped."""
        if self._renewed_at is None or self.lost.is_set():
            return False
        return _clock() - self._renewed_at < self._renew_s

    @property
    def holder(self) -> str:
        """Who held it when it was last seen; empty when nobody did."""
        return self._seen.holder if self._seen is not None else ""

    async def acquire(self) -> None:
        """Wait until the Lease is held, then renew it in the background.

        Failures are waited out.
        """
        while not await self._try():  # noqa: ASYNC110 - the server is polled, nothing here changes
            await asyncio.sleep(self._retry_s)
        _log.info("leader", lease=self._name, identity=self._identity)
        self._renewing = asyncio.create_task(self._renew())

    async def release(self) -> None:
        """Stop renewing, and free the Lease where it is held, so that others need not wait."""
        if self._renewing is not None:
            self._renewing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._renewing
        self._renewed_at = None
        try:
            async with asyncio.timeout(_RELEASE_TIMEOUT_S):
                found = await self._find()
                if found is not None and found.holder == self._identity:
                    await self._put(found, holder="")
        except (ApiError, TimeoutError) as error:
            _log.warning("lease not released", lease=self._name, error=str(error))

    async def _renew(self) -> None:
        """Renew until it cannot be proven any more that nobody else holds the Lease."""
        try:
            while await self._renewed():
                pass
        except Exception:  # noqa: BLE001 - whatever it is, nobody renews any more, and all must know
            _log.exception("lease renewal failed", lease=self._name)
        _log.error("lease lost", lease=self._name, identity=self._identity, holder=self.holder)
        self.lost.set()

    async def _renewed(self) -> bool:
        """Wait for the next renewal and try it; whether nobody else can hold the Lease."""
        await asyncio.sleep(min(self._retry_s, self._left()))
        if not self.held:
            return False
        return await self._try() or self.holder in ("", self._identity)

    async def _try(self) -> bool:
        """One try to take or to renew the Lease; whether it succeeded."""
        began, trouble = _clock(), ""
        try:
            async with asyncio.timeout(min(self._renew_s / 2, self._left())):
                taken = await self._take()
        except (ConflictError, AlreadyExistsError, NotFoundError):
            taken = False  # somebody was faster
            self._current = False
        except (ApiError, TimeoutError) as error:
            taken = False
            self._current = False
            trouble = str(error) or "no answer in time"
            _log.warning("lease request failed", lease=self._name, error=trouble)
        self.trouble = trouble
        if taken:
            self._renewed_at = began
        return taken

    async def _take(self) -> bool:
        """Take or renew it where it is ours or free; whether it is ours now."""
        seen = self._seen
        if seen is None or not self._current or seen.holder != self._identity:
            seen = await self._find()
        if seen is None:
            self._notice(await self._create())
            return True
        if seen.holder != self._identity and _clock() < seen.free_at(self._lease_s):
            return False
        self._notice(await self._put(seen, holder=self._identity))
        return True

    def _left(self) -> float:
        """Seconds that are left to renew it; unlimited while it is not held."""
        if self._renewed_at is None:
            return self._renew_s
        return max(0.0, self._renewed_at + self._renew_s - _clock())

    def _notice(self, found: Object) -> _Seen:
        """Remember the Lease; its time starts anew only where its holder wrote something."""
        known = self._seen
        moved = known is None or known.spec != mapping(found, "spec")
        self._seen = _Seen(found, _clock() if moved or known is None else known.moved_at)
        self._current = True
        return self._seen

    async def _find(self) -> _Seen | None:
        try:
            found = await self._cluster.request(
                Method.GET, LEASES, namespace=self._namespace, name=self._name
            )
        except NotFoundError:
            return None
        return self._notice(found)

    async def _create(self) -> Object:
        body = {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {
                "name": self._name,
                "namespace": self._namespace,
                "ownerReferences": self._owners,
            },
            "spec": self._spec({}, self._identity),
        }
        return await self._cluster.request(
            Method.POST, LEASES, namespace=self._namespace, body=body
        )

    async def _put(self, seen: _Seen, holder: str) -> Object:
        """Replace the Lease that was seen; its resourceVersion goes along as the condition."""
        return await self._cluster.request(
            Method.PUT,
            LEASES,
            namespace=self._namespace,
            name=self._name,
            body={**seen.object, "spec": self._spec(seen.spec, holder)},
        )

    def _spec(self, old: Object, holder: str) -> dict[str, Any]:
        """The Lease's spec for its next holder, or its next renewal."""
        stamp = self._now().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        moved = text(old, "holderIdentity") != holder
        return {
            **old,
            "holderIdentity": holder,
            "leaseDurationSeconds": math.ceil(self._lease_s) if holder else _RELEASED_SECONDS,
            "renewTime": stamp,
            "acquireTime": stamp if moved else text(old, "acquireTime") or stamp,
            "leaseTransitions": count(old, "leaseTransitions") + (moved and bool(holder)),
        }


def _clock() -> float:
    """Seconds of a clock that never goes back."""
    return asyncio.get_running_loop().time()
