"""The node's HTTPS endpoints: an agent on a simulated runtime, real TLS, and a client in place of the API server."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path
from random import Random
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from shoal.base import websocket as ws
from shoal.base.clock import FakeClock
from shoal.base.ids import Ids
from shoal.client import Client
from shoal.node.agent import NodeAgent, NodeAgentDeps
from shoal.node.config import EvictionConfig, NodeConfig
from shoal.node.node_object import MachineInfo as Identity
from shoal.node.server.service import API_SERVER, NodeServer
from shoal.reconcile import EventRecorder, Manager
from shoal.testing.seeded import seeded_bytes
from shoal.testing.servers import LocalServer, local_server
from shoal.testing.simulated_runtime import Machine, Program, SimulatedConfig, SimulatedRuntime
from shoal.testing.waiting import eventually

PODS = "/api/v1/namespaces/default/pods"


API_SERVER_NAMES = (API_SERVER.common_name, API_SERVER.organization)


class Authority:
    """Certificates for both sides."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ca")])
        self._write("ca", self._sign(self._name, self._key.public_key(), ca=True), self._key)

    def _sign(self, subject: x509.Name, key: ec.EllipticCurvePublicKey, *, ca: bool = False) -> x509.Certificate:
        now = datetime.now(UTC)
        address = x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))])
        builder = x509.CertificateBuilder().subject_name(subject).issuer_name(self._name).public_key(key)
        builder = builder.serial_number(x509.random_serial_number()).not_valid_before(now - timedelta(days=1))
        builder = builder.not_valid_after(now + timedelta(days=1)).add_extension(address, critical=False)
        builder = builder.add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        if ca:
            usage = x509.KeyUsage(
                digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False,
                key_encipherment=False, data_encipherment=False, key_agreement=False, encipher_only=False,
                decipher_only=False,
            )  # fmt: skip
            builder = builder.add_extension(usage, critical=True)
        return builder.sign(self._key, hashes.SHA256())

    def _write(self, name: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        (self._folder / f"{name}.crt").write_bytes(certificate.public_bytes(Encoding.PEM))
        text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        (self._folder / f"{name}.key").write_bytes(text)

    def context(self, name: str, *groups: str, server: bool = False) -> ssl.SSLContext:
        key = ec.generate_private_key(ec.SECP256R1())
        organizations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        subject = x509.Name([*organizations, x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._write(name, self._sign(subject, key.public_key()), key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
        context.load_cert_chain(self._folder / f"{name}.crt", self._folder / f"{name}.key")
        context.load_verify_locations(self._folder / "ca.crt")
        context.verify_mode = ssl.CERT_REQUIRED
        return context


class Kubelet:
    """A client of the node's endpoints."""

    def __init__(self, api: LocalServer, port: int, tls: ssl.SSLContext, clock: FakeClock, agent: NodeAgent) -> None:
        self.api, self.port, self.tls, self.clock, self.agent = api, port, tls, clock, agent

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port, ssl=self.tls)

    async def get(self, target: str) -> tuple[int, bytes]:
        reader, writer = await self.open()
        try:
            writer.write(f"GET {target} HTTP/1.1\r\nhost: node\r\nconnection: close\r\n\r\n".encode())
            head, body = (await asyncio.wait_for(reader.read(), 10)).split(b"\r\n\r\n", 1)
            if b"chunked" in head:
                body = b"".join(body.split(b"\r\n")[1::2])
            return int(head.split()[1]), body
        finally:
            writer.close()

    async def upgrade(self, target: str, protocol: str) -> WebSocket:
        reader, writer = await self.open()
        key = base64.b64encode(bytes(16)).decode()
        head = f"GET {target} HTTP/1.1\r\nhost: node\r\nconnection: Upgrade\r\nupgrade: websocket\r\n"
        head += f"sec-websocket-version: 13\r\nsec-websocket-key: {key}\r\nsec-websocket-protocol: {protocol}\r\n\r\n"
        writer.write(head.encode())
        answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
        assert b" 101 " in answer, answer
        assert ws.accept_key(key).encode() in answer
        return WebSocket(reader, writer, protocol.split(",")[0])

    async def create(self, name: str, script: str, **container: Any) -> None:
        made = {"name": "c", "image": "busybox:1", "command": ["sh", "-c", script], **container}
        spec = {"nodeName": "node-1", "automountServiceAccountToken": False, "containers": [made]}
        await self.api.post(PODS, {"metadata": {"name": name}, "spec": spec})

        async def runs() -> bool:
            statuses = (await self.api.get(f"{PODS}/{name}"))["status"].get("containerStatuses") or ()
            return any("running" in each["state"] or each["restartCount"] for each in statuses)

        await eventually(runs)


class WebSocket:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, protocol: str) -> None:
        self._reader, self._writer, self._protocol = reader, writer, protocol
        self._decoder = ws.Decoder(server=False)
        self._messages: list[ws.Message] = []

    def send(self, channel: int, data: bytes) -> None:
        self._writer.write(ws.encode_channel(channel, data, self._protocol, mask=b"abcd"))

    def ping(self) -> None:
        self._writer.write(ws.encode(ws.Opcode.PING, b"there?", mask=b"abcd"))

    async def message(self) -> ws.Message:
        while not self._messages:
            data = await asyncio.wait_for(self._reader.read(65536), 10)
            assert data, "the connection was closed"
            self._messages += self._decoder.feed(data)
        return self._messages.pop(0)

    async def next(self) -> tuple[int, bytes]:
        return ws.decode_channel(await self.message(), self._protocol)

    async def rest(self) -> tuple[dict[int, bytes], int]:
        """All that comes by channel, and the code of the close frame."""
        found: dict[int, bytes] = {}
        while True:
            message = await self.message()
            if message.opcode is ws.Opcode.CLOSE:
                self._writer.close()
                return found, message.close_code
            channel, data = ws.decode_channel(message, self._protocol)
            found[channel] = found.get(channel, b"") + data

    def close(self) -> None:
        self._writer.close()


@asynccontextmanager
async def a_kubelet(folder: Path) -> AsyncIterator[tuple[Kubelet, Authority]]:
    clock, authority = FakeClock(), Authority(folder)
    async with local_server(clock=clock) as server:
        client = Client(server.transport, clock=clock)
        manager = Manager(client, clock=clock, random=Random(1).random)
        ids = Ids(seeded_bytes(1))
        recorder = EventRecorder(client, "kubelet", "node-1", clock=clock, new_suffix=ids.new_suffix)
        programs = {"busybox:1": Program(cpu_milli=250, memory_bytes=5 << 20)}
        runtime = SimulatedRuntime(SimulatedConfig(programs=programs), clock=clock, machine=Machine())
        parts = NodeAgentDeps(
            manager=manager, runtime=runtime, recorder=recorder, clock=clock, random=Random(1).random,
            machine=Identity(machine_id="m", boot_id="b"),
        )  # fmt: skip
        config = NodeConfig(name="node-1", root=folder / "node", eviction=EvictionConfig(disk_available_part=0))
        agent = NodeAgent(config, parts)
        manager.add(recorder)
        manager.add(agent)
        task = asyncio.create_task(manager.run(), name="node")
        await agent.ready.wait()
        endpoints = NodeServer(agent, clock=clock)
        port = await endpoints.listen("127.0.0.1", 0, authority.context("node", server=True))
        try:
            yield Kubelet(server, port, authority.context(*API_SERVER_NAMES), clock, agent), authority
        finally:
            await endpoints.close()
            manager.stop()
            await task
            await runtime.halt()


@asynccontextmanager
async def kubelet_alone(tmp_path: Path) -> AsyncIterator[Kubelet]:
    async with a_kubelet(tmp_path) as (kubelet, _):
        yield kubelet


async def test_only_the_api_server_is_let_in(tmp_path: Path) -> None:
    async with a_kubelet(tmp_path) as (kubelet, authority):
        assert await kubelet.get("/healthz") == (200, b"ok")
        user, group = API_SERVER_NAMES
        for names in (("somebody",), (user,), (user, "dev"), ("somebody", group), (user, group, "dev"), (group, user)):
            kubelet.tls = authority.context(*names)
            assert (await kubelet.get("/healthz"))[0] == 403, names
        kubelet.tls = ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))
        with pytest.raises((ssl.SSLError, ConnectionError, ValueError)):
            await kubelet.get("/healthz")


