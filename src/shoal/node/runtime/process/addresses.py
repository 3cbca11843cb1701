"""Addresses of a cluster whose nodes are this machine: a /16 of the loopback network per cluster.

Nodes of another API server may need a /16 elsewhere: Kubernetes refuses loopback addresses in EndpointSlices. The
administrator makes such a network local to the machine, and names it; then 127.N is A.B below.

    127.N.0.x            nodes
    127.N.1.0 ... 127.255  pods; a node takes blocks of 254, each a file in the cluster's folder that names the node
    127.N.128.0/17       services

Containers have a loopback interface of their own, so clusters of containers have a private network instead, where the
machine can make it local (``base.local_routes``):

    10.N.0.x             nodes
    10.N.1.1             the API server
    10.N.128.0/17        services; pods have addresses of the engine's network

``claim_network`` chooses N at the first start of the cluster and writes it to the cluster's folder. A registry folder
that all clusters of a user share maps each N to its cluster; the N of a deleted cluster is free again. Clusters of
other users are detected only while they run: by their listening sockets, or because their network is local.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import socket
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path
from typing import Protocol

from shoal.base.files import create_private, link_to, make_private_dirs, own_private_dir, write_private
from shoal.base.local_routes import is_local
from shoal.errors import ConfigError
from shoal.node.runtime.model import CreateFailure

_NUMBERS = range(2, 255)  # 127.0 is shared by all programs, 127.1 is common in examples
_PRIVATE_NUMBERS = range(48, 88)  # below and above are defaults of engines, clouds and other local clusters
_LOOPBACK, _PRIVATE = 127, 10
_POD_BLOCKS = range(1, 128)
_HOSTS = range(1, 255)
_FILE = "network"


@dataclass(frozen=True, slots=True)
class Network:
    """The addresses of one cluster. Its nodes record in ``folder`` which ones they have."""

    number: int
    folder: Path
    first: int = _LOOPBACK

    @property
    def reaches_containers(self) -> bool:
        """Whether containers reach these addresses, when the machine has made them local."""
        return self.first != _LOOPBACK

    @property
    def cidr(self) -> str:
        return f"{self._prefix}.0.0/16"

    @property
    def pod_cidr(self) -> str:
        return f"{self._prefix}.0.0/17"

    @property
    def service_cidr(self) -> str:
        return f"{self._prefix}.128.0/17"

    @property
    def balancer_cidr(self) -> str:
        """Addresses of this machine for Services of pods that have a network of their own."""
        return f"{self._prefix}.128.0/17"

    @property
    def api_address(self) -> str:
        """Where nodes and pods reach the API server."""
        return f"{self._prefix}.1.1" if self.reaches_containers else "127.0.0.1"

    @property
    def _prefix(self) -> str:
        return f"{self.first}.{self.number}"

    def node_address(self, node: str) -> str:
        """The address of a node, assigned once."""
        for host in _HOSTS:
            if self._take(f"node-{host}", node):
                return f"{self._prefix}.0.{host}"
        raise ConfigError(f"the cluster's network {self.cidr} has no free address for node {node}")

    def blocks(self, node: str) -> list[int]:
        """The blocks of pod addresses assigned to a node."""
        return [block for block in _POD_BLOCKS if self._owner(f"pods-{block}") == node]

    def take_block(self, node: str) -> int:
        for block in _POD_BLOCKS:
            if self._owner(f"pods-{block}") is None and self._take(f"pods-{block}", node):
                return block
        raise CreateFailure(f"no free pod address in {self.pod_cidr}")

    def pod_address(self, block: int, host: int) -> str:
        return f"{self._prefix}.{block}.{host}"

    def _owner(self, name: str) -> str | None:
        try:
            return (self.folder / "addresses" / name).read_text()
        except FileNotFoundError:
            return None

    def _take(self, name: str, node: str) -> bool:
        """Assign an address or block to a node if it is free. Return whether the node has it."""
        path = self.folder / "addresses" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return create_private(path, node.encode()) or path.read_text() == node


def claim_network(
    folder: Path, wanted: str = "", *, registry: Path | None = None, apart_from: Iterable[IPv4Network] | None = None
) -> Network:
    """The network of the cluster in ``folder``; the first call chooses it, or takes the /16 that is ``wanted``. With
    ``apart_from`` it chooses a private one that overlaps none of these."""
    make_private_dirs(folder)
    folder = folder.resolve()
    with _registry(registry or Path(tempfile.gettempdir()) / f"shoal-networks-{os.getuid()}") as known:
        before = network_of(folder)
        found = _checked(wanted, before, folder) if wanted else before
        if found is not None:
            other = _holder(known / _entry(found), found)
            if other is not None and other != folder:
                raise ConfigError(
                    f"network {found.cidr} of the cluster in {folder} is in use by the cluster in {other}; "
                    f"start from another directory, or delete {folder / _FILE} if this cluster has no data to keep"
                )
        else:
            found = _free(folder, known, apart_from)
        if before is None:
            write_private(folder / _FILE, f"{found.cidr}\n".encode())
        link_to(known / _entry(found), folder)
    return found


def _checked(wanted: str, found: Network | None, folder: Path) -> Network:
    """The network that is asked for, if nodes can have addresses of it on this machine."""
    network = _parsed(wanted, folder)
    if network is None:
        raise ConfigError(f"node.network is {wanted!r}: use a /16 network such as 10.207.0.0/16")
    if found is not None and found != network:
        raise ConfigError(
            f"node.network is {wanted!r}, but the nodes in {folder} have addresses of {found.cidr}; use "
            "another directory"
        )
    with socket.socket() as probe:
        try:
            probe.bind((str(IPv4Network(network.cidr)[1]), 0))
        except OSError as error:
            raise ConfigError(
                f"node.network is {wanted!r}, which is not local to this machine ({error.strerror}); make it so as "
                f"root: ip route add local {wanted} dev lo"
            ) from error
    return network


@contextmanager
def _registry(path: Path) -> Iterator[Path]:
    """The registry of all clusters' networks, locked."""
    own_private_dir(path, f"the list of clusters' networks is {str(path)!r}")
    lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield path
    finally:
        os.close(lock)


