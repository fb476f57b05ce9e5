"""A small API server in memory behind `Cluster.request`, and a clock that tests move.

Answers as Kubernetes 1.34 was seen to: AlreadyExists, resourceVersion and UID
preconditions, a status apply that takes away what its own manager had set and no more.
"""

from __future__ import annotations

import asyncio
import copy
import itertools
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from drivetrain_operator.cluster.client import ContentType, Method
from drivetrain_operator.cluster.errors import (
    AlreadyExistsError,
    ApiError,
    Cause,
    ConflictError,
    InvalidError,
    NotFoundError,
    UnavailableError,
)
from drivetrain_operator.cluster.resources import Resource

Object = dict[str, Any]
Key = tuple[str, str, str]
T = TypeVar("T")


@dataclass(frozen=True)
class Call:
    """One request."""

    method: Method
    resource: Resource
    namespace: str | None
    name: str | None
    subresource: str | None
    params: Mapping[str, str]
    body: Any
    content_type: ContentType

    @property
    def words(self) -> str:
        """Such as ``POST jobs`` and ``PATCH trainingruns/status walk``."""
        plural = self.resource.plural
        if self.subresource is not None:
            plural = f"{plural}/{self.subresource}"
        return " ".join(part for part in (self.method.value, plural, self.name) if part)


@dataclass
class Fault:
    """What happens to calls whose words start with `words`."""

    words: str
    error: Exception | None = None
    written: bool = False
    """Whether the write is carried out although the error is answered."""
    times: int = 1
    before: Callable[[], object] | None = None
    """Done before the call is: somebody else's write, say."""
    delay_s: float = 0.0


@dataclass
class FakeApi:
    """Objects by plural, namespace and name; every request is kept in `calls`."""

    objects: dict[Key, Object] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    _applied: dict[Key, Object] = field(default_factory=dict)

    async def request(
        self,
        method: Method,
        resource: Resource,
        *,
        namespace: str | None,
        name: str | None = None,
        subresource: str | None = None,
        params: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: ContentType = ContentType.JSON,
        timeout_s: float = 15.0,
    ) -> Object:
        call = Call(
            method, resource, namespace, name, subresource, dict(params or {}),
            copy.deepcopy(body), content_type,
        )  # fmt: skip
        self.calls.append(call)
        fault = next((f for f in self.faults if f.times and call.words.startswith(f.words)), None)
        if fault is None:
            await asyncio.sleep(0)
            return self._answer(call)
        fault.times -= 1
        if fault.delay_s:
            async with asyncio.timeout(timeout_s):
                await asyncio.sleep(fault.delay_s)
        if fault.before is not None:
            fault.before()
        if fault.error is None:
            return self._answer(call)
        if fault.written:
            self._answer(call)
        raise fault.error

    @property
    def words(self) -> list[str]:
        """The requests so far."""
        return [call.words for call in self.calls]

    def writes(self) -> list[str]:
        """The requests so far that were no reads."""
        return [call.words for call in self.calls if call.method is not Method.GET]

    def find(self, plural: str, name: str, namespace: str = "lab") -> Object | None:
        return self.objects.get((plural, namespace, name))

    def get(self, plural: str, name: str, namespace: str = "lab") -> Object:
        return self.objects[plural, namespace, name]

    def add(self, plural: str, obj: Object) -> Object:
        """Put an object there, as somebody else would."""
        metadata = obj["metadata"]
        key = (plural, metadata.setdefault("namespace", "lab"), metadata["name"])
        metadata.setdefault("uid", f"uid-{next(self._numbers)}")
        self.objects[key] = obj
        self.touch(plural, metadata["name"], metadata["namespace"])
        return obj

    def touch(self, plural: str, name: str, namespace: str = "lab") -> None:
        self.objects[plural, namespace, name]["metadata"]["resourceVersion"] = str(
            next(self._numbers)
        )

    def _answer(self, call: Call) -> Object:
        key = (call.resource.plural, call.namespace or "", call.name or "")
        if call.method is Method.POST:
            return self._create(call)
        found = self.objects.get(key)
        if found is None:
            raise NotFoundError(f"{call.words} not found", status=404, reason="NotFound")
        if call.method is Method.DELETE:
            self._delete(key, found, call)
        elif call.method is not Method.GET:
            self._change(key, found, call)
        return copy.deepcopy(found)

    def _create(self, call: Call) -> Object:
        name = call.body["metadata"]["name"]
        if (call.resource.plural, call.namespace, name) in self.objects:
            raise AlreadyExistsError(f"{name} already exists", status=409, reason="AlreadyExists")
        created = copy.deepcopy(call.body)
        if call.params.get("dryRun") == "All":
            return created
        created["metadata"]["namespace"] = call.namespace
        return copy.deepcopy(self.add(call.resource.plural, created))

    def _delete(self, key: Key, found: Object, call: Call) -> None:
        wanted = (call.body or {}).get("preconditions", {}).get("uid")
        if wanted not in (None, found["metadata"]["uid"]):
            raise conflict("the UID in the precondition does not match")
        del self.objects[key]

    def _change(self, key: Key, found: Object, call: Call) -> None:
        metadata = call.body.get("metadata", {})
        version = metadata.get("resourceVersion")
        if version not in (None, found["metadata"]["resourceVersion"]):
            raise conflict("the object has been modified")
        if metadata.get("uid") not in (None, found["metadata"]["uid"]):
            raise InvalidError(
                "metadata.uid is immutable",
                status=422,
                reason="Invalid",
                causes=(Cause("metadata.uid", "field is immutable"),),
            )
        before = copy.deepcopy(found)
        if call.method is Method.PUT:
            found.clear()
            found.update(copy.deepcopy(call.body))
        elif call.content_type is ContentType.APPLY_PATCH:
            self._apply(key, found, call.body)
        else:
            merge(found, call.body)
        if found != before:
            self.touch(*(key[0], key[2], key[1]))

    def _apply(self, key: Key, found: Object, body: Object) -> None:
        status = body["status"]
        stored = found.setdefault("status", {})
        drop(stored, self._applied.get(key, {}), status)
        merge(stored, status)
        self._applied[key] = copy.deepcopy(status)


