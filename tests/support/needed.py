"""Programs that a folder of tests needs: had before any test's time runs, or said to be missing.

Without them the folder's tests are not run, and the summary says so in one line; with
``CI=true`` in the environment that is a failure.
"""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest
from tests.support.kubernetes.programs import MissingProgramsError, Program, ensure, required

_MISSING = pytest.StashKey[dict[Path, str]]()


def get_ahead(session: pytest.Session, folder: Path, *programs: Program) -> None:
    """Get them where tests of the folder are to run; a build takes minutes, and tells so."""
    here = any(folder in item.path.parents for item in session.items)
    if not here or session.config.option.collectonly:
        return
    capture = session.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled() if capture else nullcontext():
        try:
            ensure(*programs)
        except MissingProgramsError as error:
            session.config.stash.setdefault(_MISSING, {})[folder] = str(error)


def demand(item: pytest.Item, folder: Path) -> None:
    """Skip or fail a test whose programs are missing."""
    missing = item.config.stash.get(_MISSING, {}).get(folder)
    if missing and required():
        pytest.fail(f"{folder.name} tests cannot run: {missing}", pytrace=False)
    if missing:
        pytest.skip(f"{folder.name} tests not run: {missing}")
