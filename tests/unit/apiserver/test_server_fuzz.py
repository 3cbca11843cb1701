"""Requests that once made the server fail, each as small as it gets, and bytes that are hardly requests at all."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.testing.servers import ADMIN_TOKEN, PATCHES, LocalServer, local_server

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
SERVICES = "/api/v1/namespaces/default/services"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
THINGS = "/apis/x.example/v1/things"
POD = {"metadata": {"name": "p"}, "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}}
SCHEMA = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
NAMES = {"plural": "things", "kind": "Thing"}
VERSION = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": SCHEMA}}
DEFINITION: dict[str, Any] = {
    "metadata": {"name": "things.x.example"},
    "spec": {"group": "x.example", "scope": "Cluster", "names": NAMES, "versions": [VERSION]},
}

Step = tuple[str, str, Any, str]  # method, target, body, kind of patch


def with_maximum(number: float) -> dict[str, Any]:
    schema = {**SCHEMA, "properties": {"n": {"type": "number", "maximum": number}}}
    version = {**VERSION, "schema": {"openAPIV3Schema": schema}}
    return {**DEFINITION, "spec": {**DEFINITION["spec"], "versions": [version]}}


CASES: dict[str, tuple[int, list[Step]]] = {
    "a grace period beyond all dates": (200, [("POST", PODS, POD, ""), ("DELETE", f"{PODS}/p", {"gracePeriodSeconds": 2**62}, "")]),
    "a pod that takes for ever to end": (
        200,
        [("POST", PODS, {**POD, "spec": {**POD["spec"], "terminationGracePeriodSeconds": 2**60}}, ""), ("DELETE", f"{PODS}/p", None, "")],  # type: ignore[dict-item]
    ),
    "a revision of thousands of digits": (422, [("GET", f"{CONFIGMAPS}?resourceVersion={'9' * 5000}", None, "")]),
    "a limit beyond 64 bits": (400, [("GET", f"{CONFIGMAPS}?limit={'9' * 400}", None, "")]),
    "a zero byte in a name": (422, [("POST", ROLES, {"metadata": {"name": "a\0"}, "rules": []}, "")]),
    "a zero byte in a namespace": (422, [("POST", "/api/v1/namespaces/%00/configmaps", {"metadata": {"name": "a"}}, "")]),
    "a service without a name": (422, [("POST", SERVICES, {"metadata": {}, "spec": {"ports": [{"port": 1}]}}, "")]),
    "a number that is whole and larger than integers": (201, [("POST", CRDS, with_maximum(1e20), "")]),
    "labels of a custom object that are no texts": (
        400, [("POST", CRDS, DEFINITION, ""), ("POST", THINGS, {"metadata": {"name": "a", "labels": {"a": 1}}}, "")],
    ),
    "annotations of a custom object patched into numbers": (
        422,
        [
            ("POST", CRDS, DEFINITION, ""),
            ("POST", THINGS, {"metadata": {"name": "a"}}, ""),
            ("PATCH", f"{THINGS}/a", [{"op": "copy", "from": "/metadata", "path": "/metadata/annotations"}] * 2, "json"),
        ],
    ),
    "a copy that makes an object too deep": (
        422,
        [
            ("POST", CRDS, DEFINITION, ""),
            ("POST", THINGS, {"metadata": {"name": "a"}, "deep": json.loads("[" * 150 + "]" * 150)}, ""),
            ("PATCH", f"{THINGS}/a", [{"op": "copy", "from": "/deep", "path": "/deep" + "/0" * 149 + "/-"}], "json"),
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
async def test_what_once_failed_is_answered(name: str) -> None:
    wanted, steps = CASES[name]

    async with local_server() as server:
        for method, target, body, patch in steps[:-1]:
            assert (await call(server, method, target, body, patch))[0] == 201
        status, message = await call(server, *steps[-1])
        assert status == wanted, message


async def test_a_watch_with_a_timeout_beyond_64_bits_is_refused() -> None:
    async with local_server() as server:
        reply = await server.transport.stream("GET", f"{CONFIGMAPS}?watch=1&timeoutSeconds={'9' * 400}")
        assert reply.status == 400
        await reply.close()


async def call(server: LocalServer, method: str, target: str, body: Any, patch: str) -> tuple[int, bytes]:
    data = b"" if body is None else json.dumps(body).encode()
    answer = await server.call(method, target, data, {"content-type": PATCHES[patch]} if patch else None)
    return answer.status, answer.body


LINES = (
    b"GET / HTTP/1.1", b"GET /api/v1/pods?watch=1 HTTP/1.1", b"POST " + CONFIGMAPS.encode() + b" HTTP/1.1", b"HEAD /api HTTP/1.0",
    b"Host: x", b"Content-Length: 5", b"Content-Length: -1", b"Content-Length: 99999999999999999999", b"Transfer-Encoding: chunked",
    b"Transfer-Encoding: gzip", b"5", b"ffffffffffffffff", b"0", b"hello", b"", b"", b"Expect: 100-continue", b"Connection: close",
    b"Upgrade: websocket", b"Connection: Upgrade", b"PRI * HTTP/2.0", b"\x16\x03\x01\x02\x00", b"X: " + b"y" * 70_000, b": x", b"A\x00: b",
    b"Authorization: Bearer " + ADMIN_TOKEN.encode(), b"Authorization: \xff\xfe", b"Accept: ;;;,,,q=1;as=Table", b"Content-Type: \xff",
    b'{"metadata":{"name":"a"}}', b"Impersonate-User: \xff", b"Range: bytes=0-1", b"Accept-Encoding: gzip",
)  # fmt: skip


@settings(max_examples=60)
@given(st.lists(st.lists(st.sampled_from(LINES) | st.binary(max_size=30), max_size=12), min_size=1, max_size=4))
async def test_no_bytes_on_a_connection_harm_the_server(requests: list[list[bytes]]) -> None:
    async with local_server() as server:
        port = await server.server.listen("127.0.0.1", 0)
        for lines in requests:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"\r\n".join(lines) + b"\r\n\r\n")
            try:
                async with asyncio.timeout(0.02):
                    answer = await reader.read(100_000)
                assert b" 500 " not in answer.split(b"\r\n")[0], answer
            except (TimeoutError, ConnectionError):
                pass
            writer.close()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /readyz HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + ADMIN_TOKEN.encode() + b"\r\n\r\n")
        assert b" 200 " in await reader.readuntil(b"\r\n")
        writer.close()
