"""What strangers send, mutated: no error but the expected ones, bounded time and memory. SHOAL_FUZZ_INPUTS sets how many."""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import orjson
import pytest
from envoy.service.discovery.v3 import discovery_pb2
from google.protobuf.message import DecodeError
from tests.chaos.fuzzing import FuzzTarget, fuzz

from shoal.apiserver.http import HttpServer
from shoal.app.backup.archive import extract, new_archive
from shoal.base.clock import FakeClock
from shoal.base.spdy import HeaderPacker, SpdyConnection, SpdyError, control_frame, data_frame
from shoal.base.websocket import Decoder, Opcode, WebSocketError, encode
from shoal.crds.sentinel import read_policy, read_route
from shoal.errors import ApiError, ShoalError
from shoal.kube import fieldselector, jsonutil, labels, quantity, yamlcodec
from shoal.kube.cel import environment, types
from shoal.kube.cel.errors import CelError
from shoal.kube.decode import normalize
from shoal.kube.patch import json_patch, merge_patch, strategic
from shoal.kube.protobuf import decode
from shoal.kube.schema.builtin import type_of_kind
from shoal.navigator.answers.query.parser import parse as parse_query
from shoal.sentinel.model import GatewayPolicy, GatewayRoute, Inputs, ServiceKey
from shoal.sentinel.translate.endpoints import service_endpoints
from shoal.sentinel.translate.reading import key_set_of, peers_of, policy_of, route_of, tls_secret_of
from shoal.sentinel.translate.translator import translate
from shoal.sentinel.xds.model import CLUSTER, ENDPOINTS, ResourceRef, XdsResource
from shoal.sentinel.xds.protocol import XdsMachine
from shoal.sentinel.xds.server import DiscoveryServer
from shoal.sync.versions import Cursor, decode_cursor, encode_cursor, read_cursor
from shoal.testing.servers import ADMIN_TOKEN, PATCHES, local_server

pytestmark = pytest.mark.timeout(3600)

INPUTS = int(os.environ.get("SHOAL_FUZZ_INPUTS", "100000")) // 16  # for each target
SEED = int(os.environ.get("SHOAL_FUZZ_SEED", "1"))
POD = {
    "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "default", "labels": {"a": "b"}},
    "spec": {"containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80}], "env": [{"name": "A", "value": "b"}],
                             "resources": {"limits": {"cpu": "100m", "memory": "1Gi"}}}],
             "tolerations": [{"key": "a", "operator": "Exists"}], "volumes": [{"name": "v", "emptyDir": {}}]},
}  # fmt: skip
POD_TYPE = type_of_kind("", "v1", "Pod")
KEYS = {"main": b"k" * 32}
ROUTE = {
    "environment": "e", "host": "a.example", "path": "/x", "headers": [{"name": "a", "exact": "b"}],
    "backends": [{"deployment": "d", "service": "s", "namespace": "n", "port": 80, "weight": 50}],
}  # fmt: skip


def text(run: Any) -> Any:
    """Run on the text of an input."""
    return lambda data: run(data.decode("utf-8", "replace"))


def json_of(data: bytes) -> Any:
    return jsonutil.loads(data)


def patched(apply: Any) -> Any:
    def run(data: bytes) -> None:
        document = orjson.loads(orjson.dumps(POD))
        result = apply(document, json_of(data))
        if isinstance(result, dict):
            normalize(result, POD_TYPE)

    return run


def cel(expression: str) -> None:
    root = environment.Env({"self": types.DYN, "oldSelf": types.DYN})
    program = environment.compile(expression, root)
    program.evaluate({"self": {"a": 1, "b": "text", "c": [1, 2, 3]}, "oldSelf": {}})


def cursor(value: str) -> None:
    read_cursor(value)
    decode_cursor(value, KEYS)


def websocket(data: bytes) -> None:
    decoder = Decoder(server=True)
    for at in range(0, len(data), 1000):
        decoder.feed(data[at : at + 1000])


