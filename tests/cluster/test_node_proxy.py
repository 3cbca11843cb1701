"""Requests through the API server to nodes and pods, with a fake kubelet and the real kubectl."""

from __future__ import annotations

import asyncio
import base64
import os
import shutil
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from fake_kubelet import FakeKubelet, fake_kubelet

from shoal.apiserver.context import ServerConfig
from shoal.apiserver.node_access import NodesConfig
from shoal.app.credentials import Access, render_kubeconfig
from shoal.app.pki import Pki, server_context
from shoal.base.websocket import Decoder, Opcode
from shoal.kube.kinds.bootstrap_rbac import KUBELET_CLIENT, KUBELET_CLIENT_GROUP
from shoal.kube.objects import Obj
from shoal.kube.quantity import parse
from shoal.testing.servers import ADMIN_TOKEN, LocalServer, local_server
from shoal.testing.waiting import eventually

needs_kubectl = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")


@dataclass
class Cluster:
    """An API server with TLS, one node with a fake kubelet, and pods that are shown as running there."""

    server: LocalServer
    kubelet: FakeKubelet
    pki: Pki
    folder: Path
    port: int

    @property
    def kubeconfig(self) -> str:
        return str(self.folder / "kubeconfig")

    async def kubectl(self, *arguments: str, given: bytes = b"", code: int = 0) -> str:
        """Run kubectl and return its output; fails for an unexpected exit code."""
        process = await self.start(*arguments)
        out, err = await asyncio.wait_for(process.communicate(given), 30)
        assert process.returncode == code, f"{process.returncode}: {out.decode()} {err.decode()}"
        return out.decode() + err.decode()

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        environment = {**os.environ, "KUBECONFIG": self.kubeconfig, "HOME": str(self.folder)}
        return await asyncio.create_subprocess_exec(
            "kubectl", *arguments, stdin=pipe, stdout=pipe, stderr=pipe, env=environment, cwd=self.folder
        )

    async def pod(self, name: str, *containers: str, ip: str = "127.0.0.1", port: int = 0, node: str = "n1") -> None:
        made = [{"name": c, "image": "i", "ports": [{"containerPort": port}] if port else []} for c in containers]
        spec: Obj = {"containers": made or [{"name": "c", "image": "i"}], "automountServiceAccountToken": False}
        if node:
            spec["nodeName"] = node
        await self.server.post("/api/v1/namespaces/default/pods", {"metadata": {"name": name}, "spec": spec})
        running = {"state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}, "ready": True, "restartCount": 0}
        status = {
            "phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}],
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [{"name": c["name"], "image": "i", "imageID": "", **running} for c in spec["containers"]],
        }  # fmt: skip
        if node:
            await self.server.patch(f"/api/v1/namespaces/default/pods/{name}/status", {"status": status})


@asynccontextmanager
async def a_cluster(folder: Path, **nodes: Any) -> AsyncIterator[Cluster]:
    pki = Pki(folder / "pki", now=datetime.now(UTC))
    client = pki.ensure_client("apiserver-kubelet-client", KUBELET_CLIENT, (KUBELET_CLIENT_GROUP,))
    settings = {"loopback": ("127.0.0.0/8",), **nodes}
    config = NodesConfig(ca=pki.ca_cert, certificate=client.cert, key=client.key, **settings)
    tls = server_context(pki.ensure_server(("127.0.0.1",)), pki.ca_cert)
    (folder / "work").mkdir()
    async with (
        fake_kubelet(pki, folder / "work") as kubelet,
        local_server(config=ServerConfig(ca_certificate="test CA", nodes=config), loopback_endpoints=True) as server,
    ):
        port = await server.server.listen("127.0.0.1", 0, tls=tls)
        access = Access(f"https://127.0.0.1:{port}", pki.ca_cert.read_bytes(), ADMIN_TOKEN)
        (folder / "kubeconfig").write_bytes(render_kubeconfig(access))
        status = {
            "addresses": [{"type": "Hostname", "address": "n1"}, {"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet.port}},
        }
        await server.post("/api/v1/nodes", {"metadata": {"name": "n1"}, "status": status})
        yield Cluster(server, kubelet, pki, folder, port)


@asynccontextmanager
async def bounded_cluster(folder: Path, **nodes: Any) -> AsyncIterator[Cluster]:
    async with asyncio.timeout(100), a_cluster(folder, **nodes) as cluster:
        yield cluster


# -- logs ----------------------------------------------------------------------------------------------------------


@needs_kubectl
async def test_logs_come_from_the_kubelet_which_gets_the_api_servers_certificate(tmp_path: Path) -> None:
    async with bounded_cluster(tmp_path) as cluster:
        cluster.kubelet.logs["c"] = "one\ntwo\nthree\n"
        await cluster.pod("p")
        assert await cluster.kubectl("logs", "p") == "one\ntwo\nthree\n"
        assert await cluster.kubectl("logs", "p", "--tail=1") == "three\n"
        assert await cluster.kubectl("logs", "p", "--limit-bytes=5") == "one\nt"
        await cluster.kubectl("logs", "p", "--previous", "--timestamps", "--since=10s")
        assert cluster.kubelet.seen[-1][1] == "/containerLogs/default/p/c?previous=true&sinceSeconds=10&timestamps=true"
        assert set(cluster.kubelet.peers) == {KUBELET_CLIENT}


@needs_kubectl
async def test_a_followed_log_comes_line_by_line_and_ends_with_either_side(tmp_path: Path) -> None:
    async with bounded_cluster(tmp_path) as cluster:
        cluster.kubelet.logs["c"] = "first\n"
        await cluster.pod("p")
        process = await cluster.start("logs", "-f", "p")
        assert process.stdout is not None
        assert await process.stdout.readline() == b"first\n"
        for line in (b"second\n", b"third\n"):
            cluster.kubelet.more.put_nowait(line)
            assert await process.stdout.readline() == line
        cluster.kubelet.more.put_nowait(None)
        assert await process.wait() == 0

        process = await cluster.start("logs", "-f", "p")
        assert process.stdout is not None
        assert await process.stdout.readline() == b"first\n"
        assert cluster.kubelet.sessions == 1
        process.kill()
        await process.wait()
        await eventually(lambda: cluster.kubelet.sessions == 0)


async def test_unavailable_logs_are_refused_with_the_messages_of_kubernetes(tmp_path: Path) -> None:
    async with bounded_cluster(tmp_path) as cluster:
        get = cluster.server.call
        pods = "/api/v1/namespaces/default/pods"
        await cluster.pod("p", "a", "b")
        await cluster.pod("unscheduled", "c", node="")
        text = "a container name must be specified for pod p, choose one of: [a b]"
        assert (await get("GET", f"{pods}/p/log")).json["message"] == text
        answer = await get("GET", f"{pods}/p/log?container=x")
        assert (answer.status, answer.json["message"]) == (400, "container x is not valid for pod p")
        answer = await get("GET", f"{pods}/p/log?container=a")
        text = 'container "a" in pod "p" is waiting to start: ContainerCreating'
        assert (answer.status, answer.json["reason"], answer.json["message"]) == (400, "BadRequest", text)
        assert (await get("GET", f"{pods}/absent/log")).json["message"] == 'pods "absent" not found'
        assert (await get("GET", f"{pods}/unscheduled/log")).status == 204
        answer = await get("GET", f"{pods}/p/log?container=a&tailLines=-1")
        text = 'PodLogOptions "p" is invalid: tailLines: Invalid value: -1: must be greater than or equal to 0'
        assert (answer.status, answer.json["message"]) == (422, text)
        assert (await get("POST", f"{pods}/p/log")).status == 405


# -- exec, attach, cp ----------------------------------------------------------------------------------------------


@needs_kubectl
@pytest.mark.parametrize("websockets", ["true", "false"])  # kubectl falls back to SPDY
async def test_exec_carries_input_output_errors_and_the_exit_code(
    tmp_path: Path, websockets: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", websockets)

    async with bounded_cluster(tmp_path) as cluster:
        await cluster.pod("p")
        assert await cluster.kubectl("exec", "p", "--", "echo", "hello world") == "hello world\n"
        assert await cluster.kubectl("exec", "-i", "p", "--", "sh", "-c", "wc -c", given=b"x" * 300_000) == "300000\n"
        printed = await cluster.kubectl("exec", "p", "--", "sh", "-c", "echo out; echo err >&2; exit 7", code=7)
        assert "out\n" in printed and "err\n" in printed and "exit code 7" in printed
        many = await cluster.kubectl("exec", "p", "--", "sh", "-c", "yes | head -c 5000000")
        assert len(many) == 5_000_000
        assert await cluster.kubectl("attach", "-i", "p", given=b"to and fro\n") >= "to and fro\n"


@needs_kubectl
async def test_exec_with_a_terminal_has_one_on_both_sides(tmp_path: Path) -> None:
    async with bounded_cluster(tmp_path) as cluster:
        await cluster.pod("p")
        command = f"kubectl --kubeconfig {cluster.kubeconfig} exec -it p -- sh -c 'test -t 1 && read x && echo got $x'"
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            "script", "-qec", command, "/dev/null", stdin=pipe, stdout=pipe, env={**os.environ, "TERM": "dumb"}
        )
        assert process.stdin is not None and process.stdout is not None
        await eventually(lambda: any("/exec/" in target for _, target in cluster.kubelet.seen))
        process.stdin.write(b"abc\n")
        out = b""
        while b"got abc" not in out:
            piece = await asyncio.wait_for(process.stdout.read(1000), 10)
            assert piece, out
            out += piece
        process.stdin.close()
        assert await process.wait() == 0


@needs_kubectl
async def test_cp_brings_files_there_and_back(tmp_path: Path) -> None:
    async with bounded_cluster(tmp_path) as cluster:
        await cluster.pod("p")
        content = os.urandom(2_000_000)
        (tmp_path / "up").write_bytes(content)
        await cluster.kubectl("cp", "up", "p:there")
        assert (tmp_path / "work" / "there").read_bytes() == content
        await cluster.kubectl("cp", "p:there", "down")
        assert (tmp_path / "down").read_bytes() == content


@needs_kubectl
async def test_a_killed_client_ends_the_command(tmp_path: Path) -> None:
    async with bounded_cluster(tmp_path) as cluster:
        await cluster.pod("p")
        process = await cluster.start("exec", "-i", "p", "--", "sh", "-c", "echo up; exec sleep 1000")
        assert process.stdout is not None
        assert await process.stdout.readline() == b"up\n"
        process.kill()
        await process.wait()
        await eventually(lambda: cluster.kubelet.sessions == 0)


# -- port-forward --------------------------------------------------------------------------------------------------


async def _http_server(
    handler: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]],
) -> Any:
    return await asyncio.start_server(handler, "127.0.0.1", 0)


async def _page(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers with the request itself; closes after each."""
    head = await reader.readuntil(b"\r\n\r\n")
    size = next(
        (int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")), 0
    )
    body = await reader.readexactly(size) if size else b""
    if b"transfer-encoding: chunked" in head.lower():
        while (line := await reader.readline()) != b"0\r\n":
            body += await reader.readexactly(int(line, 16))
            await reader.readline()
    answer = head + b"%d bytes" % len(body)
    writer.write(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/x-echo\r\nContent-Length: %d\r\n\r\n%b" % (len(answer), answer)
    )
    await writer.drain()
    writer.close()


@needs_kubectl
@pytest.mark.parametrize("websockets", ["true", "false"])
async def test_port_forward_carries_http_over_both_protocols(
    tmp_path: Path, websockets: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECTL_PORT_FORWARD_WEBSOCKETS", websockets)

    async with bounded_cluster(tmp_path) as cluster:
        web = await _http_server(_page)
        remote = web.sockets[0].getsockname()[1]
        await cluster.pod("p")
        process = await cluster.start("port-forward", "pod/p", f":{remote}")
        assert process.stdout is not None
        line = (await asyncio.wait_for(process.stdout.readline(), 20)).decode()
        local = int(line.split("127.0.0.1:")[1].split(" ")[0])

        async def ask(number: int) -> None:
            reader, writer = await asyncio.open_connection("127.0.0.1", local)
            body = b"x" * 200_000 * number
            writer.write(b"POST /n%d HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%b" % (number, len(body), body))
            answer = await reader.read()
            assert b"POST /n%d " % number in answer and answer.endswith(b"%d bytes" % len(body))
            writer.close()

        await asyncio.gather(*(ask(number) for number in range(8)))
        process.kill()
        await process.wait()
        await eventually(lambda: cluster.kubelet.sessions == 0)
        web.close()


async def _counts(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers only when nothing more comes."""
    writer.write(b"%d" % len(await reader.read()))
    writer.close()


@needs_kubectl
async def test_a_forwarded_connection_may_be_closed_in_one_direction_only(tmp_path: Path) -> None:
    async with bounded_cluster(tmp_path) as cluster:
        web = await _http_server(_counts)
        await cluster.pod("p")
        process = await cluster.start("port-forward", "pod/p", f":{web.sockets[0].getsockname()[1]}")
        assert process.stdout is not None and process.stderr is not None
        local = int((await process.stdout.readline()).decode().split("127.0.0.1:")[1].split(" ")[0])
        reader, writer = await asyncio.open_connection("127.0.0.1", local)
        writer.write(b"x" * 1_000_000)
        writer.write_eof()
        assert await asyncio.wait_for(reader.read(), 10) == b"1000000"
        writer.close()
        web.close()
        await web.wait_closed()
        reader, writer = await asyncio.open_connection("127.0.0.1", local)
        assert await asyncio.wait_for(reader.read(), 10) == b""
        told = (await asyncio.wait_for(process.stderr.readline(), 10)).decode()
        assert "an error occurred forwarding" in told and "failed to connect to localhost" in told
        writer.close()
        if process.returncode is None:
            process.kill()
        await process.wait()


# -- proxies -------------------------------------------------------------------------------------------------------


@dataclass
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes


async def ask(
    cluster: Cluster, method: str, path: str, body: bytes = b"", token: str = ADMIN_TOKEN, **more: str
) -> Reply:
    """One request over TLS, as it is; nothing is followed, nothing decoded."""
    reader, writer = await _connected(cluster)
    headers = {"host": "proxy.example", "authorization": f"Bearer {token}", "connection": "close", **more}
    if body:
        headers["content-length"] = str(len(body))
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    writer.write(f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode() + body)
    reply = await _reply(reader, method)
    writer.close()
    return reply


async def _connected(cluster: Cluster) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    tls = ssl.create_default_context(cafile=cluster.pki.ca_cert)
    return await asyncio.open_connection("127.0.0.1", cluster.port, ssl=tls)


async def _reply(reader: asyncio.StreamReader, method: str = "GET") -> Reply:
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = b""
    if method != "HEAD" and headers.get("transfer-encoding") == "chunked":
        while size := int(await reader.readline(), 16):
            body += await reader.readexactly(size)
            await reader.readline()
    elif method != "HEAD" and "content-length" in headers:
        body = await reader.readexactly(int(headers["content-length"]))
    return Reply(int(first.split(" ")[1]), headers, body)


async def test_a_pod_is_reached_through_its_proxy_with_path_query_and_body(tmp_path: Path) -> None:
    async with bounded_cluster(tmp_path) as cluster:
        web = await _http_server(_page)
        port = web.sockets[0].getsockname()[1]
        await cluster.pod("p", "c", port=port)
        base = "/api/v1/namespaces/default/pods"
        acting = {"cookie": "k=v", "impersonate-user": "admin", "impersonate-group": "system:masters"}
        reply = await ask(cluster, "GET", f"{base}/p/proxy/a%2Fb/c?x=1&y=%20", **acting)
        assert reply.status == 200 and reply.headers["content-type"] == "text/x-echo"
        seen = reply.body.decode().lower()
        assert seen.startswith("get /a%2fb/c?x=1&y=%20 http/1.1\r\n")
        assert "cookie: k=v" in seen and f"x-forwarded-uri: {base}/p/proxy/a%2fb/c" in seen
        assert "x-forwarded-for: 127.0.0.1" in seen and "x-forwarded-host: proxy.example" in seen
        assert "authorization" not in seen and "impersonate" not in seen
        reply = await ask(
            cluster, "POST", f"{base}/http:p:{port}/proxy/", b"z" * 5_000_000
        )  # more than we take ourselves
        assert reply.body.endswith(b"5000000 bytes")
        reply = await ask(cluster, "GET", f"{base}/p/proxy?q=1")
        assert (reply.status, reply.headers["location"]) == (301, f"{base}/p/proxy/?q=1")
        reply = await ask(cluster, "HEAD", f"{base}/p/proxy/")
        assert reply.status == 200 and int(reply.headers["content-length"]) > 100
        reply = await ask(cluster, "OPTIONS", f"{base}/p/proxy/o")
        assert reply.body.startswith(b"OPTIONS /o ")
        web.close()
        await web.wait_closed()
        reply = await ask(cluster, "GET", f"{base}/p:{port}/proxy/")
        text = f"error trying to reach service: dial tcp 127.0.0.1:{port}: connect: connection refused"
        assert reply.status == 503 and text in reply.body.decode()
        assert (await ask(cluster, "GET", f"{base}/ftp:p:1/proxy/")).status == 400


async def test_a_request_body_in_chunks_goes_through_while_it_comes_in(tmp_path: Path) -> None:
    async with bounded_cluster(tmp_path) as cluster:
        arrived: asyncio.Queue[bytes] = asyncio.Queue()

        async def receive(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            while (line := await reader.readline()) != b"0\r\n":
                arrived.put_nowait(await reader.readexactly(int(line, 16)))
                await reader.readline()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
            writer.close()

        web = await _http_server(receive)
        await cluster.pod("p", "c", port=web.sockets[0].getsockname()[1])
        reader, writer = await _connected(cluster)
        path = "/api/v1/namespaces/default/pods/p/proxy/up"
        head = f"POST {path} HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {ADMIN_TOKEN}\r\nTransfer-Encoding: chunked\r\n\r\n"
        writer.write(head.encode())
        for piece in (b"one", b"two"):
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            assert await asyncio.wait_for(arrived.get(), 5) == piece  # before the next is sent
        writer.write(b"0\r\n\r\n")
        assert (await _reply(reader)).body == b"ok"
        # the connection is good for another request
        writer.write(f"GET /version HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {ADMIN_TOKEN}\r\n\r\n".encode())
        assert (await _reply(reader)).status == 200
        writer.close()
        web.close()


async def test_a_proxied_response_is_read_only_as_fast_as_the_client_reads(tmp_path: Path) -> None:
    async with bounded_cluster(tmp_path) as cluster:
        sent = 0
        enough = 64 * 1024 * 1024

        async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal sent
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % enough)
            try:
                while sent < enough:
                    writer.write(b"x" * 65536)
                    await writer.drain()
                    sent += 65536
            except OSError:
                sent = -1
            writer.close()

        web = await _http_server(flood)
        await cluster.pod("p", "c", port=web.sockets[0].getsockname()[1])
        reader, writer = await _connected(cluster)
        path = "/api/v1/namespaces/default/pods/p/proxy/"
        writer.write(f"GET {path} HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {ADMIN_TOKEN}\r\n\r\n".encode())
        await reader.readuntil(b"\r\n\r\n")
        before = -1
        while sent != before:  # until it stands still
            before = sent
            await asyncio.sleep(0.2)
        assert 0 < sent < enough // 2
        assert len(await reader.readexactly(enough)) == enough
        writer.close()
        web.close()


async def test_links_of_pages_behind_a_proxy_lead_through_it(tmp_path: Path) -> None:
    async with bounded_cluster(tmp_path) as cluster:

        async def page(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            head = await reader.readuntil(b"\r\n\r\n")
            if head.startswith(b"GET /old"):
                writer.write(b"HTTP/1.1 302 Found\r\nLocation: /new?a=1\r\nContent-Length: 0\r\n\r\n")
            else:
                body = b'<a href="/rewriteme">test</a><img src=rel.png>'
                writer.write(
                    b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
                )
            writer.close()

        web = await _http_server(page)
        await cluster.pod("p", "c", port=web.sockets[0].getsockname()[1])
        base = "/api/v1/namespaces/default/pods/p/proxy"
        reply = await ask(cluster, "GET", f"{base}/sub/page")
        assert reply.body == f'<a href="{base}/rewriteme">test</a><img src=rel.png>'.encode()
        assert (await ask(cluster, "GET", f"{base}/old")).headers["location"] == f"{base}/new?a=1"
        web.close()


async def test_a_websocket_goes_through_the_proxy(tmp_path: Path) -> None:
    async with bounded_cluster(tmp_path) as cluster:
        gone = asyncio.Event()

        async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(
                b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nX-Own: 1\r\n\r\nhi"
            )
            while data := await reader.read(100):
                writer.write(data.upper())
            gone.set()
            writer.close()

        web = await _http_server(echo)
        await cluster.pod("p", "c", port=web.sockets[0].getsockname()[1])
        reader, writer = await _connected(cluster)
        path = "/api/v1/namespaces/default/pods/p/proxy/ws"
        writer.write(
            f"GET {path} HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {ADMIN_TOKEN}\r\nConnection: Upgrade\r\n"
            "Upgrade: websocket\r\n\r\n".encode()
        )
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101 ") and b"X-Own: 1" in head
        assert await reader.readexactly(2) == b"hi"
        writer.write(b"any bytes")
        assert await reader.readexactly(9) == b"ANY BYTES"
        writer.close()
        await asyncio.wait_for(gone.wait(), 5)
        web.close()


async def test_a_service_leads_to_a_ready_pod_and_a_node_to_its_kubelet(tmp_path: Path) -> None:
    async with bounded_cluster(tmp_path) as cluster:
        web = await _http_server(_page)
        port = web.sockets[0].getsockname()[1]
        await cluster.pod("p")
        ports = [{"name": "web", "port": 80, "targetPort": port}]
        await cluster.server.post(
            "/api/v1/namespaces/default/services", {"metadata": {"name": "s"}, "spec": {"ports": ports}}
        )
        base = "/api/v1/namespaces/default/services"
        reply = await ask(cluster, "GET", f"{base}/s:80/proxy/")
        assert reply.status == 503 and 'no endpoints available for service \\"s\\"' in reply.body.decode()
        pod = await cluster.server.get("/api/v1/namespaces/default/pods/p")
        target = {"kind": "Pod", "name": "p", "namespace": "default", "uid": pod["metadata"]["uid"]}
        endpoints = [
            {"addresses": ["127.0.0.9"], "conditions": {"ready": False}, "targetRef": target},
            {"addresses": ["127.0.0.8"], "conditions": {"ready": True}},
            {"addresses": ["127.0.0.1"], "conditions": {"ready": True}, "targetRef": target},
        ]
        await cluster.server.post(
            "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices",
            {
                "metadata": {"name": "s-1", "labels": {"kubernetes.io/service-name": "s"}}, "addressType": "IPv4",
                "ports": [{"name": "web", "port": port}], "endpoints": endpoints,
            },
        )  # fmt: skip
        for asked in ("s:80", "s:web", "http:s:web"):  # nothing listens at the other two addresses
            reply = await ask(cluster, "GET", f"{base}/{asked}/proxy/x")
            assert reply.status == 200 and reply.body.startswith(b"GET /x ")
        reply = await ask(cluster, "GET", f"{base}/s:81/proxy/")
        assert 'no service port 81 found for service \\"s\\"' in reply.body.decode()
        assert (await ask(cluster, "GET", "/api/v1/nodes/n1/proxy/healthz")).body == b"ok"
        assert (await ask(cluster, "GET", f"/api/v1/nodes/n1:{cluster.kubelet.port}/proxy/healthz")).body == b"ok"
        assert (await ask(cluster, "GET", f"/api/v1/nodes/http:n1:{port}/proxy/x")).body.startswith(b"GET /x ")
        web.close()


async def test_a_proxy_does_not_lead_into_the_servers_own_machine(tmp_path: Path) -> None:
    async with bounded_cluster(tmp_path, loopback=("127.9.0.0/16",)) as cluster:
        await cluster.pod("p", "c", port=80)
        for path in ("/api/v1/namespaces/default/pods/p:6443/proxy/", "/api/v1/nodes/n1/proxy/healthz"):
            reply = await ask(cluster, "GET", path)
            assert reply.status == 400 and b"address not allowed" in reply.body


async def test_the_address_that_was_checked_is_the_one_that_is_dialled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that leads to an allowed address when it is checked, and into the machine when it is resolved again."""
    answers = iter(["127.9.0.1"])
    resolve = socket.getaddrinfo

    def changing(host: Any, *rest: Any, **more: Any) -> Any:
        return resolve(next(answers, "127.0.0.1") if host == "n2.example" else host, *rest, **more)

    async with bounded_cluster(tmp_path, loopback=("127.9.0.0/16",)) as cluster:
        inside = await _http_server(_page)
        port = inside.sockets[0].getsockname()[1]
        endpoint = {"kubeletEndpoint": {"Port": cluster.kubelet.port}}
        addresses = [{"type": "InternalDNS", "address": "n2.example"}]
        node = {"metadata": {"name": "n2"}, "status": {"addresses": addresses, "daemonEndpoints": endpoint}}
        await cluster.server.post("/api/v1/nodes", node)
        monkeypatch.setattr(socket, "getaddrinfo", changing)
        reply = await ask(cluster, "GET", f"/api/v1/nodes/http:n2:{port}/proxy/x")
        assert reply.status == 503 and b"dial tcp 127.9.0.1:" in reply.body
        inside.close()


async def test_the_kubelet_is_shown_a_certificate_that_gives_no_right_but_to_kubelets(tmp_path: Path) -> None:
    async with bounded_cluster(tmp_path) as cluster:
        as_client = {"impersonate-user": KUBELET_CLIENT, "impersonate-group": KUBELET_CLIENT_GROUP}
        assert (await ask(cluster, "GET", "/api/v1/namespaces/kube-system/secrets", **as_client)).status == 403
        assert (await ask(cluster, "GET", "/api/v1/nodes/n1/proxy/healthz", **as_client)).status == 200


# -- rights and admission ------------------------------------------------------------------------------------------


async def test_exec_needs_the_right_to_create_even_by_get(tmp_path: Path) -> None:
    async with bounded_cluster(tmp_path) as cluster:
        await cluster.pod("p")
        rules = [
            {"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["get"]},
            {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
        ]
        role = {"metadata": {"name": "r"}, "rules": rules}
        await cluster.server.post("/apis/rbac.authorization.k8s.io/v1/clusterroles", role)
        await _bind(cluster, "jane", "r")
        cluster.kubelet.logs["c"] = "line\n"
        base = "/api/v1/namespaces/default/pods/p"
        as_jane = {"impersonate-user": "jane"}
        assert (await ask(cluster, "GET", f"{base}/log", **as_jane)).body == b"line\n"
        reply = await ask(cluster, "GET", f"{base}/exec?command=id&stdout=1", **as_jane)
        assert reply.status == 403
        assert b'cannot create resource \\"pods/exec\\" in API group' in reply.body
        assert (await ask(cluster, "GET", f"{base}/exec?command=id&stdout=1")).status == 400  # no upgrade was asked for
        assert (await ask(cluster, "PUT", f"{base}/exec")).status == 405


async def test_admission_sees_a_connection_with_its_options(tmp_path: Path) -> None:
    async with bounded_cluster(tmp_path) as cluster:
        await cluster.pod("p")
        match = {
            "resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CONNECT"], "resources": ["pods/exec"]}
            ]
        }
        expression = "!('rm' in object.command)"
        policy = {
            "metadata": {"name": "no-rm"},
            "spec": {"matchConstraints": match, "validations": [{"expression": expression, "message": "not that"}]},
        }
        group = "/apis/admissionregistration.k8s.io/v1"
        await cluster.server.post(f"{group}/validatingadmissionpolicies", policy)
        binding = {"policyName": "no-rm", "validationActions": ["Deny"]}
        await cluster.server.post(
            f"{group}/validatingadmissionpolicybindings", {"metadata": {"name": "no-rm"}, "spec": binding}
        )
        path = "/api/v1/namespaces/default/pods/p/exec?stdout=true&command="
        reply = await ask(cluster, "POST", f"{path}rm")
        assert reply.status in (403, 422) and b"not that" in reply.body
        assert b"Upgrade request required" in (await ask(cluster, "POST", f"{path}ls")).body


async def test_waiting_for_a_pod_takes_no_seats(tmp_path: Path) -> None:
    async with bounded_cluster(tmp_path) as cluster:
        asked, answer = asyncio.Event(), asyncio.Event()

        async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            asked.set()
            await answer.wait()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlate")
            writer.close()

        web = await _http_server(slow)
        await cluster.pod("p", "c", port=web.sockets[0].getsockname()[1])
        await _bind(cluster, "jane", "cluster-admin")  # no administrator to flow control, who would need no seats
        path = "/api/v1/namespaces/default/pods/p/proxy/"
        waiting = asyncio.create_task(ask(cluster, "GET", path, **{"impersonate-user": "jane"}))
        await asyncio.wait_for(asked.wait(), 5)
        assert cluster.server.server.handler.protection.gate.in_flight == [0, 0]
        answer.set()
        assert (await waiting).body == b"late"
        web.close()


async def _bind(cluster: Cluster, user: str, role: str) -> None:
    group = "rbac.authorization.k8s.io"
    reference = {"apiGroup": group, "kind": "ClusterRole", "name": role}
    subject = {"apiGroup": group, "kind": "User", "name": user}
    binding = {"metadata": {"name": f"{user}-{role}"}, "roleRef": reference, "subjects": [subject]}
    await cluster.server.post(f"/apis/{group}/v1/clusterrolebindings", binding)


# -- logs over a WebSocket -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["binary.k8s.io", "base64.binary.k8s.io"])
async def test_a_log_comes_as_messages_of_a_websocket(tmp_path: Path, protocol: str) -> None:
    async with bounded_cluster(tmp_path) as cluster:
        cluster.kubelet.logs["c"] = "over the socket\n"
        await cluster.pod("p")
        reader, writer = await _connected(cluster)
        writer.write(
            f"GET /api/v1/namespaces/default/pods/p/log HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {ADMIN_TOKEN}\r\n"
            "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
            f"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Protocol: {protocol}\r\n\r\n".encode()
        )
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101 ") and f"Sec-WebSocket-Protocol: {protocol}".encode() in head
        decoder, messages = Decoder(server=False), []
        while data := await reader.read(1000):
            messages += decoder.feed(data)
        assert messages[0].data == b"" and messages[-1].opcode is Opcode.CLOSE
        content = [message.data for message in messages[1:-1]]
        text = b"".join(base64.b64decode(part) if protocol.startswith("base64") else part for part in content)
        assert text == b"over the socket\n"
        writer.close()


# -- metrics -------------------------------------------------------------------------------------------------------


def _summary(seconds: float, memory: int) -> Obj:
    use = {
        "cpu": {"usageNanoCores": 0, "usageCoreNanoSeconds": int(seconds * 1e9)},
        "memory": {"workingSetBytes": memory},
    }
    pod = {"podRef": {"name": "p", "namespace": "default", "uid": "u"}, "containers": [{"name": "c", **use}]}
    return {"node": {"nodeName": "n1", **use}, "pods": [pod]}


@needs_kubectl
async def test_top_shows_the_statistics_of_kubelets(tmp_path: Path) -> None:
    async with bounded_cluster(tmp_path) as cluster:
        kubelet = cluster.kubelet
        kubelet.summary = _summary(100, 64 << 20)
        await cluster.pod("p")
        await cluster.pod("silent")
        await cluster.server.patch("/api/v1/namespaces/default/pods/p", {"metadata": {"labels": {"app": "a"}}})
        capacity = {"status": {"capacity": {"cpu": "4", "memory": "1Gi"}, "allocatable": {"cpu": "4", "memory": "1Gi"}}}
        await cluster.server.patch("/api/v1/nodes/n1/status", capacity)
        asked = asyncio.create_task(cluster.server.get("/apis/metrics.k8s.io/v1beta1/namespaces/default/pods"))
        await eventually(lambda: len(kubelet.seen) == 1)
        kubelet.summary = _summary(100.5, 128 << 20)  # half a second of processor in about a second
        found = await asked
        assert found["kind"] == "PodMetricsList" and [item["metadata"]["name"] for item in found["items"]] == ["p"]
        usage = found["items"][0]["containers"][0]["usage"]
        assert usage["memory"] == "128Mi" and 200 < parse(usage["cpu"]).milli() <= 500
        lines = (await cluster.kubectl("top", "pods")).splitlines()
        assert lines[0].split() == ["NAME", "CPU(cores)", "MEMORY(bytes)"]
        assert lines[1].split()[0] == "p" and lines[1].split()[2] == "128Mi"
        shown = (await cluster.kubectl("top", "nodes")).splitlines()[1].split()
        assert shown[0] == "n1" and shown[3] == "128Mi" and shown[4] == "12%"
        assert (await cluster.kubectl("top", "pod", "p", "--containers")).splitlines()[1].split()[:2] == ["p", "c"]
        table = await cluster.kubectl("get", "pods.metrics.k8s.io")
        assert table.splitlines()[0].split() == ["NAME", "CPU", "MEMORY", "WINDOW"]
        base = "/apis/metrics.k8s.io/v1beta1"
        assert len((await cluster.server.get(f"{base}/pods?labelSelector=app%3Da"))["items"]) == 1
        assert (await cluster.server.get(f"{base}/pods?labelSelector=app%3Db"))["items"] == []
        assert len((await cluster.server.get(f"{base}/nodes?fieldSelector=metadata.name%3Dn1"))["items"]) == 1
        assert (await cluster.server.get(f"{base}/nodes/n1"))["usage"]["memory"] == "128Mi"
        assert (await cluster.server.call("GET", f"{base}/namespaces/default/pods/silent")).status == 404
        assert (await cluster.server.call("GET", f"{base}/pods?watch=true")).status == 405
        assert len(kubelet.seen) == 2  # however often clients ask
        document = await cluster.server.get("/openapi/v3/apis/metrics.k8s.io/v1beta1")
        assert f"{base}/nodes/{{name}}" in document["paths"]


async def test_the_metrics_group_is_there_while_there_are_nodes(tmp_path: Path) -> None:
    async with bounded_cluster(tmp_path) as cluster:

        async def groups() -> list[str]:
            return [group["name"] for group in (await cluster.server.get("/apis"))["groups"]]

        assert "metrics.k8s.io" in await groups()
        await cluster.server.delete("/api/v1/nodes/n1")
        assert "metrics.k8s.io" not in await groups()
        assert (await cluster.server.call("GET", "/apis/metrics.k8s.io/v1beta1/nodes")).status == 404
