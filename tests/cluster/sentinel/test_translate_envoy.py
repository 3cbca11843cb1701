"""Translated resources in a real Envoy: it takes them, and requests go where the routes say."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import ssl
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import grpc.aio
import httpx
import pytest
from aiohttp import web
from certificates_under_test import Authority
from envoy_under_test import HOST, WAIT_S, app, backend, gateway, inputs_of, policy, route, with_settings

from shoal.app.ports import any_free
from shoal.sentinel.model import InstanceEndpoint, PeerGateway, ServiceEndpoints, ServiceKey, Settings
from shoal.testing.waiting import eventually

UPGRADE = (
    b"GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
)


@contextlib.asynccontextmanager
async def resetting() -> AsyncIterator[tuple[InstanceEndpoint, list[str]]]:
    """Takes every request and closes the connection instead of answering; with the methods that it got."""
    got: list[str] = []

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            head = await reader.readuntil(b"\r\n\r\n")
            got.append(head.split(b" ", 1)[0].decode())
        writer.transport.abort()

    server = await asyncio.start_server(take, HOST, 0)
    async with server:
        yield InstanceEndpoint(address=HOST, port=server.sockets[0].getsockname()[1]), got


def code(response: Any) -> str:
    told = response.json()["error"]["code"]
    assert response.headers["x-shoal-error"] == told
    assert response.headers["content-type"] == "application/json"
    return str(told)


async def test_requests_find_their_route_by_host_path_and_headers() -> None:
    async with asyncio.timeout(300):
        names = ("exact", "deep", "header", "suffix", "any")
        async with contextlib.AsyncExitStack() as stack:
            running = {name: [await stack.enter_async_context(app(name))] for name in names}
            given = inputs_of(
                route("r1", "a.example", backend("exact")),
                route("r2", "a.example", backend("deep"), path="/api/v1"),
                route("r3", "a.example", backend("header"), path="/api/v1", headers=[{"name": "X-Beta", "exact": "1"}]),
                route("r4", "*.b.example", backend("suffix")),
                route("r5", "*", backend("any"), path="/only"),
                running=running,
            )
            gw = await stack.enter_async_context(gateway(given))
            for host, path, headers, wanted in [
                ("a.example", "/", {}, "exact"),
                ("A.Example:1234", "/", {}, "exact"),
                ("a.example", "/api/v1", {}, "deep"),
                ("a.example", "/api/v1/x?y=1", {}, "deep"),
                ("a.example", "/api/v10", {}, "exact"),
                ("a.example", "/x/..//api/v1", {}, "deep"),
                ("a.example", "/api/v1/", {"x-beta": "1"}, "header"),
                ("a.example", "/api/v1/", {"x-beta": "2"}, "deep"),
                ("x.y.b.example", "/", {}, "suffix"),
                ("other.example", "/only/this", {}, "any"),
            ]:
                got = await gw.get(host, path, headers=headers)
                assert (got.status_code, got.json()["app"]) == (200, wanted), (host, path)
            for host, path in [("other.example", "/"), ("b.example", "/")]:
                got = await gw.get(host, path)
                assert (got.status_code, code(got)) == (404, "no_route")


async def test_a_request_may_name_a_deployment_of_the_hosts_environment_and_no_other() -> None:
    async with asyncio.timeout(300):
        async with app("d1") as one, app("d2") as two, app("d3") as three:
            given = inputs_of(
                route("r1", "a.example", backend("d1")),
                route("r2", "b.example", backend("d2")),
                route("r3", "c.example", backend("d3"), environment="env_2"),
                running={"d1": [one], "d2": [two], "d3": [three]},
            )
            async with gateway(given) as gw:
                for named, status, wanted in [("d1", 200, "d1"), ("d2", 200, "d2"), ("d3", 404, ""), ("d9", 404, "")]:
                    for method in ("GET", "POST"):
                        got = await gw.ask(method, "a.example", headers={"x-deployment-id": named})
                        assert got.status_code == status
                        if wanted:
                            assert got.json()["app"] == wanted
                        else:
                            assert code(got) == "no_deployment"


async def test_weights_divide_requests_and_a_change_of_them_takes_effect() -> None:
    async with asyncio.timeout(300):
        async with app("d1") as one, app("d2") as two:
            running = {"d1": [one], "d2": [two]}

            def weighted(first: int, second: int) -> Any:
                return inputs_of(
                    route("r", "a.example", backend("d1", weight=first), backend("d2", weight=second)), running=running
                )

            async with gateway(weighted(90, 10)) as gw:

                async def shares() -> collections.Counter[str]:
                    return collections.Counter([(await gw.get("a.example")).json()["app"] for _ in range(300)])

                found = await shares()
                assert found["d1"] > 220 and found["d2"] > 5
                await gw.tell(replace(weighted(0, 100), settings=gw.inputs.settings))
                assert await shares() == {"d2": 300}


async def test_sticky_requests_stay_with_one_instance_and_deployment() -> None:
    async with asyncio.timeout(300):
        async with app("a") as a, app("b") as b, app("c") as c, app("d") as d:
            given = inputs_of(
                route("r1", "cookie.example", backend("d1"), backend("d2"), sticky={"cookie": "sid", "ttl": 60}),
                route("r2", "header.example", backend("d1"), backend("d2"), sticky={"header": "X-User"}),
                running={"d1": [a, b], "d2": [c, d]},
            )
            async with gateway(given) as gw:
                first = await gw.get("cookie.example")
                cookie = first.headers["set-cookie"].split(";")[0]
                assert cookie.startswith("sid=")
                gw.client.cookies.clear()
                same = [await gw.get("cookie.example", headers={"cookie": cookie}) for _ in range(20)]
                assert len({got.json()["app"] for got in same}) == 1
                by_user = {
                    user: {(await gw.get("header.example", headers={"x-user": str(user)})).json()["app"] for _ in "123"}
                    for user in range(40)
                }
                assert all(len(found) == 1 for found in by_user.values())
                assert set().union(*by_user.values()) == {"a", "b", "c", "d"}


async def test_redirects_and_rewrites_replace_whole_segments() -> None:
    async with asyncio.timeout(300):
        async with app("d1") as one:
            given = inputs_of(
                route("r1", "r.example", path="/old", redirect={"prefix": "/new", "code": 308}),
                route("r2", "r.example", path="/away", redirect={"scheme": "https", "host": "x.example", "code": 301}),
                route("r3", "r.example", path="/top", redirect={"prefix": "/", "code": 302}),
                route("r4", "w.example", backend("d1"), path="/api", rewrite={"prefix": "/"}),
                route("r5", "w.example", backend("d1"), path="/v1", rewrite={"prefix": "/v2/", "host": "in.example"}),
                route("r6", "w.example", backend("d1"), rewrite={"prefix": "/base"}),
                running={"d1": [one]},
            )
            async with gateway(given) as gw:
                for path, status, wanted in [
                    ("/old/x?q=1", 308, "/new/x?q=1"),
                    ("/old", 308, "/new"),
                    ("/top/x", 302, "/x"),
                    ("/top", 302, "/"),
                ]:
                    got = await gw.get("r.example", path)
                    assert (got.status_code, got.headers["location"]) == (status, f"http://r.example{wanted}")
                got = await gw.get("r.example", "/away/x")
                assert (got.status_code, got.headers["location"]) == (301, "https://x.example/away/x")
                for path, wanted in [("/api/x?q=1", "/x?q=1"), ("/api", "/"), ("/v1/x", "/v2/x"), ("/z", "/base/z")]:
                    assert (await gw.get("w.example", path)).json()["path"] == wanted
                headers = (await gw.get("w.example", "/v1")).json()["headers"]
                assert (headers["host"], headers["x-forwarded-host"]) == ("in.example", "w.example")


async def test_headers_of_gateways_cannot_be_sent_and_proxies_are_believed_as_far_as_set() -> None:
    async def _header_is(gw: Any, sent: dict[str, str], name: str, wanted: str) -> bool:
        return bool((await gw.get("a.example", headers=sent)).json()["headers"][name] == wanted)

    async with asyncio.timeout(300):
        async with app("d1") as one:
            given = inputs_of(route("r", "a.example", backend("d1")), running={"d1": [one]})
            forged = {"x-shoal-principal": "root", "X_Shoal_Principal": "root", "x-shoal-deployment": "d9"}
            trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
            sent = {**forged, "x-forwarded-for": "203.0.113.9", "traceparent": trace, "x-request-id": "mine"}
            async with gateway(given) as gw:
                got = await gw.get("a.example", headers=sent)
                headers = got.json()["headers"]
                assert not [name for name in headers if name.startswith(("x-shoal", "x_shoal"))]
                assert headers["traceparent"] == trace
                assert headers["x-forwarded-proto"] == "http"
                assert headers["x-request-id"] == got.headers["x-request-id"] != "mine"
                await gw.tell(with_settings(gw.inputs, trusted_hops=1))
                await eventually(lambda: _header_is(gw, sent, "x-request-id", "mine"), timeout_s=WAIT_S)


async def test_instances_learn_by_whom_a_request_came_and_firewalls_believe_as_many_proxies_as_are_set() -> None:
    async with asyncio.timeout(300):
        wall = policy(
            "f", match=[{"path": {"prefix": "/in"}}], firewall={"action": "deny", "cidrs": ["203.0.113.0/24"]}
        )
        async with app("d1") as one:
            given = inputs_of(route("r", "a.example", backend("d1")), wall, running={"d1": [one]})
            async with gateway(given) as gw:

                async def seen(**sent: str) -> str:
                    return str((await gw.get("a.example", headers=sent)).json()["headers"]["x-forwarded-for"])

                async def judged(*hops: str) -> int:
                    return (await gw.get("a.example", "/in", headers={"x-forwarded-for": ", ".join(hops)})).status_code

                assert await seen() == HOST  # and not another address of the machine
                assert await seen(**{"x-forwarded-for": "198.51.100.1"}) == f"198.51.100.1,{HOST}"
                assert await judged("203.0.113.9") == 200
                for hops, last in ((1, ["203.0.113.9"]), (2, ["203.0.113.9", "198.51.100.1"])):
                    await gw.tell(with_settings(gw.inputs, trusted_hops=hops))

                    async def believed(last: list[str] = last) -> bool:
                        return await judged(*last) == 403

                    await eventually(believed, timeout_s=WAIT_S)
                    assert await judged("203.0.113.9", "198.51.100.1", "198.51.100.2") == 200
                    assert await seen(**{"x-forwarded-for": "203.0.113.9"}) == f"203.0.113.9,{HOST}"


async def test_instances_of_the_gateways_own_zone_are_asked_first() -> None:
    async with asyncio.timeout(300):
        own = ServiceKey("sentinel", "gateway")
        zones = [InstanceEndpoint(address="127.0.0.1", port=at, zone=zone) for at, zone in ((1, "a"), (2, "b"))]
        async with app("a1") as a1, app("a2") as a2, app("b1") as b1, app("b2") as b2:
            placed = [replace(one, zone=zone) for one, zone in ((a1, "a"), (a2, "a"), (b1, "b"), (b2, "b"))]
            given = inputs_of(
                route("r", "a.example", backend("d1")),
                running={"d1": placed}, settings=Settings(replicas=own, region="eu", zone="a"),
            )  # fmt: skip
            given = replace(given, endpoints={**given.endpoints, own: ServiceEndpoints(endpoints=tuple(zones))})
            async with gateway(given) as gw:

                async def known() -> bool:
                    return "127.0.0.1:2::" in (await gw.admin.get("/clusters?filter=replicas")).text

                await eventually(known, timeout_s=WAIT_S)

                async def asked(count: int) -> set[str]:
                    return {(await gw.get("a.example")).json()["app"] for _ in range(count)}

                assert await asked(30) == {"a1", "a2"}
                left = tuple(one for one in placed if one.zone == "b")
                services = {**gw.inputs.endpoints, ServiceKey("apps", "d1"): ServiceEndpoints(endpoints=left)}
                await gw.tell(replace(gw.inputs, endpoints=services))

                async def elsewhere() -> bool:
                    return await asked(4) <= {"b1", "b2"}

                await eventually(elsewhere, timeout_s=WAIT_S)


async def test_requests_without_an_instance_are_refused_with_codes_of_their_own() -> None:
    async with asyncio.timeout(300):

        async def slow(request: web.Request) -> None:
            await asyncio.sleep(5)

        async with app("slow", slow) as slow_one, resetting() as (bad, got_by_bad), app("one") as one:
            given = inputs_of(
                route("r1", "none.example", backend("d1")),
                route("r2", "unknown.example", backend("")),
                route("r3", "closed.example", backend("d3")),
                route("r4", "reset.example", backend("d4"), retries=2),
                route("r5", "slow.example", backend("d5"), timeouts={"header": 0.2, "total": 10}, retries=0),
                route("r6", "total.example", backend("d5"), timeouts={"header": 0, "total": 0.2}, retries=0),
                route("r7", "broken.example", backend("d7"), wrong=1),
                running={
                    "d3": [InstanceEndpoint(address=HOST, port=any_free(HOST))],
                    "d4": [bad],
                    "d5": [slow_one],
                    "d7": [one],
                },
            )
            async with gateway(given) as gw:
                for host, status, wanted in [
                    ("none.example", 503, "no_instance"),
                    ("unknown.example", 503, "no_instance"),
                    ("closed.example", 502, "upstream_refused"),
                    ("slow.example", 504, "upstream_timeout"),
                    ("total.example", 504, "upstream_timeout"),
                    ("broken.example", 503, "policy_error"),
                ]:
                    got = await gw.get(host)
                    assert (got.status_code, code(got)) == (status, wanted), host
                assert "wrong" in gw.translator.faults["route/r7"]
                for method, tries in [("POST", 1), ("GET", 3)]:
                    got_by_bad.clear()
                    got = await gw.ask(method, "reset.example")
                    assert (got.status_code, code(got)) == (502, "upstream_reset")
                    assert got_by_bad == [method] * tries


async def test_headers_that_do_not_come_in_time_end_the_connection_and_slow_answers_do_not() -> None:
    async with asyncio.timeout(300):

        async def slow(request: web.Request) -> None:
            await asyncio.sleep(0.6)

        async with app("d1", slow) as one:
            given = inputs_of(route("r", "a.example", backend("d1")), running={"d1": [one]})
            async with gateway(with_settings(given, header_timeout_s=0.3)) as gw:
                assert (await gw.get("a.example")).status_code == 200
                reader, writer = await asyncio.open_connection(HOST, gw.port)
                writer.write(b"GET / HTTP/1.1\r\nHost: a.example\r\nX-Slow: ")
                answer = await asyncio.wait_for(reader.read(), 30)
                writer.close()
                assert answer.startswith(b"HTTP/1.1 408") and b'"code":"request_timeout"' in answer


@pytest.mark.parametrize(
    "rest", [b"GET / HTTP/1.1\r\nContent-Length: 5", b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked", UPGRADE],
    ids=["body", "chunks", "websocket"],
)  # fmt: skip
async def test_a_client_that_stops_sending_is_disconnected_also_if_the_total_timeout_is_shorter(rest: bytes) -> None:
    """The total counts from the end of a request, and not for a WebSocket: only the idle time ends these."""

    async def talk(request: web.Request) -> web.StreamResponse | None:
        if "upgrade" not in request.headers:
            return None
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        async for _ in socket:
            pass
        return socket

    async with asyncio.timeout(300):
        async with app("d1", talk) as one:
            timeouts = {"total": 0.5, "idle": 1}
            given = inputs_of(route("r", "a.example", backend("d1"), timeouts=timeouts), running={"d1": [one]})
            async with gateway(given) as gw:
                assert (await gw.get("a.example")).status_code == 200
                reader, writer = await asyncio.open_connection(HOST, gw.port)
                writer.write(rest + b"\r\nHost: a.example\r\n\r\n")
                answer = await asyncio.wait_for(reader.read(), 30)
                writer.close()
                assert answer.startswith(b"HTTP/1.1 101" if rest == UPGRADE else b"HTTP/1.1 504"), answer


def timers_of(port: int) -> list[str]:
    """Of the connections that were accepted at a port."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()]
    return [row[5].partition(":")[0] for row in rows if row[1].endswith(f":{port:04X}") and row[3] == "01"]


