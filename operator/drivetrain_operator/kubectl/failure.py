"""What a command could not do, and what the user can do about it."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from drivetrain_operator.cli.refusal import Refusal
from drivetrain_operator.cluster.errors import (
    ApiError,
    ForbiddenError,
    InvalidError,
    ThrottledError,
    UnavailableError,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

_INSTALL: Final = (
    "install the operator's chart, or only the definition: "
    "drivetrain crd | kubectl apply --server-side -f -"
)


class Failure(Refusal):
    """A command that failed; exit code 1."""

    exit_code = 1

    def __init__(self, line: str, hint: str = "", more: Sequence[str] = ()) -> None:
        super().__init__([line, *more], hint)


def explained(error: ApiError, host: str) -> Failure:
    """The API server's words, and what to do.

    Args:
        error: What a request ended with.
        host: Address of the API server.
    """
    match error:
        case UnavailableError():
            words = "is the cluster up, and does --context or $KUBECONFIG name the right one?"
            return Failure(f"no good answer from {host}: {error}", words)
        case ForbiddenError(status=HTTPStatus.UNAUTHORIZED):
            return Failure(f"{host} does not accept these credentials: {error}", "log in again")
        case ForbiddenError():
            hint = "ask for that permission, or choose another --namespace or --context"
            return Failure(error.message, hint)
        case ThrottledError():
            return Failure(f"{host} is too busy: {error.message}", "try again in a moment")
        case InvalidError():
            causes = [f"{cause.field}: {cause.message}" for cause in error.causes]
            return Failure("the API server refused it", more=causes or [error.message])
        case _:
            return Failure(error.message)


def not_installed(host: str) -> Failure:
    """The API server serves no TrainingRuns."""
    return Failure(f"{host} serves no TrainingRuns", _INSTALL)
