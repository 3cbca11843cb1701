"""Forwards host ports to ports of pods while the agent runs; ``open`` of a later run restores them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from shoal.base.logs import get_logger
from shoal.node.proxy.model import ListenAddress, ProxyBackend, ProxyListener
from shoal.node.proxy.tcp import TcpRelay
from shoal.node.proxy.udp import UdpRelay
from shoal.node.runtime.model import CreateFailure, PortMapping, Sandbox

log = get_logger("node.process.hostports")


class HostPorts:
    """The open host ports of all sandboxes."""

    def __init__(self, host_address: str) -> None:
        self._host_address = host_address
        self._open: dict[str, list[TcpRelay | UdpRelay]] = {}

    async def open(self, sandbox: Sandbox, ports: Iterable[PortMapping], *, strict: bool) -> None:
        """Open the host ports of a sandbox. A port in use is a ``CreateFailure``; without ``strict`` it is skipped."""
        for port in ports:
            if not port.host_port:
                continue
            address = port.host_ip if port.host_ip not in ("", "0.0.0.0") else self._host_address
            place = ListenAddress(port.protocol, address, port.host_port)
            backend = ProxyBackend(sandbox.addresses[0], port.container_port)
            relay = (UdpRelay if port.protocol == "UDP" else TcpRelay)(ProxyListener(place=place, backends=(backend,)))
            try:
                await relay.open(place.port)
            except OSError as error:
                message = f"host port {place.port} ({address}) cannot be used: {error.strerror}"
                if strict:
                    raise CreateFailure(message) from error
                log.warning("a host port is not served", reason=message, pod=sandbox.name)
                continue
            self._open.setdefault(sandbox.id, []).append(relay)

    async def close(self, sandbox_id: str) -> None:
        await asyncio.gather(*(relay.close() for relay in self._open.pop(sandbox_id, ())))

    async def close_all(self) -> None:
        for sandbox_id in tuple(self._open):
            await self.close(sandbox_id)