async def test_connections_of_clients_are_probed() -> None:
    async with asyncio.timeout(300):
        async with app("d1") as one:
            given = inputs_of(route("r", "a.example", backend("d1")), running={"d1": [one]})
            async with gateway(given) as gw, httpx.AsyncClient() as client:
                assert (await client.get(f"http://{HOST}:{gw.port}", headers={"Host": "a.example"})).status_code == 200
                timers = timers_of(gw.port)
                assert timers and set(timers) == {"02"}, timers  # the kernel's number for it


async def test_requests_that_may_be_repeated_survive_an_instance_that_resets() -> None:
    async with asyncio.timeout(300):
        async with app("good") as good, resetting() as (bad, _):
            given = inputs_of(
                route("r1", "reset.example", backend("d1")),
                route("r2", "refused.example", backend("d2")),
                running={"d1": [good, bad], "d2": [good, InstanceEndpoint(address=HOST, port=any_free(HOST))]},
            )
            async with gateway(given) as gw:
                for method in ("GET", "PUT", "DELETE"):
                    assert [(await gw.ask(method, "reset.example")).status_code for _ in range(10)] == [200] * 10
                posts = [(await gw.ask("POST", "refused.example", content=b"x")).status_code for _ in range(20)]
                assert posts == [200] * 20


