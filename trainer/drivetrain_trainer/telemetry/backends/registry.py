"""Which backends a run gets: those that ``training.logger`` names, by entry point."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivetrain_api.errors import SpecError, Violation
from drivetrain_api.loggers import LOGGER_GROUP, UnknownLoggerError, logger_entry_point
from drivetrain_api.training import logger_names

if TYPE_CHECKING:
    from collections.abc import Callable

    from drivetrain_trainer.telemetry.backends.base import Backend, BackendContext


def make_backends(context: BackendContext) -> tuple[Backend, ...]:
    """The persistent backends of a run in the order of their names; none are opened yet.

    Raises:
        SpecError: for a name that is not installed, or one that cannot be loaded or made.
    """
    return tuple(_make(name, context) for name in logger_names(context.spec.training.logger))


def _make(name: str, context: BackendContext) -> Backend:
    try:
        make: Callable[[BackendContext], Backend] = logger_entry_point(name).load()
        backend = make(context)
        _check_protocol(backend)
    except SpecError:
        raise
    except UnknownLoggerError as error:
        raise SpecError((Violation("training.logger", str(error)),)) from None
    except Exception as error:
        problem = f"{name} ({LOGGER_GROUP}) cannot be made: {type(error).__name__}: {error}"
        raise SpecError((Violation("training.logger", problem),)) from error
    return backend


def _check_protocol(backend: Backend) -> None:
    """Fail here, before training, where somebody's backend lacks what will be called."""
    wanted = ("name", "capabilities", "details", "open", "write", "flush", "close")
    lacking = [attribute for attribute in wanted if not hasattr(backend, attribute)]
    if lacking:
        raise TypeError(f"{type(backend).__name__} has no {', '.join(lacking)}")
