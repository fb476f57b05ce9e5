"""Model configurations as FLOPs factories read them: attributes, checked when they are used."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pathlib import Path

CONFIG_NAME: Final = "config.json"
MAX_CONFIG_BYTES: Final = 4 * 2**20
"""A published configuration has some kilobytes; more than this is another file."""


class FlopsConfigError(ValueError):
    """A model configuration that no estimate can be made from."""


def as_attributes(config: object) -> Any:  # noqa: ANN401 - a foreign configuration object
    """`config` itself, or attributes for the keys of a mapping, nested mappings likewise."""
    if isinstance(config, Mapping):
        return SimpleNamespace(**{str(key): as_attributes(value) for key, value in config.items()})
    return config


def text_config(config: object) -> Any:  # noqa: ANN401 - a foreign configuration object
    """The text backbone's part of `config`; all of it where there is no such part."""
    nested = getattr(config, "text_config", None)
    return config if nested is None else nested


def load_model_config(directory: Path) -> Any:  # noqa: ANN401 - whatever the file holds
    """The configuration in a local model directory, whatever the directory is called.

    Args:
        directory: Holds ``config.json``.

    Raises:
        FlopsConfigError: It is missing, larger than `MAX_CONFIG_BYTES`, or no JSON object.
    """
    path = directory / CONFIG_NAME
    try:
        with path.open("rb") as file:
            content = file.read(MAX_CONFIG_BYTES + 1)
    except OSError as error:
        raise FlopsConfigError(f"{path}: cannot be read: {error.strerror}") from error
    if len(content) > MAX_CONFIG_BYTES:
        raise FlopsConfigError(f"{path}: larger than {MAX_CONFIG_BYTES} bytes")
    try:
        parsed = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise FlopsConfigError(f"{path}: not JSON: {error}") from error
    if not isinstance(parsed, dict):
        raise FlopsConfigError(f"{path}: a JSON {type(parsed).__name__}, must be an object")
    return as_attributes(parsed)


def positive(config: object, name: str, default: int | None = None) -> int:
    """An int of at least 1, by attribute name.

    Raises:
        FlopsConfigError: naming it, where it is absent without a default, or another value.
    """
    return _integer(config, name, default, least=1)


def natural(config: object, name: str, default: int | None = None) -> int:
    """An int of at least 0; see `positive`."""
    return _integer(config, name, default, least=0)


def _integer(config: object, name: str, default: int | None, *, least: int) -> int:
    value = getattr(config, name, None)
    if value is None:
        value = default
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        stated = "missing" if value is None else f"{value!r}"
        raise FlopsConfigError(f"model configuration: {name} is {stated}, must be int >= {least}")
    return value