def network_of(folder: Path) -> Network | None:
    """The network of the cluster in this folder; None if it has none yet."""
    path = folder / _FILE
    if not path.exists():
        return None
    text = path.read_text().strip()
    found = _parsed(text, folder)
    if found is None:
        raise ConfigError(f"{path} has {text!r}: expected a /16 network, such as 127.5.0.0/16")
    return found


def _parsed(text: str, folder: Path) -> Network | None:
    try:
        network = IPv4Network(text)
    except ValueError:
        return None
    first, second, *_ = network.network_address.packed
    if network.prefixlen != 16 or first in (0, *range(224, 256)) or (first == _LOOPBACK and second not in _NUMBERS):
        return None
    return Network(second, folder, first)


def _entry(network: Network) -> str:
    """The name of a network in the registry; of loopback networks as earlier versions wrote it."""
    return f"{network.first}.{network.number}" if network.reaches_containers else str(network.number)


def _holder(link: Path, network: Network) -> Path | None:
    """The folder of the cluster that uses the network; None if that cluster was deleted."""
    try:
        folder = Path(os.readlink(link))
        found = network_of(folder)
    except (OSError, ConfigError):
        return None
    return folder if found is not None and found.cidr == network.cidr else None


def _free(folder: Path, known: Path, apart_from: Iterable[IPv4Network] | None) -> Network:
    private = apart_from is not None
    numbers, first = (_PRIVATE_NUMBERS, _PRIVATE) if private else (_NUMBERS, _LOOPBACK)
    busy = set() if private else _busy_numbers()
    taken = tuple(apart_from or ())
    begin = int.from_bytes(hashlib.sha256(bytes(folder)).digest()[:4], "big")
    for step in range(len(numbers)):
        network = Network(numbers[(begin + step) % len(numbers)], folder, first)
        if network.number in busy or _holder(known / _entry(network), network) is not None:
            continue
        left = (known / _entry(network)).is_symlink()  # of a deleted cluster, whose route may be left too
        if private and _is_taken(network, taken, left=left):
            continue
        return network
    what = "private networks of containers" if private else "loopback networks"
    raise ConfigError(f"all {what} are in use by other clusters; delete some of them: {known} links to their folders")


def _is_taken(network: Network, taken: Iterable[IPv4Network], *, left: bool) -> bool:
    own = IPv4Network(network.cidr)
    return any(own.overlaps(each) for each in taken) or (is_local(own[1]) and not left)


def _busy_numbers() -> set[int]:
    """Networks in which any program of this machine listens."""
    found: set[int] = set()
    try:
        lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    except OSError:
        return found
    for line in lines:
        address = int(line.split()[1].partition(":")[0], 16).to_bytes(4, "little")
        if address[0] == 127:
            found.add(address[1])
    return found


class Blocks(Protocol):
    """The addresses of a cluster's pods, in blocks that nodes take."""

    def blocks(self, node: str) -> list[int]: ...

    def take_block(self, node: str) -> int: ...

    def pod_address(self, block: int, host: int) -> str: ...


class PodAddresses:
    """The pod addresses of one node. The address released longest ago is reused first."""

    def __init__(self, network: Blocks, node: str) -> None:
        self._network = network
        self._node = node
        self._blocks: list[int] = []
        self._used: set[str] = set()
        self._next = 0

    def open(self, used: Iterable[str]) -> None:
        self._blocks = self._network.blocks(self._node)
        self._used = set(used)

    def take(self) -> str:
        """Allocate a free address."""
        if len(self._used) >= len(self._blocks) * len(_HOSTS):
            self._blocks.append(self._network.take_block(self._node))
        size = len(self._blocks) * len(_HOSTS)
        for step in range(size):
            at = (self._next + step) % size
            block, host = self._blocks[at // len(_HOSTS)], _HOSTS[at % len(_HOSTS)]
            address = self._network.pod_address(block, host)
            if address not in self._used:
                self._used.add(address)
                self._next = at + 1
                return address
        raise CreateFailure(f"no free pod address on node {self._node}")

    def give_back(self, address: str) -> None:
        self._used.discard(address)
