"""Networks of the engine, and whether addresses of this machine can be reached from them.

A container sends what is not for its own network to the bridge, which is an interface of the machine, so it reaches
whatever is local there. That holds if the engine runs as root in the network namespace of this process: a rootless
engine, or one in a virtual machine, has its bridges elsewhere.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Network
from typing import Any

from shoal.base.clock import Clock
from shoal.node.runtime.docker import bodies
from shoal.node.runtime.docker.config import DockerConfig, find_socket
from shoal.node.runtime.docker.engine import Engine, EngineError
from shoal.node.runtime.model import RuntimeFailure

_CHECK_S = 10.0
_CREDENTIALS = "3i"
_OWN = "self"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineNetworks:
    """``own``: the subnets of a cluster's network. ``every``: those of all networks of the engine. ``apart``: why its
    containers do not reach this machine's addresses; empty if they do."""

    own: tuple[IPv4Network, ...]
    every: tuple[IPv4Network, ...]
    apart: str = ""


async def look_at_networks(config: DockerConfig, *, clock: Clock, environ: Mapping[str, str]) -> EngineNetworks:
    """Create the cluster's network if it is missing. Raises ``RuntimeFailure``, with what to do, if none answers."""
    path = find_socket(config, environ, os.path.exists)
    engine = Engine(path, clock=clock, request_s=_CHECK_S)
    try:
        await engine.negotiate()
        own = await ensure_network(engine, config)
        every = await engine.json("GET", "networks")
    finally:
        engine.close()
    return EngineNetworks(own=own.subnets, every=_subnets(every or ()), apart=why_apart(path))


@dataclass(frozen=True, slots=True)
class ContainerNetwork:
    """A network of the engine: its IPv4 subnets, and the addresses of its bridge in them."""

    subnets: tuple[IPv4Network, ...]
    gateways: frozenset[str]


async def ensure_network(engine: Engine, config: DockerConfig) -> ContainerNetwork:
    """The cluster's network, which is created if it is missing."""
    name = config.network_name
    with suppress(EngineError):
        return _read(await engine.json("GET", "networks", name))
    try:
        await engine.json("POST", "networks", "create", body=bodies.network_body(config))
    except EngineError as error:
        if error.status != 409:  # another node has created it
            raise RuntimeFailure(f"creating the network {name} failed: {error}") from error
    return _read(await engine.json("GET", "networks", name))


def why_apart(path: str) -> str:
    """Why containers of the engine at this socket do not reach this machine's addresses; empty if they do."""
    with socket.socket(socket.AF_UNIX) as trial:
        try:
            trial.connect(path)
        except OSError as error:
            return f"the container engine does not answer: {error.strerror}"
        size = struct.calcsize(_CREDENTIALS)
        pid, user, _ = struct.unpack(_CREDENTIALS, trial.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    if user != 0:
        return "the container engine is rootless or in a virtual machine, apart from this machine's network"
    try:
        same = _network_of(str(pid)) == _network_of(_OWN)
    except OSError:
        return "the container engine's network cannot be looked at, which takes root on the machine of the engine"
    return "" if same else "the container engine is in another network namespace than this process"


def _network_of(process: str) -> str:
    return os.readlink(f"/proc/{process}/ns/net")


def _read(network: Mapping[str, Any]) -> ContainerNetwork:
    gateways = (each.get("Gateway") or "" for each in _configs(network))
    return ContainerNetwork(_subnets([network]), frozenset(each for each in gateways if each))


def _subnets(networks: Iterable[Mapping[str, Any]]) -> tuple[IPv4Network, ...]:
    texts = [each.get("Subnet") or "" for network in networks for each in _configs(network)]
    return tuple(IPv4Network(text, strict=False) for text in texts if text and ":" not in text)


def _configs(network: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return (network.get("IPAM") or {}).get("Config") or ()
