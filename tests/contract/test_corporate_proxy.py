"""Every client goes through the HTTP proxy of the environment: Kubernetes, Connect and the command line. The server's
name exists only at the proxy, so a connection around it would fail; its certificate is of a private CA."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from shoal.base.clock import RealClock
from shoal.base.connect import CallFailed, ConnectClient, NoAnswer
from shoal.base.http2 import Http2Link, Peer
from shoal.cli.contexts import Context
from shoal.cli.rest import CannotReach, Rest
from shoal.client import AccessConfig, Unreachable, builtin, connect, load
from shoal.testing.http_proxy import HttpProxy
from shoal.testing.servers import ServerProcess, server_process
from shoal.wire.fleet.v1 import cluster_pb as pb

NAME = "kube.example"
HOSTS = {NAME: "127.0.0.1"}


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with server_process(None, "--port", "0", "--tls-san", NAME) as found:
        yield found


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)


def target(server: ServerProcess) -> str:
    return f"{NAME}:{urlsplit(server.url).port}"


def kubeconfig(server: ServerProcess, folder: Path, **cluster: str) -> Path:
    content = yaml.safe_load(Path(server.kubeconfig).read_text())
    content["clusters"][0]["cluster"] |= {"server": f"https://{target(server)}", **cluster}
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(content))
    return path


async def namespaces(access: AccessConfig) -> list[str]:
    async with connect(access, clock=RealClock()) as client:
        return [each["metadata"]["name"] for each in (await client.of(builtin("namespaces")).list()).items]


async def test_the_kubernetes_client_uses_the_proxy_of_the_environment(
    server: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    access = load(kubeconfig(server, tmp_path))
    async with HttpProxy(HOSTS) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        assert "default" in await namespaces(access)
        assert set(proxy.asked) == {target(server)}
        monkeypatch.setenv("NO_PROXY", ".example")
        with pytest.raises(Unreachable, match=f'host "{NAME}" not found'):
            await namespaces(access)


async def test_the_kubernetes_client_uses_the_proxy_of_its_kubeconfig(server: ServerProcess, tmp_path: Path) -> None:
    async with HttpProxy(HOSTS) as proxy:
        access = load(kubeconfig(server, tmp_path, **{"proxy-url": proxy.url}))
        assert "default" in await namespaces(access) and set(proxy.asked) == {target(server)}
    with pytest.raises(Unreachable, match="the proxy 127.0.0.1:.* cannot be reached"):
        await namespaces(access)
    async with HttpProxy({}) as strict:
        access = load(kubeconfig(server, tmp_path, **{"proxy-url": strict.url}))
        with pytest.raises(Unreachable, match="answered 403 to CONNECT kube.example"):
            await namespaces(access)


async def test_an_agents_calls_use_the_proxy_of_the_environment(
    server: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with HttpProxy(HOSTS) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        link = Http2Link(Peer.of(f"https://{target(server)}", Path(server.ca_file).read_text()))
        client = ConnectClient(link, "shoal.fleet.v1.ClusterService", user_agent="test", max_bytes=1 << 20)
        try:
            with pytest.raises(CallFailed) as failed:  # the server has no such service, and says so
                await client.call("Join", pb.JoinRequest(), pb.JoinResponse, {})
            assert not isinstance(failed.value, NoAnswer) and proxy.asked == [target(server)]
        finally:
            await link.close()


async def test_commands_use_the_proxy_of_the_environment(
    server: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = Context("test", f"https://{target(server)}", server.token, Path(server.ca_file).read_text())

    def version() -> str:
        rest = Rest(context)
        try:
            return str(rest.get("/version")["major"])
        finally:
            rest.close()

    async with HttpProxy(HOSTS) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        assert await asyncio.to_thread(version) == "1" and proxy.asked == [target(server)]
        monkeypatch.setenv("NO_PROXY", NAME)
        with pytest.raises(CannotReach):
            await asyncio.to_thread(version)