async def test_logs_in_all_forms(tmp_path: Path) -> None:
    async with kubelet_alone(tmp_path) as kubelet:
        await kubelet.create("a", "echo one; echo two >&2; sleep 10; echo three; sleep inf")
        path = "/containerLogs/default/a/c"
        await kubelet.clock.advance(10)

        async def written() -> bool:
            return (await kubelet.get(path)) == (200, b"one\ntwo\nthree\n")

        await eventually(written)
        assert (await kubelet.get(f"{path}?tailLines=1"))[1] == b"three\n"
        assert (await kubelet.get(f"{path}?sinceSeconds=5"))[1] == b"three\n"
        assert (await kubelet.get(f"{path}?limitBytes=5"))[1] == b"one\nt"
        assert (await kubelet.get(f"{path}?stream=Stderr"))[1] == b"two\n"
        stamped = (await kubelet.get(f"{path}?timestamps=true&tailLines=1"))[1]
        assert stamped == b"2024-01-01T00:00:10.000000000Z three\n"
        assert (await kubelet.get(f"{path}?tailLines=x"))[0] == 400
        assert (await kubelet.get("/containerLogs/default/a/other"))[0] == 404
        assert (await kubelet.get("/containerLogs/default/nobody/c"))[0] == 404
        status, body = await kubelet.get(f"{path}?previous=true")
        assert (status, body) == (400, b'previous terminated container "c" in pod "a" not found')