async def test_draining_instances_get_nothing_new_while_others_are_there() -> None:
    async with asyncio.timeout(300):
        async with app("old") as old, app("new") as new:
            given = inputs_of(
                route("r", "a.example", backend("d1")), running={"d1": [replace(old, draining=True), new]}
            )
            async with gateway(given) as gw:
                assert {(await gw.get("a.example")).json()["app"] for _ in range(20)} == {"new"}
                alone = ServiceEndpoints(endpoints=(replace(old, draining=True),))
                await gw.tell(replace(gw.inputs, endpoints={ServiceKey("apps", "d1"): alone}))

                async def moved() -> bool:
                    got = await gw.get("a.example")
                    assert got.status_code == 200
                    return bool(got.json()["app"] == "old")

                await eventually(moved, timeout_s=WAIT_S)


async def test_a_mirror_gets_a_copy_and_its_answers_are_thrown_away() -> None:
    async with asyncio.timeout(300):
        copies: list[str] = []

        async def copied(request: web.Request) -> web.Response:
            copies.append(request.path)
            return web.Response(status=500)

        async with app("d1") as one, app("copy", copied) as other:
            given = inputs_of(
                route("r", "a.example", backend("d1"), mirror=backend("d2", percent=100.0)),
                running={"d1": [one], "d2": [other]},
            )
            async with gateway(given) as gw:
                assert (await gw.get("a.example", "/seen")).status_code == 200

                async def seen() -> bool:
                    return copies == ["/seen"]

                await eventually(seen, timeout_s=WAIT_S)