def spdy(data: bytes) -> None:
    connection = SpdyConnection()
    for at in range(0, len(data), 1000):
        connection.receive(data[at : at + 1000])
        connection.outgoing()


def route(data: bytes) -> None:
    spec = json_of(data)
    if not isinstance(spec, dict):
        return
    routes, policies = {}, {}
    if any(name in spec for name in ("keyAuth", "jwt", "rateLimit", "firewall", "requestSize", "cors")):
        policies["p"] = GatewayPolicy(name="p", environment="e", spec=read_policy(spec))
        routes["r"] = GatewayRoute(name="r", environment="e", host="a.example", spec=read_route(ROUTE))
    else:
        read = read_route(spec)
        routes["r"] = GatewayRoute(name="r", environment="e", host=read.host, path=read.path, spec=read)
    translate(Inputs(routes=routes, policies=policies))


HEADERS = {"streamType": "data", "port": "80", "requestID": "1"}
SPDY_SEED = (
    control_frame(1, 0, (1).to_bytes(4, "big") + bytes(6) + HeaderPacker().pack(HEADERS))
    + data_frame(1, b"hello", fin=True)
    + control_frame(6, 0, (1).to_bytes(4, "big"))
)
MASK = b"\1\2\3\4"
PATCH_TOKENS = (
    b'{"op":"add","path":"/spec/-","value":1},',
    b'"/metadata/labels/a"',
    b'"~1"',
    b"$patch",
    b"$retainKeys",
)