async def test_a_followed_log_comes_line_by_line_and_ends_with_the_container(tmp_path: Path) -> None:
    async with kubelet_alone(tmp_path) as kubelet:
        await kubelet.create("a", "echo one; sleep 5; echo two; exit 0")
        reader, writer = await kubelet.open()
        writer.write(b"GET /containerLogs/default/a/c?follow=true HTTP/1.1\r\nhost: node\r\n\r\n")
        await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
        assert await asyncio.wait_for(reader.readuntil(b"one\n\r\n"), 10) == b"4\r\none\n\r\n"
        await kubelet.clock.advance(5)
        assert await asyncio.wait_for(reader.readuntil(b"0\r\n\r\n"), 10) == b"4\r\ntwo\n\r\n0\r\n\r\n"
        writer.close()


async def test_the_log_of_the_run_before(tmp_path: Path) -> None:
    async with kubelet_alone(tmp_path) as kubelet:
        await kubelet.create("a", "echo once; exit 1")

        async def twice() -> bool:
            return (await kubelet.get("/containerLogs/default/a/c?previous=true")) == (200, b"once\n")

        await eventually(twice)


@pytest.mark.parametrize("protocol", [ws.V5, ws.V4, ws.V4_BASE64, f"{ws.V5},{ws.V4}"])
async def test_exec_carries_all_streams_and_the_exit_code(tmp_path: Path, protocol: str) -> None:
    async with kubelet_alone(tmp_path) as kubelet:
        await kubelet.create("a", "sleep inf")
        query = "command=sh&command=-c&command=echo%20out;%20echo%20err%20>%262;%20exit%203&output=1&error=1"
        query = query.replace(">", "%3E").replace(" ", "%20")
        socket = await kubelet.upgrade(f"/exec/default/a/c?{query}", protocol)
        found, code = await socket.rest()
        assert (found[1], found[2], code) == (b"out\n", b"err\n", 1000)
        status = json.loads(found[3])
        assert status["details"]["causes"] == [{"reason": "ExitCode", "message": "3"}]


async def test_exec_with_input_ends_when_the_input_does(tmp_path: Path) -> None:
    async with kubelet_alone(tmp_path) as kubelet:
        await kubelet.create("a", "sleep inf")
        socket = await kubelet.upgrade("/exec/default/a/c?command=cat&input=1&output=1", ws.V5)
        socket.send(0, b"x" * 100_000)
        socket.ping()
        socket.send(4, b'{"Width":80,"Height":24}')
        socket.send(255, b"\x00")
        data = b""
        while len(data) < 100_000:
            message = await socket.message()
            if message.opcode is not ws.Opcode.PONG:
                data += ws.decode_channel(message, ws.V5)[1]
        found, _ = await socket.rest()
        assert json.loads(found[3])["status"] == "Success"


