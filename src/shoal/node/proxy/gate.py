"""What NetworkPolicies allow, for connections that the proxy makes: to the kernel they come from the node."""

from __future__ import annotations

from shoal.node.policy.model import Rules
from shoal.node.proxy.model import ListenAddress, ProxyBackend


class Gate:
    """Without rules everything is allowed. ``outside`` is the address by which policies know what is outside: the API
    server."""

    def __init__(self) -> None:
        self.rules = Rules()
        self.outside = ""

    def allows(self, client: str, place: ListenAddress, backend: ProxyBackend) -> bool:
        """Clients on this machine are the node, which policies do not concern."""
        if place.outside:
            return True
        target = (self.outside or place.address) if backend.outside else backend.address
        return self.rules.allow(client, target, place.protocol, backend.port)
