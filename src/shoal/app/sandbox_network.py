"""The network of a cluster whose pods are sandboxes: what is inside, and what of this machine pods reach."""

from __future__ import annotations

from ipaddress import ip_network

from shoal.app.config import ClusterConfig
from shoal.app.sandboxes import helper_folder
from shoal.node.proxy.model import InsideNetwork, ListenAddress, ProxyBackend, ProxyListener
from shoal.node.runtime.sandbox.network import API_ADDRESS, OWN_CIDR, POD_CIDR

_EVERY_ADDRESS = ("", "0.0.0.0", "::")
_LOOPBACK = "127.0.0.1"
_DNS = 10  # the tenth address of Services, as in other clusters


def inside_network(config: ClusterConfig) -> InsideNetwork:
    return InsideNetwork(
        helper=str(helper_folder(config.dir)), local=(config.service_cidr, OWN_CIDR), api=API_ADDRESS,
        dns=dns_address(config), reverse=(config.service_cidr, OWN_CIDR, POD_CIDR), upstream=config.dns_upstream,
    )  # fmt: skip


def outside_api(config: ClusterConfig) -> tuple[ProxyListener, ...]:
    """The API server of this process: the only listener of the machine that pods reach."""
    if "apiserver" not in config.components:
        return ()
    host = _LOOPBACK if config.host in _EVERY_ADDRESS else config.host
    place = ListenAddress("TCP", API_ADDRESS, config.port)
    return (ProxyListener(place=place, backends=(ProxyBackend(host, config.port, outside=True),)),)


def dns_address(config: ClusterConfig) -> str:
    return str(ip_network(config.service_cidr)[_DNS])
