"""Members that are complete beyond doubt, and timings of no others."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from drivetrain_api.artifacts.base import ArtifactError
from drivetrain_api.artifacts.outcome import RunStatus
from drivetrain_api.artifacts.run_config import RunConfig
from drivetrain_api.artifacts.run_summary import RunSummary
from drivetrain_api.artifacts.suite_record import MemberState
from drivetrain_api.atomic import UnreadableFileError, read_bounded
from drivetrain_api.timings.store import TimingsDirectory, TimingsError
from drivetrain_operator.cli.refusal import Refusal
from drivetrain_operator.suite.plan import spec_digest

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from drivetrain_operator.suite.plan import Checked

_LIMIT: Final = 16 << 20
"""Bytes of a summary or configuration that is read."""


def doubt(root: Path, checked: Checked) -> str | None:
    """Why a member's files do not show it complete as planned; None where they do.

    Its summary must be one, and say so; its configuration must be the plan's.
    """
    folder = root / checked.member.run_directory
    try:
        summary = RunSummary.from_json(read_bounded(folder / "run_summary.json", _LIMIT))
        config = RunConfig.from_json(read_bounded(folder / "run_config.json", _LIMIT))
    except FileNotFoundError as error:
        return f"{error.filename}: no such file"
    except (ArtifactError, UnreadableFileError) as error:
        return f"{folder}: {error}"
    if summary.status is not RunStatus.COMPLETED:
        return f"{folder}: its summary says {summary.status}"
    if spec_digest(config) != checked.digest:
        return f"{folder}: it was trained with another configuration"
    return None


def prune_timings(
    root: Path, members: Sequence[Checked], invocation: str, *, running: bool = False
) -> None:
    """Keep the timings of validated complete members alone, where others are still to run.

    Args:
        root: Root of the suite.
        members: All of its members, in their present states.
        invocation: The suite's.
        running: Whether members that run now, elsewhere, keep theirs.

    Raises:
        Refusal: a file of timings cannot be read or written; it is left as it is.
    """
    kept: dict[str, set[int]] = defaultdict(set)
    remaining = {c.member.artifact_directory for c in members if not c.member.state.over}
    for checked in members:
        member = checked.member
        indices = kept[member.artifact_directory]
        complete = member.state is MemberState.COMPLETE and doubt(root, checked) is None
        if complete or (running and member.state is MemberState.RUNNING):
            indices.add(member.run_idx)
    for folder in sorted(remaining):
        try:
            TimingsDirectory(root / folder).retain(kept[folder], invocation)
        except TimingsError as error:
            raise Refusal([str(error)], "move the file away to go on without it") from None
