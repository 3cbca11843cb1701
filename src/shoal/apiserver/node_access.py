"""Settings and TLS of the API server's connections to nodes and pods."""

from __future__ import annotations

import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path

from shoal.errors import ConfigError

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesConfig:
    """Settings of the connections to nodes. Without the three files the server cannot connect to kubelets."""

    ca: Path | None = None  # signs the kubelets' certificates
    certificate: Path | None = None  # client certificate for kubelets
    key: Path | None = None
    port: int = 10250  # kubelet port when the Node has none
    address_types: tuple[str, ...] = ("InternalIP", "ExternalIP", "InternalDNS", "Hostname", "ExternalDNS")
    # networks on the loopback interface in which pods and nodes may be reached through a proxy: those of a cluster
    # whose nodes are this machine; clients must not reach other loopback addresses
    loopback: tuple[str, ...] = ()
    dial_s: float = 10.0  # until a connection is there, its handshake included
    stats_every_s: float = 15.0  # shortest interval between statistics requests, sent only while clients read metrics
    stats_wait_s: float = 5.0  # for the answer of one kubelet

    def __post_init__(self) -> None:
        given = [self.ca, self.certificate, self.key]
        if any(given) and not all(given):
            raise ConfigError("nodes: set all of ca, certificate and key, or none of them")
        if min(self.dial_s, self.stats_every_s, self.stats_wait_s) <= 0:
            raise ConfigError("nodes: dial_s, stats_every_s and stats_wait_s must be more than 0")
        try:
            self.networks()
        except ValueError as error:
            raise ConfigError(f"nodes.loopback: {error}; use for example 127.42.0.0/16") from None

    def networks(self) -> tuple[Network, ...]:
        return tuple(ipaddress.ip_network(text) for text in self.loopback)


class NodeCredentials:
    """TLS for each kind of connection, made on first use."""

    def __init__(self, config: NodesConfig) -> None:
        self._config = config
        self._kept: dict[str, ssl.SSLContext] = {}

    @property
    def known(self) -> bool:
        """Whether there is a client certificate for kubelets."""
        return self._config.ca is not None

    def kubelet(self, *, insecure: bool = False) -> ssl.SSLContext:
        """TLS with the client certificate. ``insecure``: do not verify the kubelet's certificate."""
        return self._context("insecure" if insecure else "kubelet")

    def pod(self) -> ssl.SSLContext:
        """TLS to pods and services, whose certificates are not verified."""
        return self._context("pod")

    def forget(self) -> None:
        """Read the files again for the next connections."""
        self._kept.clear()

    def _context(self, which: str) -> ssl.SSLContext:
        context = self._kept.get(which)
        if context is None:
            context = self._kept[which] = self._make(which)
        return context

    def _make(self, which: str) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        config = self._config
        if which == "kubelet" and config.ca is not None:
            context.load_verify_locations(config.ca)
        else:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if which != "pod" and config.certificate is not None and config.key is not None:
            context.load_cert_chain(config.certificate, config.key)
        return context