def conflict(words: str) -> ConflictError:
    return ConflictError(words, status=409, reason="Conflict")


def unavailable(status: int = 503) -> ApiError:
    return UnavailableError("not now", status=status)


def merge(into: Object, change: Mapping[str, Any]) -> None:
    """A JSON merge patch."""
    for key, value in change.items():
        if value is None:
            into.pop(key, None)
        elif isinstance(value, Mapping) and isinstance(into.get(key), dict):
            merge(into[key], value)
        else:
            into[key] = copy.deepcopy(value)


def drop(stored: Object, owned: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Take away what the last apply set and this one leaves out."""
    for key, value in owned.items():
        if key not in wanted:
            stored.pop(key, None)
        elif isinstance(value, Mapping) and isinstance(wanted[key], Mapping):
            drop(stored.get(key, {}), value, wanted[key])


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time jumps to the next timer whenever nothing else is to do."""

    def __init__(self) -> None:
        super().__init__()
        self._at = 0.0

    def time(self) -> float:
        return self._at

    def jump(self, seconds: float) -> None:
        """Time passes while the loop does nothing: it was stopped."""
        self._at += seconds

    def _run_once(self) -> None:
        due = [timer.when() for timer in self._scheduled if not timer.cancelled()]
        if due and not self._ready:
            self._at = max(self._at, min(due))
        super()._run_once()


def run_virtually(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine to its end in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main())


async def eventually(look: Callable[[], object], *, within_s: float = 600.0) -> None:
    """Wait, in the loop's time, until `look` gives something true."""

    async def wait() -> None:
        while not look():  # noqa: ASYNC110 - whatever is looked at has no event
            await asyncio.sleep(0.01)

    await asyncio.wait_for(wait(), within_s)
