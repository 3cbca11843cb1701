"""Messages between a cluster's process and its proxy process: lines of JSON over a Unix socket in the proxy's folder.

    ["hello"]                 ──▶ {"version": 2}
    ["share", cidr, [client, …]] ──▶ {}       makes it local until the process ends; accepts only these clients there
    ["inside", network]       ──▶ {}          listens in the network of sandboxes, and answers DNS there
    ["name", [namespace, name], names] ──▶ {} a Service has these names; null: it is gone
    ["keep_names", [[namespace, name], …]] ──▶ {}   forgets all others
    ["rules", rules]          ──▶ {}, or {"errno": 2, "error": "…"} if the kernel does not enforce them
    ["open", listener]        ──▶ {"port": 80}, or {"errno": 98, "error": "…"}; one that is open gets its backends
    ["close", place]          ──▶ {}
    ["keep", [place, …]]      ──▶ {}          closes all others
    ["counts"]                ──▶ {"listeners": 3, "connections": 1, "accepted": 99, "failed": 0}
    ["end"]                   ──▶ {}          and the process ends

Answers come in the order of the questions.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from shoal.node.proxy.model import InsideNetwork, ListenAddress, ProxyBackend, ProxyListener

VERSION = 3  # a running proxy of another version is replaced
SOCKET = "proxy.sock"
LOCK = "proxy.lock"  # held by the running proxy, with its pid
MAX_BYTES = 16 << 20  # of one message


def pack_place(place: ListenAddress) -> list[Any]:
    return [place.protocol, place.address, place.port]


def unpack_place(packed: list[Any]) -> ListenAddress:
    return ListenAddress(*packed)


def pack(listener: ProxyListener) -> list[Any]:
    backends = [[each.address, each.port, each.outside] for each in listener.backends]
    return [pack_place(listener.place), backends, listener.affinity_s, listener.node_port]


def unpack(packed: list[Any]) -> ProxyListener:
    place, backends, affinity_s, node_port = packed
    return ProxyListener(
        place=unpack_place(place),
        backends=tuple(ProxyBackend(*each) for each in backends),
        affinity_s=affinity_s,
        node_port=node_port,
    )


def pack_inside(network: InsideNetwork) -> dict[str, Any]:
    return asdict(network)


def unpack_inside(packed: dict[str, Any]) -> InsideNetwork:
    lists = {name: tuple(packed[name]) for name in ("local", "reverse")}
    return InsideNetwork(**{**packed, **lists})
