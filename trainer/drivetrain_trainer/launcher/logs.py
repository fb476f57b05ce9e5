"""Structured logs on stderr: JSON for a collector, words for a person's terminal."""

from __future__ import annotations

import logging
import sys

import structlog


def configure_logging(**context: object) -> None:
    """Configure structlog for this process; what is of use to its developers alone is left out.

    Args:
        context: Bound to every event, such as the run and the attempt.
    """
    terminal = sys.stderr.isatty()
    renderer: structlog.types.Processor = (
        structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
        if terminal
        else structlog.processors.JSONRenderer(sort_keys=True)
    )
    shared: list[structlog.types.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if not terminal:
        # Local variables stay out: they are long, and a secret may be among them.
        tracebacks = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
        shared.append(structlog.processors.ExceptionRenderer(tracebacks))
    structlog.configure(
        processors=[*shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
    structlog.contextvars.clear_contextvars()
    structlog.contextvars.bind_contextvars(**context)
