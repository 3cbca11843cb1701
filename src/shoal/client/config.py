"""The address and credentials of a cluster: one frozen value, from a kubeconfig, a service account, or given.

Only this module of the client reads files, except credentials that may change while a process runs (token files, exec
plugins: see ``shoal.client.credentials``). Every error is a ``ConfigError`` that names the file and the field.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

from shoal.base import proxies
from shoal.errors import ConfigError

SERVICE_ACCOUNT_DIR = "/var/run/secrets/kubernetes.io/serviceaccount"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecPlugin:
    """A program that prints credentials."""

    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    api_version: str = "client.authentication.k8s.io/v1"
    install_hint: str = ""
    interactive_mode: str = "IfAvailable"
    cluster_info: Mapping[str, Any] | None = None  # cluster data for the plugin, when it asks for it
    directory: str = ""  # of the kubeconfig: a command with a slash is relative to it


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessConfig:
    """A server, its trust roots, and the user's credentials: at most one kind besides a client certificate."""

    url: str
    ca_pem: str = ""  # empty: the system's authorities
    insecure: bool = False
    tls_server_name: str = ""
    client_cert_pem: str = ""
    client_key_pem: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    token_file: str = ""  # read again when it changes
    username: str = ""
    password: str = field(default="", repr=False)
    exec_plugin: ExecPlugin | None = None
    headers: tuple[tuple[str, str], ...] = ()  # impersonation; names may repeat
    namespace: str = "default"
    proxy_url: str = field(default="", repr=False)  # empty: as HTTPS_PROXY and NO_PROXY say
    direct: bool = False  # no proxy, whatever the environment says

    def __post_init__(self) -> None:
        if self.proxy_url:
            try:
                proxies.parse(self.proxy_url, "proxy-url")
            except (OSError, ValueError) as error:
                raise ConfigError(f"{error}; use http://HOST:PORT") from None
        try:
            parts = urlsplit(self.url)
            usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
        except ValueError:
            usable = False
        if not usable:
            raise ConfigError(f"server is {self.url!r}: use a URL such as https://host:6443")
        if self.insecure and self.ca_pem:
            raise ConfigError("insecure-skip-tls-verify is true and a certificate authority is given: use one of them")
        if bool(self.client_cert_pem) != bool(self.client_key_pem):
            missing = "client-key" if self.client_cert_pem else "client-certificate"
            raise ConfigError(f"{missing} is missing: set the client certificate and its key together")
        if self.username and (self.token or self.token_file):
            raise ConfigError("both a token and a username are given: use one of them")

    def proxy(self) -> SplitResult | None:
        """The HTTP proxy in front of the server, as the environment is now; ``OSError`` for one that is not
        supported."""
        if self.direct:
            return None
        if self.proxy_url:
            return proxies.parse(self.proxy_url, "proxy-url")
        parts = urlsplit(self.url)
        return proxies.for_host(parts.hostname or "", parts.port or 443) if parts.scheme == "https" else None


def explicit(url: str, *, token: str = "", ca_file: str = "", namespace: str = "default") -> AccessConfig:
    """A server by its URL."""
    ca_pem = read_text(Path(ca_file), "ca_file") if ca_file else ""
    return AccessConfig(url=url, ca_pem=ca_pem, token=token, namespace=namespace)


def in_cluster(env: Mapping[str, str] = os.environ) -> AccessConfig:
    """The config of a pod: the service account's files and the API server's address in the environment. No proxy is
    between a pod and its API server."""
    directory = Path(env.get("SHOAL_SERVICEACCOUNT_DIR") or SERVICE_ACCOUNT_DIR)
    host, port = env.get("KUBERNETES_SERVICE_HOST", ""), env.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not port:
        raise ConfigError(
            "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set: this process does not run in a cluster"
        )
    token_file = directory / "token"
    read_text(token_file, "token")
    namespace_file = directory / "namespace"
    return AccessConfig(
        url=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        ca_pem=read_text(directory / "ca.crt", "ca.crt"),
        direct=True,
        token_file=str(token_file),
        namespace=read_text(namespace_file, "namespace").strip() if namespace_file.exists() else "default",
    )


def load(path: str | Path | None = None, *, context: str = "", env: Mapping[str, str] = os.environ) -> AccessConfig:
    """The usual search: the file given, else ``KUBECONFIG``, else ``~/.kube/config``, else the pod's own account."""
    from shoal.client import kubeconfig

    if path is not None:
        return kubeconfig.load([Path(path)], context=context, must_exist=True)
    if named := [Path(part) for part in env.get("KUBECONFIG", "").split(os.pathsep) if part]:
        return kubeconfig.load(named, context=context)
    default = Path(env.get("HOME") or str(Path.home())) / ".kube" / "config"
    if default.exists() or not env.get("KUBERNETES_SERVICE_HOST"):
        return kubeconfig.load([default], context=context)
    return in_cluster(env)


def read_text(path: Path, name: str) -> str:
    """A file's text; ``name`` is the field that led to it."""
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text"
        raise ConfigError(f"{name} cannot be read from {path}: {reason}") from error


def load_inside(path: str | Path | None = None, *, env: Mapping[str, str] = os.environ) -> AccessConfig:
    """As ``load``, for programs that usually run in a pod: the pod's account is preferred to a default kubeconfig."""
    return in_cluster(env) if path is None and env.get("KUBERNETES_SERVICE_HOST") else load(path, env=env)
