"""``suite.json`` on the disk: read, kept up to date, and the suite's lock beside it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from drivetrain_api.artifacts.base import ArtifactError
from drivetrain_api.artifacts.suite_record import RECORD_LIMIT, SUITE_RECORD, SuiteRecord
from drivetrain_api.atomic import UnreadableFileError, read_bounded, write_text_atomically
from drivetrain_operator.cli import preflight
from drivetrain_operator.cli.refusal import Refusal
from drivetrain_operator.cli.terminal import say
from drivetrain_operator.local.lock import RunLock, RunLockedError
from drivetrain_operator.suite.standing import FRESH_HINT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from drivetrain_api.artifacts.suite_record import MemberState, SuiteMember

_LOCK: Final = ".suite.lock"
_REASON_LIMIT: Final = 1024


@contextmanager
def held(root: Path) -> Iterator[None]:
    """Be the one command that drives the suite of this root.

    Raises:
        Refusal: another one does, or nothing can be written there.
    """
    problem = preflight.unwritable(root)
    if problem is not None:
        raise Refusal([f"spec.root: {root} cannot be written to: {problem}"])
    lock = RunLock(root / _LOCK)
    try:
        lock.acquire()
    except RunLockedError as error:
        who = str(error.holder) if error.holder is not None else "another process"
        raise Refusal([f"the suite in {root} is driven already by {who}"]) from None
    except OSError as error:
        raise Refusal([f"spec.root: {root / _LOCK}: {error.strerror}"]) from None
    try:
        yield
    finally:
        lock.release()


def load_record(root: Path) -> SuiteRecord | None:
    """The record of the last start; None where there is none.

    Raises:
        Refusal: it is torn, foreign, of a later version or unreadable; it is left as it is.
    """
    path = root / SUITE_RECORD
    try:
        return SuiteRecord.from_json(read_bounded(path, RECORD_LIMIT))
    except FileNotFoundError:
        return None
    except (ArtifactError, UnreadableFileError) as error:
        words = str(error).removeprefix(f"{path}: ")
        raise Refusal([f"{path}: {words}; it was left as it is"], FRESH_HINT) from None


def set_aside(path: Path) -> Path | None:
    """Give a file or folder a hidden name beside it; None where there is none.

    Raises:
        OSError: it cannot be renamed; names both.
    """
    if not path.exists():
        return None
    number = 1
    while (hidden := path.with_name(f".{path.name}.replaced-{number}")).exists():
        number += 1
    path.rename(hidden)
    return hidden


class RecordKeeper:
    """The record while a suite is driven: every change is on the disk at once.

    A disk that is full does not end the suite: the backend knows what became of the members,
    and the next change, or the next start, writes it.
    """

    def __init__(self, root: Path, record: SuiteRecord) -> None:
        self.path = root / SUITE_RECORD
        self._record = record
        self._members = {member.name: member for member in record.members}

    @property
    def record(self) -> SuiteRecord:
        """As it is now."""
        return self._record.model_copy(update={"members": tuple(self._members.values())})

    @property
    def members(self) -> tuple[SuiteMember, ...]:
        """The members, in the suite's order."""
        return tuple(self._members.values())

    def member(self, name: str) -> SuiteMember:
        """One of them."""
        return self._members[name]

    def save(self) -> None:
        """Write it.

        Raises:
            OSError: such as a full disk.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_text_atomically(self.path, self.record.to_json())

    def set(
        self, name: str, state: MemberState, reason: str | None = None, folder: str | None = None
    ) -> bool:
        """Note what became of a member; whether that is news."""
        before = self._members[name]
        bounded = reason[:_REASON_LIMIT] if reason else None
        update = {
            "state": state,
            "reason": bounded,
            "run_directory": folder or before.run_directory,
        }
        after = before.model_copy(update=update)
        if after == before:
            return False
        self._members[name] = after
        try:
            self.save()
        except OSError as error:
            say(f"{self.path} cannot be written: {error.strerror}; going on", fg="yellow")
        return True
