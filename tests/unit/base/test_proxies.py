"""Which connections go through a proxy, and how."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

import pytest

from shoal.base import proxies

HOST = "control.example.com"


@pytest.mark.parametrize(
    ("environ", "host", "expected"),
    [
        ({}, HOST, None),
        ({"HTTPS_PROXY": "http://proxy:3128"}, HOST, "proxy"),
        ({"https_proxy": "proxy:3128"}, HOST, "proxy"),
        ({"ALL_PROXY": "http://every:1"}, HOST, "every"),
        ({"HTTP_PROXY": "http://other:1"}, HOST, None),
        ({"HTTPS_PROXY": "http://proxy:3128"}, "127.0.0.1", None),
        ({"HTTPS_PROXY": "http://proxy:3128"}, "localhost", None),
        ({"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": "a.com, example.com"}, HOST, None),
        ({"HTTPS_PROXY": "http://proxy:3128", "no_proxy": ".example.com"}, HOST, None),
        ({"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": "*"}, HOST, None),
        ({"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": "example.com:8443"}, HOST, None),
        ({"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": "example.com:443"}, HOST, "proxy"),
        ({"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": "notexample.com"}, HOST, "proxy"),
        ({"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": "10.0.0.0/8,fd00::/8"}, "10.1.2.3", None),
        ({"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": "10.0.0.0/8,fd00::/8"}, "fd00::1", None),
        ({"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": "10.0.0.0/8,x/y"}, "11.0.0.1", "proxy"),
        ({"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": "10.0.0.0/8"}, HOST, "proxy"),
    ],
)
def test_the_environment_decides_which_hosts_use_a_proxy(
    environ: dict[str, str], host: str, expected: str | None
) -> None:
    found = proxies.for_host(host, 8443, environ)
    assert (found.hostname if found else None) == expected


def test_a_proxy_that_cannot_be_used_is_an_error_not_a_way_around_it() -> None:
    with pytest.raises(OSError, match="only http://"):
        proxies.for_host(HOST, 8443, {"HTTPS_PROXY": "socks5://proxy:1080"})


@pytest.mark.parametrize(("answer", "refused"), [(b"HTTP/1.1 200 ok\r\n\r\n", ""), (b"HTTP/1.1 407 no\r\n\r\n", "407")])
async def test_a_tunnel_asks_for_the_host_with_the_credentials_of_the_proxy(answer: bytes, refused: str) -> None:
    asked: list[bytes] = []

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(answer)
        if not refused:
            writer.write(await reader.readexactly(4))
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(proxy, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    named = urlsplit(f"http://me:s%40crt@127.0.0.1:{port}")
    if refused:
        with pytest.raises(OSError, match=refused):
            await proxies.tunnel(named, HOST, 8443)
    else:
        used = await proxies.tunnel(named, HOST, 8443)
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(used, b"ping")
        assert await loop.sock_recv(used, 4) == b"ping"
        used.close()
    server.close()
    await server.wait_closed()
    assert asked[0].startswith(b"CONNECT control.example.com:8443 HTTP/1.1\r\n")
    assert b"Proxy-Authorization: Basic bWU6c0BjcnQ=\r\n" in asked[0]
