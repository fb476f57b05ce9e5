"""The API server as a pod reaches it: the account's mounted files, and one patch.

Standard library only: an official client costs a pod more memory and start time than this one
request is worth. `http.client` is used rather than `urllib`, which would follow a proxy that
the image's environment names.
"""

from __future__ import annotations

import http.client
import json
import math
import re
import ssl
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self
from urllib.parse import quote

from drivetrain_api.errors import SpecError, Violation
from drivetrain_api.labels import ENV_PROGRESS_SINK, ENV_SERVICE_ACCOUNT
from drivetrain_trainer.launcher.digest import plain_text

if TYPE_CHECKING:
    from collections.abc import Mapping

MOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
"""Where Kubernetes mounts the account of a pod."""
HOST: Final = "KUBERNETES_SERVICE_HOST"
PORT: Final = "KUBERNETES_SERVICE_PORT"
FIELD_MANAGER: Final = "drivetrain-launcher"
PROGRESS_KEY: Final = "progress"
"""The one key of the ConfigMap."""

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_RESPONSE_LIMIT = 64 << 10
_WORDS_LIMIT = 300
_LONGEST_WAIT = 60.0
_ADVICE: Final[Mapping[int, str]] = {
    HTTPStatus.UNAUTHORIZED: "the account's token is not accepted; it is read anew each time",
    HTTPStatus.FORBIDDEN: (
        "the run's account may not patch it, or an admission policy refused the change: are the "
        "run's Role and RoleBinding there?"
    ),
    HTTPStatus.NOT_FOUND: "it is gone: was the run deleted?",
    HTTPStatus.CONFLICT: "somebody else changed it in the same moment; it is sent again",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "the report is too large for the API server",
    HTTPStatus.UNPROCESSABLE_ENTITY: "the API server, or an admission policy, refused the report",
    HTTPStatus.TOO_MANY_REQUESTS: "the API server is busy; it is sent again later",
}
_HOPELESS: Final = frozenset(
    {
        HTTPStatus.BAD_REQUEST,
        HTTPStatus.NOT_FOUND,
        HTTPStatus.METHOD_NOT_ALLOWED,
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        HTTPStatus.UNPROCESSABLE_ENTITY,
    }
)


class PublishError(OSError):
    """A report that did not arrive."""

    def __init__(self, words: str, *, hopeless: bool = False, wait_s: float = 0.0) -> None:
        """Create the error.

        Args:
            words: Why, and what to do.
            hopeless: The same report will not arrive in the next seconds either.
            wait_s: Seconds that the server asks to wait.
        """
        super().__init__(words)
        self.hopeless = hopeless
        self.wait_s = wait_s


@dataclass(frozen=True)
class ProgressConfigMap:
    """The run's progress ConfigMap, patched with the pod's own account.

    Token, certificate and namespace are read on each use: Kubernetes rotates them.
    """

    name: str
    host: str
    port: int
    account: Path = Path(MOUNT)

    @classmethod
    def of(cls, name: str, environ: Mapping[str, str]) -> Self:
        """The ConfigMap `name` at the API server that the pod's environment names.

        Raises:
            SpecError: the name is none that Kubernetes accepts, or this is not a pod.
        """
        if not _NAME.fullmatch(name):
            reason = f"configmap:<name> needs the name of a ConfigMap; got {name!r}"
            raise SpecError((Violation(ENV_PROGRESS_SINK, reason),))
        host, port = environ.get(HOST, "").strip("[]"), environ.get(PORT, "443")
        if not host or not (port.isascii() and port.isdecimal() and 0 < int(port) < 1 << 16):
            reason = (
                f"configmap:{name} needs a pod, where {HOST} and {PORT} name the API server; got "
                f"{host!r} and {port!r}. Outside of one use file:<path>"
            )
            raise SpecError((Violation(ENV_PROGRESS_SINK, reason),))
        account = Path(environ.get(ENV_SERVICE_ACCOUNT) or MOUNT)
        return cls(name=name, host=host, port=int(port), account=account)

    def patch(self, text: str, timeout_s: float) -> None:
        """Replace the report.

        Args:
            text: The report.
            timeout_s: Seconds for connecting, and for each wait on the server.

        Raises:
            PublishError: it did not arrive, as far as we know.
        """
        namespace, token = self._read("namespace"), self._read("token")
        path = f"/api/v1/namespaces/{quote(namespace, safe='')}/configmaps/{quote(self.name)}"
        connection = http.client.HTTPSConnection(
            self.host, self.port, timeout=timeout_s, context=self._context()
        )
        try:
            connection.request(
                "PATCH",
                f"{path}?fieldManager={FIELD_MANAGER}",
                json.dumps({"data": {PROGRESS_KEY: text}}),
                {
                    "Authorization": f"Bearer {token}",
                    "Content-Type": "application/merge-patch+json",
                    "Accept": "application/json",
                    "User-Agent": FIELD_MANAGER,
                    "Connection": "close",
                },
            )
            response = connection.getresponse()
            content = response.read(_RESPONSE_LIMIT)
        except (OSError, http.client.HTTPException) as error:
            raise PublishError(f"{self._where}: {_words_of(error)}") from error
        finally:
            connection.close()
        if response.status != HTTPStatus.OK:
            raise self._refusal(response.status, content, response.getheader("Retry-After"))

    @property
    def _where(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"ConfigMap {self.name} at https://{host}:{self.port}"

    def _read(self, name: str) -> str:
        path = self.account / name
        try:
            text = path.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not ASCII"
            raise PublishError(
                f"{path} cannot be read ({reason}): does the pod mount the token of its account "
                "(automountServiceAccountToken)?"
            ) from error
        if not text or any(character < "!" or character > "~" for character in text):
            raise PublishError(f"{path} is empty or is no {name}")
        return text

    def _context(self) -> ssl.SSLContext:
        path = self.account / "ca.crt"
        try:
            context = ssl.create_default_context(cafile=str(path))
        except OSError as error:  # ssl.SSLError is one
            raise PublishError(f"{path} is no certificate authority: {error}") from error
        # From Python 3.13 on; authorities of many clusters lack the identifiers it insists on.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        return context

    def _refusal(self, status: int, content: bytes, retry_after: str | None) -> PublishError:
        advice = _ADVICE.get(status, "it is sent again later")
        said = _message_of(content)
        words = f"{self._where}: {status}: {advice}{f' (it said: {said})' if said else ''}"
        return PublishError(words, hopeless=status in _HOPELESS, wait_s=_seconds(retry_after))


def _words_of(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time: is a network policy in the way?"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({error.verify_message})"
    return plain_text(str(error) or type(error).__name__, _WORDS_LIMIT)


def _message_of(content: bytes) -> str:
    """The message of a Kubernetes Status; nothing where the answer is not one."""
    try:
        status = json.loads(content)
    except (ValueError, RecursionError):
        return ""
    message = status.get("message") if isinstance(status, dict) else None
    return plain_text(message, _WORDS_LIMIT) if isinstance(message, str) else ""


def _seconds(retry_after: str | None) -> float:
    """A Retry-After in seconds; its other form, a date, is not used by Kubernetes."""
    try:
        seconds = float(retry_after or 0)
    except ValueError:
        return 0.0
    return min(_LONGEST_WAIT, max(0.0, seconds)) if math.isfinite(seconds) else 0.0