TARGETS = [
    FuzzTarget(name="label selectors", run=text(labels.parse), allowed=(ApiError,), tokens=(b" in ", b" notin ", b"(", b",", b"!", b"!=", b"=="), seeds=(b"a=b,c!=d", b"a in (b,c),!d", b"x notin (y)", b"a>1")),
    FuzzTarget(name="field selectors", run=text(fieldselector.parse), allowed=(ApiError,), tokens=(b"=", b"!=", b",", b"\\,"), seeds=(b"metadata.name=a", b"status.phase!=Running,spec.nodeName=n")),
    FuzzTarget(name="quantities", run=text(quantity.parse), allowed=(ApiError, ValueError), tokens=(b"Ki", b"e", b"E", b".", b"-", b"n"), seeds=(b"100m", b"1.5Gi", b"12e6", b"-1")),
    FuzzTarget(name="JSON of pods", run=lambda data: normalize(jsonutil.loads_object(data), POD_TYPE), allowed=(ApiError,), seeds=(orjson.dumps(POD),)),
    FuzzTarget(name="YAML", run=yamlcodec.loads, allowed=(ApiError,), tokens=(b"- ", b": ", b"&a ", b"*a", b"<<: ", b"|\n", b"!!int ", b"? "), seeds=(b"a: [1, 2]\nb: &x {c: d}\ne: *x\n", orjson.dumps(POD))),
    FuzzTarget(name="protobuf", run=decode, allowed=(ApiError,), tokens=(b"\x0a\x02", b"\x12\xff\xff\xff\xff\x0f", b"\x80" * 10), seeds=(b"k8s\x00\x0a\x09\x0a\x02v1\x12\x03Pod\x12\x0b\x0a\x09\x0a\x01a\x1a\x04test", b"k8s\x00")),
    FuzzTarget(name="JSON patches", run=patched(json_patch.apply), allowed=(ApiError,), tokens=PATCH_TOKENS, seeds=(b'[{"op":"replace","path":"/spec/containers/0/image","value":"b"},{"op":"copy","from":"/spec","path":"/metadata/annotations"}]', b'[{"op":"test","path":"/kind","value":"Pod"},{"op":"remove","path":"/metadata/labels"},{"op":"move","from":"/spec/volumes","path":"/x"}]')),
    FuzzTarget(name="merge patches", run=patched(merge_patch.apply), allowed=(ApiError,), seeds=(b'{"metadata":{"labels":{"a":null,"c":"d"}},"spec":{"containers":[]}}', orjson.dumps(POD))),
    FuzzTarget(name="strategic patches", run=patched(lambda doc, patch: strategic.apply(doc, patch, POD_TYPE)), allowed=(ApiError,), tokens=PATCH_TOKENS, seeds=(b'{"spec":{"containers":[{"name":"c","image":"b"},{"$patch":"delete","name":"d"}],"$setElementOrder/containers":[{"name":"c"}]}}', b'{"spec":{"$retainKeys":["containers"],"tolerations":[{"key":"a","$patch":"replace"}]}}')),
    FuzzTarget(name="CEL", run=text(cel), allowed=(CelError, ApiError), bounded=False, tokens=(b"self.", b".all(x, ", b".map(", b" ? ", b" : ", b" && ", b"matches('", b"[", b"{", b"size(", b"==", b"+"), seeds=(b"self.a > 1 && self.b.startsWith('t')", b"self.c.all(x, x < 5) || has(oldSelf.a)", b"self.c.map(x, x * 2).exists(y, y == 4)", b"'a'.matches('(a+)+$') ? [1] : [2]")),
    FuzzTarget(name="cursors", run=text(cursor), allowed=(ApiError,), tokens=(b".", b"main", b"~"), seeds=(encode_cursor(Cursor({"main": (1, 5)}), KEYS).encode(), encode_cursor(Cursor({"main": (1, 5)}), KEYS, {"main": "abc"}).encode())),
    FuzzTarget(name="routes and policies", run=route, allowed=(ApiError, msgspec.ValidationError), seeds=(orjson.dumps(ROUTE), b'{"environment":"e","rateLimit":{"limit":10,"identifier":{"remoteIp":{}}}}', b'{"environment":"e","jwt":{"issuer":"https://a.example","audiences":["b"]}}', b'{"environment":"e","cors":{"origins":["https://a.example"]}}', b'{"environment":"e","firewall":{"cidrs":["10.0.0.0/8"],"paths":["/x"]}}', b'{"environment":"e","requestSize":{"maxBytes":10}}')),
    FuzzTarget(name="WebSocket frames", run=websocket, allowed=(WebSocketError,), tokens=(b"\x80\x80" + MASK, b"\x00\x80" + MASK, b"\x89\x80" + MASK, b"\x81\xfe\xff\xff" + MASK), seeds=(encode(Opcode.BINARY, b"hello", mask=MASK) + encode(Opcode.PING, b"", mask=MASK), encode(Opcode.TEXT, b"x" * 1000, mask=MASK), b"\x01\x80" + MASK + (b"\x00\x80" + MASK) * 50)),
    FuzzTarget(name="SPDY frames", run=spdy, allowed=(SpdyError,), tokens=(control_frame(6, 0, bytes(4)), data_frame(1, b""), control_frame(4, 0, bytes(12))), seeds=(SPDY_SEED, SPDY_SEED * 3)),
    FuzzTarget(name="queries", run=text(lambda value: parse_query(value, now_s=1e9)), allowed=(ApiError,), tokens=(b" where ", b" and ", b" or ", b" not ", b"(", b"'", b" ~ ", b" count by ", b" order by ", b" in ("), seeds=(b"pods where image ~ 'demo' and ready count by region", b"nodes where cpu > 4 or not ready order by name limit 5", b"services where labels.app in ('a', 'b')")),
]  # fmt: skip


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
async def test_no_input_breaks_a_reader(target: FuzzTarget) -> None:
    await fuzz(target, inputs=INPUTS, seed=SEED)


SLICE_TYPE = type_of_kind("discovery.k8s.io", "v1", "EndpointSlice")
ABOUT = {"name": "a", "namespace": "n", "labels": {"kubernetes.io/service-name": "s", "shoal.dev/environment": "e"}}
ADDRESSES = [{"addresses": ["10.0.0.1"], "conditions": {"ready": True, "serving": True}, "zone": "z"}]
KEY = {"digest": "ab" * 32, "subject": "s", "permissions": ["p"], "expires": 1e9, "meta": {"a": 1}}


