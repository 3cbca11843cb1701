"""A service proxy in the network of a node's sandboxes, and programs that try to connect."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from sandbox_nodes import SandboxNode

from shoal.base.clock import RealClock
from shoal.base.metrics import Metrics
from shoal.base.tasks import cancel_all
from shoal.node.proxy.metrics import ProxyMetrics
from shoal.node.proxy.model import InsideNetwork, ListenAddress, ProxyBackend, ProxyListener
from shoal.node.proxy.process import ProxyProcess, end_proxy

DNS, API = "10.96.0.10", "10.97.0.1"

SERVE = r"""
import socket, sys, threading
port = int(sys.argv[1])
datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
datagrams.bind(("0.0.0.0", port))
def echo():
    while True:
        data, client = datagrams.recvfrom(9000)
        datagrams.sendto(b"got " + data, client)
threading.Thread(target=echo, daemon=True).start()
server = socket.create_server(("0.0.0.0", port))
print("ready", flush=True)
while True:
    made, client = server.accept()
    made.sendall(f"hello {client[0]}".encode())
    made.close()
"""

# words: protocol:address:port ...
TRY = r"""
import socket, sys
for word in sys.argv[1:]:
    protocol, address, port = word.split(":")
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM if protocol == "tcp" else socket.SOCK_DGRAM)
    made.settimeout(0.4)
    try:
        made.connect((address, int(port)))
        if protocol == "udp":
            made.send(b"x")
        print("reached" if made.recv(100) else "closed")
    except socket.timeout:
        print("silent")
    except OSError:
        print("refused")
"""

# words: the own address, the address to pretend, the target: a UDP packet written whole
SPOOF = r"""
import socket, struct, sys
_, lie, target, port = sys.argv[1:]
raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
body = struct.pack(">HHHH", 999, int(port), 8 + 3, 0) + b"lie"
for source in (lie, sys.argv[1]):
    head = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(body), 1, 0, 64, 17, 0, socket.inet_aton(source), socket.inet_aton(target))
    raw.sendto(head + body, (target, 0))
print("sent")
"""
HEAR = r"""
import socket, sys
made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
made.bind(("0.0.0.0", int(sys.argv[1])))
print("ready", flush=True)
while True:
    print("from", made.recvfrom(100)[1][0], flush=True)
"""


def listener(protocol: str, address: str, port: int, *backends: tuple[str, int], **more: Any) -> ProxyListener:
    found = tuple(ProxyBackend(*each) for each in backends)
    return ProxyListener(place=ListenAddress(protocol, address, port), backends=found, **more)


@asynccontextmanager
async def service_proxy(node: SandboxNode) -> AsyncIterator[ProxyProcess]:
    """The proxy process of a cluster, ended at the end."""
    folder = node.machine.helper.parent / "proxy"
    inside = InsideNetwork(
        helper=str(node.machine.helper), local=("10.96.0.0/16", "10.97.0.0/24"), api=API, dns=DNS,
        reverse=("10.96.0.0/16",),
    )  # fmt: skip
    made = ProxyProcess(folder, clock=RealClock(), metrics=ProxyMetrics(Metrics()), inside=inside)
    running = asyncio.create_task(made.run())
    try:
        yield made
    finally:
        await cancel_all(running)
        await made.release()
        await end_proxy(folder, clock=RealClock())
