"""What an earlier start left of a suite, matched with what the file says now."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from drivetrain_api.artifacts.suite_record import MemberState, SuiteBackend, SuiteRecord
from drivetrain_api.explain import locate, show
from drivetrain_operator.cli.refusal import Refusal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from drivetrain_api.artifacts.suite_record import SuiteCluster, SuiteMember
    from drivetrain_operator.suite.plan import Checked
    from drivetrain_operator.suite.suite_file import SuiteFile

FRESH_HINT: Final = "--fresh starts the suite over; another metadata.name makes another suite"
_OPERATIONAL: Final = frozenset(
    {
        "image",
        "pod_template",
        "restart",
        "grace_period_seconds",
        "suspend",
        "queue_name",
        "scheduler_name",
        "deadlines",
        "ttl_seconds_after_finished",
        "soak",
    }
)
"""Sections of a template that may change between two starts: they decide no result."""


@dataclass(frozen=True)
class FoundRun:
    """A run of a member's name that the backend has."""

    name: str
    suite: str | None
    """Suite that it says it belongs to."""
    invocation: str | None
    log_dir: str | None
    """`training.logDir`."""
    state: MemberState
    created: datetime | None
    reason: str | None = None
    spec: Mapping[str, Any] = field(default_factory=dict)
    """As it stands on the wire."""


@dataclass(frozen=True)
class Standing:
    """Where a suite stands before anything is started."""

    record: SuiteRecord
    stale: frozenset[str]
    """Names whose run in the backend is to be replaced before the member starts."""


def stand(
    file: SuiteFile,
    members: Sequence[SuiteMember],
    record: SuiteRecord | None,
    found: Mapping[str, FoundRun],
    *,
    backend: SuiteBackend,
    cluster: SuiteCluster | None = None,
    fresh: bool,
    retry_failed: bool,
    now: datetime,
) -> Standing:
    """Go on with what is there, or start over.

    The backend's own runs are believed before the record, which a crash may have left behind.

    Args:
        file: The suite as it is now.
        members: Its members, none of them started.
        record: What the last start wrote; None where there is nothing.
        found: The backend's runs by name.
        backend: Where members run.
        cluster: Which of its clusters and namespaces; None on this machine.
        fresh: Start over.
        retry_failed: Start failed members again.
        now: The time.

    Raises:
        Refusal: a run of a member's name is somebody else's, or the suite was changed.
    """
    _refuse_foreign(file, members, found)
    if fresh:
        record = None
    elif record is not None:
        _refuse_changes(file, members, record, backend)
    invocation = _invocation(record, found, fresh=fresh, now=now)
    before = {member.name: member for member in record.members} if record is not None else {}
    matched = [
        _matched(
            member,
            before.get(member.name),
            found.get(member.name),
            invocation,
            root=file.suite.root,
            movable=backend is SuiteBackend.LOCAL,
            retry=retry_failed,
        )
        for member in members
    ]
    stale = frozenset(m.name for m in matched if m.state is MemberState.PENDING and m.name in found)
    written = SuiteRecord(
        name=file.name,
        invocation=invocation,
        created=record.created if record is not None else now,
        backend=backend,
        cluster=(record.cluster if record is not None else None) or cluster,
        template=dict(file.template),
        members=tuple(matched),
    )
    return Standing(written, stale)


def _matched(
    member: SuiteMember,
    before: SuiteMember | None,
    run: FoundRun | None,
    invocation: str,
    *,
    root: str,
    movable: bool,
    retry: bool,
) -> SuiteMember:
    """The member in its present state, with the folder that it has or gets."""
    current = run if run is not None and run.invocation == invocation else None
    folder, started = member.run_directory, False
    if before is not None:
        folder, started = before.run_directory, before.state is not MemberState.PENDING
    if run is not None:
        of_run = _below(run.log_dir, root)
        folder, started = of_run or folder, True
    state, reason = MemberState.PENDING, None
    if current is not None:
        state, reason = current.state, current.reason
    elif before is not None and before.state.over:
        state, reason = before.state, before.reason
    if retry and state is MemberState.FAILED:
        state, reason = MemberState.PENDING, None
    if started and state is MemberState.PENDING and not movable:
        # The folder is another run's now, and out of our reach.
        folder = next_folder(folder)
    return member.model_copy(update={"state": state, "reason": reason, "run_directory": folder})


def refuse_changed_runs(
    file: SuiteFile, members: Sequence[Checked], found: Mapping[str, FoundRun], invocation: str
) -> None:
    """Refuse a suite that its own runs contradict; for a start without a record.

    Raises:
        Refusal: with each setting that a run has otherwise.
    """
    lines: dict[str, str] = {}
    for checked in members:
        run = found.get(checked.member.name)
        if run is None or run.invocation != invocation:
            continue
        pairs = _differences((), _snake(run.spec, ()), _snake(checked.document["spec"], ()))
        for keys, stored, wanted in pairs:
            path = ".".join(keys)
            if keys[0] not in _OPERATIONAL and path not in lines:
                values = f"the run has {_shown(stored)}; got {_shown(wanted)}"
                place = file.template_source.place(path)
                lines[path] = f"{place}: member {run.name}: {path}: {values}"
    if lines:
        raise Refusal(list(lines.values()), FRESH_HINT)