def gateway_objects(data: bytes) -> None:
    """What a gateway reads from its cluster: the API server has read it before, and lets through what its type allows."""
    document = json_of(data)
    keys = orjson.dumps(document, default=str) if not isinstance(document, int) else data
    encoded = {
        name: base64.b64encode(value).decode() for name, value in (("key", keys), ("tls.crt", data), ("tls.key", data))
    }
    obj = {"metadata": ABOUT, "spec": document, "data": encoded}
    for read in (route_of, policy_of, tls_secret_of, key_set_of):
        read(obj)
    peers_of(data.decode("utf-8", "replace"))
    if isinstance(document, dict):
        found = {**document, "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": ABOUT}
        normalize(found, SLICE_TYPE)
        endpoints = service_endpoints([found])
        translate(Inputs(routes={}, policies={}, endpoints={ServiceKey("n", "s"): endpoints}))


async def test_no_object_breaks_what_a_gateway_reads() -> None:
    target = FuzzTarget(
        name="gateway objects", run=gateway_objects, allowed=(ApiError,),
        seeds=(orjson.dumps({"endpoints": ADDRESSES, "ports": [{"port": 80, "protocol": "TCP"}], "addressType": "IPv4"}),
               orjson.dumps([{"region": "eu", "addresses": ["10.0.0.1:80"], "distance": 1}]), orjson.dumps(ROUTE), orjson.dumps(KEY)),
    )  # fmt: skip
    await fuzz(target, inputs=INPUTS, seed=SEED)


async def test_no_request_of_envoy_breaks_the_discovery_service() -> None:
    """An Envoy that connects anew for each input and sends it as its first message."""
    server = DiscoveryServer(XdsMachine(), clock=FakeClock())
    cluster = ResourceRef(CLUSTER, "a")
    server.publish({CLUSTER: {"a": XdsResource(cluster, "1", b"x")}})

    def message(**fields: Any) -> bytes:
        made: bytes = discovery_pb2.DeltaDiscoveryRequest(**fields).SerializeToString()
        return made

    async def ask(data: bytes) -> None:
        async def requests() -> AsyncIterator[Any]:
            yield discovery_pb2.DeltaDiscoveryRequest.FromString(data)

        async for _ in server.DeltaAggregatedResources(requests(), None):
            pass

    refused = {"code": 3, "message": "no"}
    target = FuzzTarget(
        name="xDS requests", run=ask, allowed=(DecodeError,), tokens=(CLUSTER.encode(), ENDPOINTS.encode(), b"*", b"a", b"1"),
        seeds=(message(type_url=CLUSTER, resource_names_subscribe=["*"], initial_resource_versions={"a": "0"}),
               message(type_url=ENDPOINTS, resource_names_subscribe=["a"], response_nonce="1"),
               message(type_url=CLUSTER, response_nonce="1", error_detail=refused, resource_names_unsubscribe=["a"])),
    )  # fmt: skip
    await fuzz(target, inputs=INPUTS, seed=SEED)


class Wire(asyncio.Transport):
    """The transport of a connection that keeps what the server writes."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.closing = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True

    abort = close

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing is buffered."""

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        """The input is given in pieces whatever the server wants."""

    resume_reading = pause_reading


