"""Networks of an engine, and whether its containers reach this machine."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import sys
from ipaddress import IPv4Network
from pathlib import Path

import pytest
from scripted_engine import ScriptedAnswer, engine_with, reply

from shoal.node.runtime.docker.config import DockerConfig
from shoal.node.runtime.docker.networks import ContainerNetwork, ensure_network, why_apart

CONFIG = DockerConfig(cluster="c", node="n")
NETWORK = {
    "Name": "shoal-c",
    "IPAM": {"Config": [{"Subnet": "10.89.3.0/24", "Gateway": "10.89.3.1"}, {"Subnet": "fd00::/64"}]},
}
FOUND = ContainerNetwork((IPv4Network("10.89.3.0/24"),), frozenset({"10.89.3.1"}))
BRIDGE = """
import subprocess, sys
from shoal.node.runtime.docker.bridge import keep_address

def ip(*words):
    return subprocess.run(["busybox", "ip", *words], check=True, capture_output=True, text=True).stdout

def attach(name, address):
    ip("link", "add", "name", name, "type", "veth")
    ip("link", "set", name, "address", address)
    ip("link", "set", name, "master", "bridge")
    ip("link", "set", name, "up")
    return ip("-o", "link", "show", "bridge").split("link/ether ")[1].split()[0]

ip("link", "add", "name", "bridge", "type", "bridge")
ip("address", "add", "10.89.3.1/24", "dev", "bridge")
ip("link", "set", "bridge", "up")
first = attach("a", "0e:00:00:00:00:09")
keep_address(sys.argv[1:])
print(first, attach("b", "0e:00:00:00:00:01"))
"""
LISTEN = """
import os, socket, sys
if sys.argv[2]:
    os.chdir(os.path.dirname(sys.argv[1]))
    sys.argv[1] = os.path.basename(sys.argv[1])
    os.setuid(int(sys.argv[2]))
server = socket.socket(socket.AF_UNIX)
server.bind(sys.argv[1])
server.listen()
print("ready", flush=True)
sys.stdin.read()
"""


async def test_the_network_is_made_once_and_its_subnets_are_known() -> None:
    async with engine_with({"GET /networks/shoal-c": reply(NETWORK)}) as (engine, asked):
        assert await ensure_network(engine, CONFIG) == FOUND
        assert [each.split()[0] for each in asked.requests] == ["GET"]


async def test_a_network_that_is_missing_is_created() -> None:
    async def created(line: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers["GET /networks/shoal-c"] = reply(NETWORK)
        writer.write(reply({"Id": "1"}, 201))

    missing = reply({"message": "no such network"}, 404)
    answers: dict[str, bytes | ScriptedAnswer] = {"GET /networks/shoal-c": missing, "POST /networks/create": created}
    async with engine_with(answers) as (engine, _):
        assert await ensure_network(engine, CONFIG) == FOUND


@pytest.mark.parametrize(("gateways", "stays"), [(("10.89.3.1", "10.89.9.1"), True), (("10.89.9.1",), False)])
def test_a_bridge_keeps_its_hardware_address_when_containers_come(gateways: tuple[str, ...], stays: bool) -> None:
    if os.geteuid() != 0 or not shutil.which("unshare") or not shutil.which("busybox"):
        pytest.skip("a bridge in a network of its own takes root and busybox")
    command = ["unshare", "--net", "--", sys.executable, "-c", BRIDGE, *gateways]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    before, after = done.stdout.split()
    assert (before == after) is stays, "the lowest address of its ports, unless one is set"


def test_an_engine_of_root_in_this_network_is_reached_and_others_are_not(tmp_path: Path) -> None:
    if os.geteuid() != 0 or not shutil.which("unshare"):
        pytest.skip("processes of another user and in another network take root")
    assert "does not answer" in why_apart(str(tmp_path / "none"))
    with socket.socket(socket.AF_UNIX) as own:
        own.bind(str(tmp_path / "own"))
        own.listen()
        assert why_apart(str(tmp_path / "own")) == ""
    tmp_path.chmod(0o777)
    for prefix, user, expected in ((["unshare", "--net", "--"], "", "another network"), ([], "65534", "rootless")):
        path = str(tmp_path / (user or "apart"))
        command = [*prefix, sys.executable, "-c", LISTEN, path, user]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as listener:
            assert listener.stdout is not None and listener.stdout.readline() == "ready\n"
            assert expected in why_apart(path)
            assert listener.stdin is not None
            listener.stdin.close()
