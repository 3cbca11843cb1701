"""The group versions that other servers serve, as the APIServices with a service name them."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from shoal.apiserver.admission.webhooks.target import HookTarget, Resolver, target_of
from shoal.apiserver.aggregator import plan
from shoal.apiserver.front_proxy import FrontProxyConfig
from shoal.apiserver.nodes.backend import Endpoint
from shoal.kube.discovery import AggregatedVersion

if TYPE_CHECKING:
    from shoal.kube.openapi.aggregated import AggregatedOpenApi

_NEVER = frozenset({"", "apiregistration.k8s.io"})  # groups without which nothing could be repaired


def is_remote(api_service: Mapping[str, Any]) -> bool:
    """Whether requests for the group version are passed on."""
    return (api_service.get("spec") or {}).get("service") is not None and plan.group_version(api_service)[
        0
    ] not in _NEVER


class Route:
    """The server of one group version. Made anew when the APIService's spec changes."""

    def __init__(self, api_service: Mapping[str, Any], proxy: FrontProxyConfig) -> None:
        spec = api_service["spec"]
        self.name: str = api_service["metadata"]["name"]
        self.spec = spec
        self.group, self.version = plan.group_version(api_service)
        self.path = f"/apis/{self.group}/{self.version}"
        self.service: Mapping[str, Any] = spec["service"]
        self.available = plan.is_available(api_service)
        self.resources: tuple[Mapping[str, Any], ...] = ()  # of its APIResourceList
        self.openapi: AggregatedOpenApi | None = None  # None until it is read
        self._insecure = bool(spec.get("insecureSkipTLSVerify"))
        self._target: HookTarget = target_of(spec)
        self._proxy = proxy
        self._tls: ssl.SSLContext | None = None

    @property
    def discovered(self) -> AggregatedVersion:
        return AggregatedVersion(self.group, self.version, self.resources, stale=not self.available)

    def endpoint(self, resolver: Resolver) -> Endpoint:
        """One of the service's endpoints; ``Unresolved`` when there is none, ``ssl.SSLError`` when the certificates of
        the APIService cannot be read."""
        host, port = resolver.address(self._target)
        if self._tls is None:
            self._tls = self._context()
        return Endpoint(host, port, self._tls, self._target.server_name)

    def forget_certificate(self) -> None:
        """Read the front proxy's files again for the next connection."""
        self._tls = None

    def _context(self) -> ssl.SSLContext:
        if self._insecure:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        else:
            context = ssl.create_default_context(cadata=self._target.ca or None)
            # every certificate in the bundle is trusted, also an intermediate authority or the server's own
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        if self._proxy.certificate is not None and self._proxy.key is not None:
            context.load_cert_chain(self._proxy.certificate, self._proxy.key)
        return context