async def test_no_bytes_break_the_http_front() -> None:
    """Bytes of a connection to the API server, with its real handler, in pieces. What waits for an answer is cut off."""
    head = b"Host: a\r\nAuthorization: Bearer " + ADMIN_TOKEN.encode() + b"\r\n"
    body = orjson.dumps({"metadata": {"generateName": "a-"}})
    target_path = b"/api/v1/namespaces/default/configmaps"
    post = b"POST " + target_path + b"?dryRun=All HTTP/1.1\r\n" + head
    seeds = (
        b"GET " + target_path + b"?limit=1 HTTP/1.1\r\n" + head + b"\r\n",
        post + b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body,
        post + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(body), body),
        b"GET /livez HTTP/1.1\r\n\r\n" * 3,
        b"GET " + target_path + b"?watch=1 HTTP/1.1\r\n" + head + b"Connection: close\r\n\r\n",
        b"GET /api/v1/namespaces/default/pods/a/exec HTTP/1.1\r\n"
        + head
        + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    )
    tokens = (
        b"\r\n",
        b"\r\n\r\n",
        b"Content-Length: ",
        b"Transfer-Encoding: chunked\r\n",
        b"%2F",
        b"?",
        b"Expect: 100-continue\r\n",
        b"\r\n0\r\n\r\n",
    )
    async with local_server() as server:
        front = HttpServer(
            server.server.handler.handle,
            server.server.handler.on_error,
            loop=asyncio.get_running_loop(),
            clock=FakeClock(),
        )

        async def send(data: bytes) -> None:
            wire, connection = Wire(), front()
            connection.connection_made(wire)
            for at in range(0, len(data), 1000):
                if not wire.closing:
                    connection.data_received(data[at : at + 1000])
            await asyncio.sleep(0)
            connection.connection_lost(None)
            assert b"HTTP/1.1 500 " not in wire.written, bytes(wire.written[:1000])

        await fuzz(
            FuzzTarget(name="HTTP front", run=send, allowed=(), seeds=seeds, tokens=tokens), inputs=INPUTS, seed=SEED
        )
        assert not front.connections and (await server.call("GET", "/readyz")).status == 200
        await front.stop()


async def test_no_request_breaks_the_api_server() -> None:
    """The body is an input; method, path, kind of patch and query follow from it."""
    maps = "/api/v1/namespaces/default/configmaps"
    paths = (
        maps,
        f"{maps}/a",
        "/api/v1/namespaces/default/pods",
        "/api/v1/namespaces/default/pods/a",
        "/apis/apps/v1/deployments",
    )
    kinds = (*PATCHES.values(), "application/json", "application/yaml", "application/vnd.kubernetes.protobuf")
    queries = (
        "",
        "?dryRun=All",
        "?fieldManager=f&force=true",
        "?labelSelector=%s",
        "?fieldSelector=%s",
        "?limit=%s&continue=%s",
    )

    async with local_server() as server:

        async def send(data: bytes) -> None:
            at = len(data) + sum(data[:8])
            query = queries[at % len(queries)].replace("%s", data[:40].hex())
            method = ("POST", "PUT", "PATCH", "DELETE", "GET")[at % 5]
            headers = {"content-type": kinds[at % len(kinds)]}
            answer = await server.call(method, paths[at % len(paths)] + query, data, headers)
            assert answer.status != 500, answer.body[:500]

        body = orjson.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"a": "b"}})
        target = FuzzTarget(name="requests", run=send, allowed=(), seeds=(body, orjson.dumps(POD), b"[]", b"k8s\x00"))
        await fuzz(target, inputs=INPUTS, seed=SEED)
        assert ADMIN_TOKEN and (await server.call("GET", "/readyz")).status == 200


async def test_no_file_breaks_the_reading_of_backups(tmp_path: Path) -> None:
    with new_archive(tmp_path / "seed.tar", version="1", created_at="") as archive:
        archive.add_bytes("control/files/a", b"a" * 600)
    numbers: AsyncIterator[int] = _count()

    async def read(data: bytes) -> None:
        folder = tmp_path / str(await anext(numbers))
        (tmp_path / "fuzzed.tar").write_bytes(data)
        extract(tmp_path / "fuzzed.tar", folder)

    target = FuzzTarget(
        name="backups", run=read, allowed=(ShoalError,), seeds=((tmp_path / "seed.tar").read_bytes(),),
        tokens=(b"../", b"ustar", b"0000777", b"L", b"x", b"g"),
    )  # fmt: skip
    await fuzz(target, inputs=INPUTS // 10, seed=SEED)


async def _count() -> AsyncIterator[int]:
    number = 0
    while True:
        number += 1
        yield number
