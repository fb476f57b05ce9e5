"""Which runs are seeds of the same thing: by values of their configuration."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from drivetrain_trainer.analysis.runs import RunFolder

DEFAULT_KEYS: Final = ("algo", "task", "sim")
NO_GROUPS: Final = "none"
"""Given instead of keys: every run stands for itself."""
_SHORT: Final = {"algo": "algo.name", "task": "task.name"}
_OF_SUMMARY: Final = {"algo.name": "algo", "task.name": "task", "sim": "sim_backend"}
"""Key of the configuration -> its name in the summary, for a run that has no configuration."""
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class GroupingError(ValueError):
    """A key that a run's configuration does not have."""


def parse_keys(text: str) -> tuple[str, ...]:
    """Keys between commas, as a manifest or a configuration names them; empty for ``none``.

    Raises:
        GroupingError: there is no key.
    """
    if text.strip().lower() == NO_GROUPS:
        return ()
    keys = tuple(key.strip() for key in text.split(",") if key.strip())
    if not keys:
        raise GroupingError(f"--group {text!r} names no key; give {','.join(DEFAULT_KEYS)}")
    return tuple(dict.fromkeys(_CAMEL.sub("_", key).lower() for key in keys))


def group_of(folder: RunFolder, keys: Sequence[str]) -> str:
    """The name of the run's group: the values of `keys`, those of the defaults bare.

    Args:
        folder: The run.
        keys: snake_case paths, or ``algo`` and ``task`` for their names.

    Raises:
        GroupingError: the run has no such key.
        SchemaError: the run's configuration cannot be read.
    """
    words = []
    for key in keys:
        path = _SHORT.get(key, key)
        value = _value(folder, path)
        words.append(str(value) if path in _OF_SUMMARY else f"{path.rpartition('.')[2]}={value}")
    return " · ".join(words)


def _value(folder: RunFolder, path: str) -> object:
    config, summary = folder.raw_config, folder.raw_summary
    if config is not None:
        return _walk(folder, config, path)
    if summary is not None and path in _OF_SUMMARY:
        return summary.get(_OF_SUMMARY[path], "?")
    raise GroupingError(f"{folder.path} has no {folder.config_path.name} to read {path!r} from")


def _walk(folder: RunFolder, config: Mapping[str, object], path: str) -> object:
    found: object = config
    for place, part in enumerate(path.split(".")):
        if not isinstance(found, dict) or part not in found:
            below = ".".join(path.split(".")[:place])
            known = ", ".join(sorted(found)) if isinstance(found, dict) else "no keys"
            where = f" below {below}" if below else ""
            raise GroupingError(
                f"--group {path}: {folder.config_path} has no {part!r}{where}; it has {known}"
            )
        found = found[part]
    return found