async def test_websockets_streams_and_grpc_pass_unbuffered() -> None:
    async with asyncio.timeout(300):
        release = asyncio.Event()

        async def talk(request: web.Request) -> web.StreamResponse | None:
            if request.path == "/ws":
                socket = web.WebSocketResponse()
                await socket.prepare(request)
                async for message in socket:
                    await socket.send_str(f"echo {message.data}")
                return socket
            if request.path == "/stream":
                made = web.StreamResponse()
                await made.prepare(request)
                await made.write(b"first")
                await release.wait()
                await made.write(b"last")
                return made
            return None

        async def echo(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
            async for request in requests:
                yield b"echo " + request

        server = grpc.aio.server()
        handler = grpc.stream_stream_rpc_method_handler(echo)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Echo", {"Talk": handler}),))
        port = server.add_insecure_port(f"{HOST}:0")
        await server.start()
        async with app("d1", talk) as one:
            given = inputs_of(
                route("r1", "a.example", backend("d1")),
                route("r2", "grpc.example", backend("d2", protocol="h2c")),
                running={"d1": [one], "d2": [InstanceEndpoint(address=HOST, port=port)]},
            )
            async with gateway(given) as gw, aiohttp.ClientSession() as session:
                async with session.ws_connect(f"{gw.url}/ws", headers={"host": "a.example"}) as socket:
                    await socket.send_str("hello")
                    assert (await socket.receive()).data == "echo hello"
                async with session.get(f"{gw.url}/stream", headers={"host": "a.example"}) as answer:
                    assert await answer.content.readexactly(5) == b"first"
                    release.set()
                    assert await answer.content.read() == b"last"
                options = [("grpc.default_authority", "grpc.example")]
                async with grpc.aio.insecure_channel(f"{HOST}:{gw.port}", options=options) as channel:
                    call = channel.stream_stream("/test.Echo/Talk")()
                    for text in (b"one", b"two"):  # the answer to the first comes before the second is sent
                        await call.write(text)
                        assert await call.read() == b"echo " + text
                    await call.done_writing()
        await server.stop(None)


async def test_certificates_follow_the_name_asked_for_and_are_replaced_while_serving() -> None:
    async with asyncio.timeout(300):
        authority = Authority()
        context = ssl.create_default_context(cadata=authority.certificate.decode())

        async def certificate(port: int, name: str) -> bytes:
            _, writer = await asyncio.open_connection(HOST, port, ssl=context, server_hostname=name)
            try:
                found = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
                assert isinstance(found, bytes)
                return found
            finally:
                writer.transport.abort()

        async with app("d1") as one:
            given = inputs_of(
                route("r1", "a.example", backend("d1"), tls={"secret": "a"}),
                route("r2", "b.example", backend("d1"), tls={"secret": "b"}),
                running={"d1": [one]},
            )
            both = {name: authority.secret(name, f"{name}.example") for name in "ab"}
            async with gateway(replace(given, tls=both)) as gw:
                before = {name: await certificate(gw.port, f"{name}.example") for name in "ab"}
                with pytest.raises((ssl.SSLError, ConnectionError)):
                    await certificate(gw.port, "c.example")
                assert (await gw.get("a.example")).status_code == 200  # plainly, on the same port
                await gw.tell(replace(gw.inputs, tls={**both, "a": authority.secret("a", "a.example")}))

                async def replaced() -> bool:
                    return await certificate(gw.port, "a.example") != before["a"]

                await eventually(replaced, timeout_s=WAIT_S)
                assert await certificate(gw.port, "b.example") == before["b"]
                stats = (await gw.admin.get("/stats?filter=listener_manager.listener_modified")).text
                assert stats.strip().endswith(": 0")  # no connection was drained for it

                async def expiry_known() -> bool:
                    told = (await gw.admin.get("/stats?filter=server.days_until_first_cert_expiring")).text
                    return 0 <= int(told.rpartition(":")[2]) < 10_000

                await eventually(expiry_known, timeout_s=WAIT_S)


async def test_a_region_without_instances_asks_the_next_and_a_request_hops_once() -> None:
    async with asyncio.timeout(300):
        authority = Authority()
        secret = authority.secret("gateways", "sentinel.shoal")
        near, far = any_free(HOST), any_free(HOST)
        settings = Settings(entry_secret="gateways")
        shared = route("r", "a.example", backend("d1"))
        async with app("far") as instance:
            here = replace(inputs_of(shared, settings=settings, running={}), tls={"gateways": secret})
            there = replace(here, endpoints={ServiceKey("apps", "d1"): ServiceEndpoints(endpoints=(instance,))})
            peers_of_near = (PeerGateway(region="far", addresses=(f"{HOST}:{far}",), distance=1),)
            peers_of_far = (PeerGateway(region="near", addresses=(f"{HOST}:{near}",), distance=1),)
            here = replace(with_settings(here, entry_port=near, region="near"), peers=peers_of_near)
            there = replace(with_settings(there, entry_port=far, region="far"), peers=peers_of_far)
            async with gateway(there) as second, gateway(here) as first:

                async def reached() -> bool:
                    return (await first.get("a.example")).status_code == 200

                await eventually(reached, timeout_s=WAIT_S)
                got = await first.get("a.example")
                assert got.json()["app"] == "far"
                await second.tell(replace(second.inputs, endpoints={}))

                async def nowhere() -> bool:
                    return (await first.get("a.example")).status_code == 503

                await eventually(nowhere, timeout_s=WAIT_S)
                assert code(await first.get("a.example")) == "no_instance"
                with pytest.raises((aiohttp.ClientError, ssl.SSLError)):  # clients without a certificate are refused
                    async with aiohttp.ClientSession() as session:
                        await session.get(f"https://{HOST}:{far}/", ssl=False)
