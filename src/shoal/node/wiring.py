"""Builds a node: its agent and its endpoints, run by one manager."""

from __future__ import annotations

import asyncio
import ssl
from typing import Protocol

from shoal.node.agent import NodeAgent, NodeAgentDeps
from shoal.node.config import NodeConfig
from shoal.node.server.service import NodeServer


class Server(Protocol):
    """An HTTPS server."""

    async def listen(self, host: str, port: int, tls: ssl.SSLContext) -> int: ...

    async def close(self) -> None: ...


class Endpoints:
    """Runs a server while its manager runs. A ``Runnable``."""

    def __init__(self, name: str, server: Server, host: str, port: int, tls: ssl.SSLContext) -> None:
        self.name = name
        self._server = server
        self._where = (host, port)
        self._tls = tls
        self._stopped = asyncio.Event()

    async def run(self) -> None:
        await self._server.listen(*self._where, self._tls)
        try:
            await self._stopped.wait()
        finally:
            await self._server.close()

    def stop(self) -> None:
        self._stopped.set()


def add(config: NodeConfig, parts: NodeAgentDeps, tls: ssl.SSLContext | None) -> NodeAgent:
    """Add a node to the manager of ``parts``. ``tls`` holds the node's certificate, trusts the authority of the API
    server's client certificate and requires one; without it the node serves nothing."""
    agent = NodeAgent(config, parts)
    parts.manager.add(agent)
    if tls is not None:
        server = NodeServer(agent, clock=parts.clock)
        parts.manager.add(Endpoints(f"{agent.name}/endpoints", server, config.addresses[0], config.port, tls))
    return agent