def next_folder(folder: str) -> str:
    """``run_0_seed_1`` -> ``run_0_seed_1-2`` -> ``run_0_seed_1-3``."""
    path = PurePosixPath(folder)
    match = re.fullmatch(r"(.*?)(?:-([0-9]+))?", path.name)
    assert match is not None
    return str(path.with_name(f"{match[1]}-{int(match[2] or 1) + 1}"))


def _below(log_dir: str | None, root: str) -> str | None:
    path = PurePosixPath(log_dir or "")
    return str(path.relative_to(root)) if path.is_relative_to(root) else None


def _invocation(
    record: SuiteRecord | None, found: Mapping[str, FoundRun], *, fresh: bool, now: datetime
) -> str:
    """Of the record; without one of the newest run that the backend has; else a new one."""
    if record is not None:
        return record.invocation
    known = [run for run in found.values() if run.invocation is not None]
    if known and not fresh:
        newest = max(known, key=lambda run: (run.created is not None, run.created or now))
        assert newest.invocation is not None
        return newest.invocation
    return f"{now:%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"


def _refuse_foreign(
    file: SuiteFile, members: Sequence[SuiteMember], found: Mapping[str, FoundRun]
) -> None:
    lines = [
        f"{file.source.source}: there is a run {member.name} already that is not of this suite"
        for member in members
        if member.name in found and found[member.name].suite != file.name
    ]
    if lines:
        raise Refusal(lines, "another metadata.name makes other names")


def _refuse_changes(
    file: SuiteFile, members: Sequence[SuiteMember], record: SuiteRecord, backend: SuiteBackend
) -> None:
    if record.name != file.name:
        words = f"holds the record of suite {record.name}, not of {file.name}"
        raise Refusal([f"{file.suite.root}: {words}"], "another spec.root keeps them apart")
    if record.backend is not backend:
        words = f"was started on the {record.backend}: go on there"
        raise Refusal([f"suite {file.name} {words}"], FRESH_HINT)
    lines = [*_template_changes(file, record), *_member_changes(file, members, record)]
    if lines:
        raise Refusal(lines, FRESH_HINT)


def _template_changes(file: SuiteFile, record: SuiteRecord) -> Iterator[str]:
    pairs = _differences((), _snake(record.template, ()), _snake(file.template, ()))
    for keys, stored, wanted in pairs:
        if keys[0] not in _OPERATIONAL:
            path = ".".join(keys)
            place = file.template_source.place(path)
            values = f"started with {_shown(stored)}; got {_shown(wanted)}"
            yield f"{place}: {path}: a suite's template does not change; {values}"


def _member_changes(
    file: SuiteFile, members: Sequence[SuiteMember], record: SuiteRecord
) -> Iterator[str]:
    now = {member.name: member for member in members}
    told: set[tuple[str, int | None]] = set()
    for before in record.members:
        after = now.get(before.name)
        if after is None:
            known = {member.variant for member in members}
            what, key = (
                (f"seed {before.seed} (index {before.run_idx})", ("", before.run_idx))
                if before.variant in known
                else (f"variant {before.variant}", (before.variant, None))
            )
            if key not in told:
                yield f"{file.source.source}: {what} was started and is no longer there"
            told.add(key)
            continue
        if after.seed != before.seed and ("", before.run_idx) not in told:
            told.add(("", before.run_idx))
            words = f"seed {before.run_idx} was {before.seed}; got {after.seed}"
            yield f"{file.source.source}: seeds: {words}: new ones go to the end"
        if (before.variant, None) in told:
            continue
        for keys, stored, wanted in _differences((), before.overrides, after.overrides):
            told.add((before.variant, None))
            values = f"started with {_shown(stored)}; got {_shown(wanted)}"
            yield f"{file.source.source}: variant {before.variant}: {'.'.join(keys)}: {values}"


def _snake(value: object, above: tuple[str, ...]) -> object:
    """Keys in snake_case, as far as the models have them; None like an absent key."""
    if not isinstance(value, Mapping):
        return value
    found = {}
    for key, item in value.items():
        if item is not None:
            path = locate(("spec", *above, str(key))).path
            found[path.rpartition(".")[2]] = _snake(item, (*above, str(key)))
    return found


def _differences(
    path: tuple[str, ...], old: object, new: object
) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in {**old, **new}:
            yield from _differences((*path, str(key)), old.get(key), new.get(key))
    elif old != new:
        yield path, old, new


def _shown(value: object) -> str:
    return "nothing" if value is None else show(value)