async def test_exec_reports_errors(tmp_path: Path) -> None:
    async with kubelet_alone(tmp_path) as kubelet:
        await kubelet.create("a", "sleep inf")
        socket = await kubelet.upgrade("/exec/default/a/c?command=/no/such/program&output=1", ws.V5)
        found, _ = await socket.rest()
        assert "/no/such/program" in json.loads(found[3])["message"]
        assert (await kubelet.get("/exec/default/a/other?command=ls&output=1"))[0] == 404
        assert (await kubelet.get("/exec/default/a/c?command=ls&output=1"))[0] == 400
        assert (await kubelet.get("/exec/default/a/c?output=1"))[0] == 400


async def test_a_client_that_goes_ends_its_command(tmp_path: Path) -> None:
    async with kubelet_alone(tmp_path) as kubelet:
        await kubelet.create("a", "sleep inf")
        socket = await kubelet.upgrade("/exec/default/a/c?command=sleep&command=inf&output=1", ws.V5)
        await eventually(lambda: any("exec" in task.get_name() for task in asyncio.all_tasks()))
        socket.close()
        await eventually(lambda: not any("simulated/exec" in task.get_name() for task in asyncio.all_tasks()))


async def test_attach_shows_output_and_passes_input(tmp_path: Path) -> None:
    async with kubelet_alone(tmp_path) as kubelet:
        await kubelet.create("a", "cat", stdin=True, stdinOnce=True)
        socket = await kubelet.upgrade("/attach/default/a/c?input=1&output=1", ws.V5)
        socket.send(0, b"hello\n")
        assert await socket.next() == (1, b"hello\n")
        socket.send(255, b"\x00")
        found, _ = await socket.rest()
        assert json.loads(found[3])["status"] == "Success"


async def test_ports_are_forwarded(tmp_path: Path) -> None:
    async with kubelet_alone(tmp_path) as kubelet:
        await kubelet.create("a", "serve 8080")
        socket = await kubelet.upgrade("/portForward/default/a?ports=8080&ports=9090", ws.V4)
        head, other = (8080).to_bytes(2, "little"), (9090).to_bytes(2, "little")
        first = [await socket.next() for _ in range(5)]
        assert first[:4] == [(0, head), (1, head), (2, other), (3, other)]
        assert first[4][0] == 3 and b"error forwarding port 9090" in first[4][1]
        socket.send(0, b"ping")
        assert await socket.next() == (0, b"ping")
        socket.close()
        assert (await kubelet.get("/portForward/default/a?ports=x"))[0] == 400


async def test_statistics_and_pods(tmp_path: Path) -> None:
    async with kubelet_alone(tmp_path) as kubelet:
        await kubelet.create("a", "sleep inf")
        await kubelet.get("/stats/summary")
        await kubelet.clock.advance(10)
        status, body = await kubelet.get("/stats/summary")
        found = json.loads(body)
        assert status == 200
        assert found["node"]["cpu"]["usageNanoCores"] == 250_000_000
        assert found["pods"][0]["containers"][0]["memory"]["workingSetBytes"] == 5 << 20
        text = (await kubelet.get("/metrics/resource"))[1].decode()
        assert 'container_memory_working_set_bytes{container="c",namespace="default",pod="a"} 5242880' in text
        text = (await kubelet.get("/metrics"))[1].decode()
        assert 'kubelet_node_name{node="node-1"} 1.0' in text and "process_resident_memory_bytes" in text
        assert (
            "kubelet_running_pods 1.0" in text and 'kubelet_running_containers{container_state="running"} 1.0' in text
        )
        pods = json.loads((await kubelet.get("/pods"))[1])
        assert [each["metadata"]["name"] for each in pods["items"]] == ["a"]
        assert (await kubelet.get("/nothing"))[0] == 404


async def test_a_connection_serves_several_requests(tmp_path: Path) -> None:
    async with kubelet_alone(tmp_path) as kubelet:
        reader, writer = await kubelet.open()
        for _ in range(3):
            writer.write(b"GET /healthz HTTP/1.1\r\nhost: node\r\n\r\n")
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
            assert b" 200 " in head
            assert await reader.readexactly(2) == b"ok"
        writer.close()
