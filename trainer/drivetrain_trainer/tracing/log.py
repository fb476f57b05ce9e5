"""The log of traces, in a process that mostly has nothing to say."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger


def logger(name: str) -> FilteringBoundLogger:
    """The logger of a module.

    structlog takes a tenth of a second to import; a collector that is not traced starts
    without it.
    """
    import structlog  # noqa: PLC0415 - see above

    found: FilteringBoundLogger = structlog.get_logger(name)
    return found
