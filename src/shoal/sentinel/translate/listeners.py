"""Listeners: traffic (plain, and TLS by server name), and the entry for peers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from envoy.config.core.v3 import socket_option_pb2
from envoy.config.listener.v3 import listener_components_pb2, listener_pb2
from envoy.extensions.filters.listener.tls_inspector.v3 import tls_inspector_pb2
from google.protobuf import wrappers_pb2

from shoal.sentinel.model import Settings
from shoal.sentinel.translate import envoy
from shoal.sentinel.translate.connection import connection_manager
from shoal.sentinel.translate.endpoints import socket_address
from shoal.sentinel.translate.policies import http_filters
from shoal.sentinel.translate.secrets import entry_transport, server_transport

_BUFFER_BYTES = 1 << 20
_SOL_SOCKET, _SO_KEEPALIVE = 1, 9  # as Linux numbers them
_TCP, _IDLE, _INTERVAL, _COUNT = 6, 4, 5, 6


def listeners_of(settings: Settings, certificates: Mapping[str, str]) -> dict[str, listener_pb2.Listener]:
    """By name. ``certificates``: by host the name of the Secret."""
    plain = listener_components_pb2.FilterChain(name="plain", filters=[_traffic(settings)])
    secure = _tls_chains(settings, certificates)
    together = not settings.tls_port
    made = [_listener(envoy.TRAFFIC, settings, settings.port, [plain, *(secure if together else ())])]
    if secure and not together:
        made.append(_listener(envoy.TLS, settings, settings.tls_port, secure))
    if settings.entry_port:
        made.append(_entry(settings))
    return {listener.name: listener for listener in made}


def _traffic(settings: Settings) -> listener_components_pb2.Filter:
    return connection_manager(envoy.TRAFFIC, envoy.ALL_ROUTES, http_filters(settings), settings)


def _tls_chains(settings: Settings, certificates: Mapping[str, str]) -> list[listener_components_pb2.FilterChain]:
    """One for each Secret: a certificate that is renewed changes the secret, not the listener."""
    hosts: dict[str, list[str]] = {}
    for host, secret in certificates.items():
        hosts.setdefault(secret, []).append(host)
    return [
        listener_components_pb2.FilterChain(
            name=f"tls/{secret}",
            filter_chain_match=_sni(sorted(names)),
            filters=[_traffic(settings)],
            transport_socket=server_transport(secret),
        )
        for secret, names in sorted(hosts.items())
    ]


def _sni(hosts: list[str]) -> listener_components_pb2.FilterChainMatch:
    made = listener_components_pb2.FilterChainMatch(transport_protocol="tls")
    if "*" not in hosts:  # else for every name without a chain of its own
        made.server_names.extend(hosts)
    return made


def _listener(
    name: str, settings: Settings, port: int, chains: list[listener_components_pb2.FilterChain]
) -> listener_pb2.Listener:
    made = listener_pb2.Listener(
        name=name,
        address=socket_address(settings.host, port),
        filter_chains=chains,
        per_connection_buffer_limit_bytes=wrappers_pb2.UInt32Value(value=_BUFFER_BYTES),
        enable_reuse_port=wrappers_pb2.BoolValue(value=True),
        socket_options=list(_probed()),
    )
    if any(chain.filter_chain_match.transport_protocol for chain in chains):
        made.listener_filters.add(
            name="envoy.filters.listener.tls_inspector", typed_config=envoy.packed(tls_inspector_pb2.TlsInspector())
        )
        for chain in chains:
            if chain.name == "plain":
                chain.filter_chain_match.transport_protocol = "raw_buffer"
    return made


def _probed() -> Iterable[socket_option_pb2.SocketOption]:
    """TCP keep-alive, inherited by accepted connections: dead clients are detected within two minutes."""
    for level, name, value in (
        (_SOL_SOCKET, _SO_KEEPALIVE, 1),
        (_TCP, _IDLE, 60),
        (_TCP, _INTERVAL, 15),
        (_TCP, _COUNT, 4),
    ):
        yield socket_option_pb2.SocketOption(level=level, name=name, int_value=value)


def _entry(settings: Settings) -> listener_pb2.Listener:
    chain = listener_components_pb2.FilterChain(
        name="peers",
        filters=[connection_manager(envoy.ENTRY, envoy.ENTRY_ROUTES, (), settings, entry=True)],
        transport_socket=entry_transport(settings),
    )
    return _listener(envoy.ENTRY, settings, settings.entry_port, [chain])
