"""Local ranges of addresses, in a network namespace of their own: the machine's routes stay as they are."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from shoal.base.local_routes import is_local, routed_networks

ROUTES = """\
Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0
eth0\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0
br-1\t0000590A\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0
"""
PROGRAM = """
import fcntl, os, socket, struct
from ipaddress import IPv4Network
from shoal.base.local_routes import add_local, is_local, may_change_routes, remove_local

with socket.socket() as any_socket:  # the loopback interface of a new namespace is down
    fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh14x", b"lo", 1))
network = IPv4Network("10.77.0.0/16")
assert may_change_routes() and not is_local(network[300])
add_local(network)
add_local(network)
server = socket.create_server((str(network[300]), 0))
client = socket.create_connection(server.getsockname())
assert client.getsockname()[0] == str(network[300]), "clients of this machine come from the range"
remove_local(network)
remove_local(network)
assert not is_local(network[300])
os.setuid(65534)
assert not may_change_routes()
try:
    add_local(network)
except PermissionError as error:
    assert "10.77.0.0/16" in str(error)
else:
    raise AssertionError("without the right")
"""


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="a network namespace takes root")
def test_a_range_is_this_machines_until_it_is_taken_back() -> None:
    command = ["unshare", "--net", "--", sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr


def test_the_routes_of_the_machine_without_the_default(tmp_path: Path) -> None:
    path = tmp_path / "route"
    path.write_text(ROUTES)
    assert list(routed_networks(str(path))) == [IPv4Network("192.0.2.0/24"), IPv4Network("10.89.0.0/16")]
    assert list(routed_networks(str(tmp_path / "none"))) == []
    assert is_local(IPv4Network("127.0.0.0/8")[7])
