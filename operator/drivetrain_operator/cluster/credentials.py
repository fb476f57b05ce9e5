"""Where the API server is, how it is trusted, and who we are to it.

The loaders are the Kubernetes client's own, so that kubeconfigs with exec plugins, OIDC,
tokens, certificates and proxies work as users know them. It is imported late: it takes
half a second of CPU.
"""

from __future__ import annotations

import ipaddress
import os
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import structlog

if TYPE_CHECKING:
    import ssl

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where Kubernetes mounts a pod's token, the cluster's certificate and the namespace."""
TOKEN_PERIOD_S: Final = 60.0
"""How often the mounted token is read again; the kubelet renews it long before it expires."""
_FORCED_PERIOD_S: Final = 5.0
"""A server that refuses every token does not make us run an exec plugin for each request."""
_log = structlog.get_logger(__name__)


class ConnectionSettingsError(ValueError):
    """No API server can be told from the settings: says what was looked for and where."""


@dataclass(frozen=True)
class _Source:
    """Where credentials come from."""

    loader: Any
    namespace: str
    period_s: float
    """Seconds after which they are loaded again without being refused."""

    async def load(self, configuration: Any) -> None:  # noqa: ANN401 - the Kubernetes client has no types here
        done = self.loader.load_and_set(configuration)
        if done is not None:
            await done


class Credentials:
    """One API server's address, TLS context, proxy and bearer token, which is kept fresh."""

    def __init__(self, source: _Source, configuration: Any, now: float) -> None:  # noqa: ANN401 - the Kubernetes client has no types here
        self._source = source
        self._configuration = configuration
        self._loaded_at = now
        self._forced_at = float("-inf")
        self._ssl = _tls(configuration)
        self._client_certificate = _certificate(configuration)
        self.namespace = source.namespace

    @classmethod
    async def load(
        cls,
        *,
        kubeconfig: Path | None = None,
        context: str | None = None,
        service_account: Path = SERVICE_ACCOUNT,
        now: float,
    ) -> Credentials:
        """Find out where the API server is and who we are.

        In this order: the kubeconfig or context asked for; ``$KUBECONFIG``; the pod's
        service account; ``~/.kube/config``.

        Raises:
            ConnectionSettingsError: there is none of these, or it cannot be read.
        """
        from kubernetes.aio.client import Configuration  # noqa: PLC0415 - see the module

        asked = kubeconfig is not None or context is not None or "KUBECONFIG" in os.environ
        try:
            if not asked and (service_account / "token").is_file():
                source = _in_cluster(service_account)
            else:
                source = _from_kubeconfig(kubeconfig, context)
            configuration = Configuration()
            await source.load(configuration)
            return cls(source, configuration, now)
        except ConnectionSettingsError:
            raise
        except Exception as error:
            # The loaders let out whatever they happen upon in a file: TypeError, KeyError...
            words = str(error) or type(error).__name__
            raise ConnectionSettingsError(f"cannot reach a cluster: {words}") from error

    @property
    def host(self) -> str:
        """Scheme, host and port, without a slash at the end."""
        return str(self._configuration.host).rstrip("/")

    @property
    def ssl(self) -> ssl.SSLContext:
        """Trust in the server's certificate, and our own certificate where we have one."""
        return self._ssl

    @property
    def server_name(self) -> str | None:
        """The name expected in the server's certificate; None for that of the address."""
        name = self._configuration.tls_server_name
        return str(name) if name else None

    def proxy(self) -> str | None:
        """The proxy of the kubeconfig or of the environment; None for none."""
        if self._configuration.proxy:
            return str(self._configuration.proxy)
        url = urlsplit(self.host)
        if not url.hostname or _local(url.hostname) or urllib.request.proxy_bypass(url.hostname):
            return None
        return urllib.request.getproxies().get(url.scheme)

    def authorization(self) -> str | None:
        """The ``Authorization`` header; None where a certificate speaks for us, or nobody."""
        token = self._configuration.api_key.get("BearerToken")
        return str(token).strip() if token else None

    def due(self, now: float) -> bool:
        """Whether the token should be read again."""
        return now - self._loaded_at >= self._source.period_s

    async def refresh(self, now: float, *, refused: bool = False) -> bool:
        """Load the credentials again; what was known stays where that fails.

        Args:
            now: Seconds of a clock that never goes back.
            refused: The server refused the present ones (401), whatever they say of their
                own expiry.

        Returns:
            Whether they are worth another try: loaded just now.
        """
        if refused:
            if now - self._forced_at < _FORCED_PERIOD_S:
                return False
            self._forced_at = now
            # An exec plugin's answer is kept until the expiry that the plugin told.
            self._source.loader.__dict__.pop("exec_plugin_expiry", None)
        self._loaded_at = now
        try:
            await self._source.load(self._configuration)
            self._follow_certificate()
        except Exception as error:  # noqa: BLE001 - plugins and files of any kind; the old token may do
            _log.warning("credentials could not be loaded again", error=str(error))
            return False
        return True

    def _follow_certificate(self) -> None:
        certificate = _certificate(self._configuration)
        if certificate != self._client_certificate and certificate[0]:
            self._ssl.load_cert_chain(certificate[0], keyfile=certificate[1])
            self._client_certificate = certificate


def _local(host: str) -> bool:
    """Whether the environment's proxy never serves that host, as for kubectl."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _tls(configuration: Any) -> ssl.SSLContext:  # noqa: ANN401 - as above
    from kubernetes.aio.client.rest import RESTClientObject  # noqa: PLC0415 - see the module

    context: ssl.SSLContext = RESTClientObject(configuration).ssl_context
    return context


def _certificate(configuration: Any) -> tuple[str | None, str | None]:  # noqa: ANN401 - as above
    return configuration.cert_file, configuration.key_file


def _in_cluster(folder: Path) -> _Source:
    from kubernetes.aio.config.incluster_config import (  # noqa: PLC0415 - see the module
        InClusterConfigLoader,
    )

    loader = InClusterConfigLoader(
        token_filename=str(folder / "token"),
        cert_filename=str(folder / "ca.crt"),
        try_refresh_token=False,  # its own refresh forgets a renewed token's line end
    )
    return _Source(
        loader,
        namespace=(folder / "namespace").read_text().strip() or "default",
        period_s=TOKEN_PERIOD_S,
    )


def _from_kubeconfig(kubeconfig: Path | None, context: str | None) -> _Source:
    from kubernetes.aio.config.kube_config import (  # noqa: PLC0415 - see the module
        KubeConfigLoader,
        KubeConfigMerger,
    )

    named = str(kubeconfig) if kubeconfig is not None else os.environ.get("KUBECONFIG", "")
    paths = named or str(Path.home() / ".kube" / "config")
    if not any(Path(path).expanduser().is_file() for path in paths.split(os.pathsep) if path):
        hint = "" if named else "; name one by --kubeconfig or KUBECONFIG"
        raise ConnectionSettingsError(f"cannot reach a cluster: no kubeconfig at {paths}{hint}")
    try:
        config = KubeConfigMerger(paths).config
        loader = KubeConfigLoader(config, active_context=context, config_base_path=None)
    except Exception as error:
        raise ConnectionSettingsError(
            f"cannot reach a cluster: the kubeconfig at {paths} cannot be read: {error}"
        ) from error
    chosen = loader.current_context.get("context") or {}
    return _Source(loader, str(chosen.get("namespace") or "default"), period_s=float("inf"))
