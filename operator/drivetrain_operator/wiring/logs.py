"""One log: ours and the libraries', an object a line, with run, namespace and attempt."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any, Final

import structlog

from drivetrain_operator.wiring.settings import LogFormat, LogLevel

if TYPE_CHECKING:
    from structlog.typing import EventDict, Processor, WrappedLogger

_QUIET: Final = ("kopf", "asyncio", "aiohttp", "kubernetes")
"""Libraries whose ordinary course is of no interest: warnings alone, unless debugging."""


def configure(level: LogLevel, style: LogFormat) -> None:
    """Send everything that is logged in this process to standard error, in one form."""
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, _name_the_run],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *_rendering(style),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.value.upper())
    for name in _QUIET:
        library = logging.getLogger(name)
        library.handlers.clear()
        library.propagate = True
        library.setLevel(logging.DEBUG if level is LogLevel.DEBUG else logging.WARNING)


def run_logger(
    logger: structlog.stdlib.BoundLogger, namespace: str, name: str, attempt: int | None = None
) -> structlog.stdlib.BoundLogger:
    """The logger with what every line about a run carries."""
    bound = logger.bind(namespace=namespace, run=name)
    return bound if attempt is None else bound.bind(attempt=attempt)


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """A module's logger."""
    return structlog.stdlib.get_logger(name)


def _rendering(style: LogFormat) -> list[Processor]:
    if style is LogFormat.CONSOLE:
        return [
            structlog.dev.ConsoleRenderer(
                colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
            )
        ]
    return [
        structlog.processors.format_exc_info,
        structlog.processors.JSONRenderer(default=str, ensure_ascii=False),
    ]


def _name_the_run(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Take over the object that kopf speaks of, under the names that our own lines use."""
    record: Any = event.get("_record")
    reference = getattr(record, "k8s_ref", None)
    if isinstance(reference, dict):
        event["namespace"] = reference.get("namespace")
        event["run"] = reference.get("name")
    return event
