"""Requests for group versions that another server serves."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from shoal.apiserver.context import ServerConfig
from shoal.apiserver.front_proxy import CLIENT_NAME, FrontProxyConfig
from shoal.apiserver.http import Request
from shoal.app.pki import Pki
from shoal.base.clock import FakeClock
from shoal.testing.aggregated import (
    API_SERVICES,
    BASE,
    NAMESPACE,
    AggregatedServer,
    aggregated_server,
    api_service,
    endpoints,
    register,
    service,
)
from shoal.testing.servers import ADMIN_TOKEN, LocalServer, local_server, take
from shoal.testing.waiting import eventually

NAME = f"{API_SERVICES}/v1.sea.example"
SLICES = f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices"
SERVICES = f"/api/v1/namespaces/{NAMESPACE}/services"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


@dataclass
class Pair:
    """An API server, and an aggregated one that is not registered yet."""

    server: LocalServer
    ships: AggregatedServer
    clock: FakeClock

    @property
    def passed_on(self) -> list[Request]:
        """The requests of clients that reached the aggregated server."""
        return [each for each in self.ships.requests if each.headers[b"x-remote-user"] != b"system:kube-aggregator"]

    async def condition(self) -> dict[str, Any]:
        conditions = (await self.server.get(NAME))["status"].get("conditions") or [{}]
        return dict(conditions[0])

    async def until(self, reason: str) -> dict[str, Any]:
        async def there() -> bool:
            return (await self.condition()).get("reason") == reason

        await eventually(there)
        return await self.condition()


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    ca, client = Pki(tmp_path, now=datetime.now(UTC)).ensure_front_proxy(CLIENT_NAME)
    config = ServerConfig(front_proxy=FrontProxyConfig(ca=ca.cert, certificate=client.cert, key=client.key))
    clock = FakeClock()
    async with (
        local_server(config=config, clock=clock, loopback_endpoints=True) as server,
        aggregated_server(ca.cert) as ships,
    ):
        yield Pair(server, ships, clock)


@pytest.fixture
async def registered(pair: Pair) -> Pair:
    await register(pair.server, pair.ships)
    await pair.until("Passed")
    return pair


# -- availability ------------------------------------------------------------------------------------------------------


async def test_the_condition_says_what_is_missing_until_all_checks_pass(pair: Pair) -> None:
    server = pair.server
    await server.post(API_SERVICES, api_service(caBundle=pair.ships.ca_bundle))
    missing = await pair.until("ServiceNotFound")
    assert (missing["status"], missing["message"]) == ("False", 'service/ships-api in "kube-system" is not present')
    wrong = service()
    wrong["spec"]["ports"][0]["port"] = 8443
    await server.post(SERVICES, wrong)
    assert (await pair.until("ServicePortError"))["message"] == (
        'service/ships-api in "kube-system" is not listening on port 443'
    )
    await server.patch(f"{SERVICES}/ships-api", {"spec": {"ports": [{"name": "https", "port": 443}]}})
    assert (await pair.until("EndpointsNotFound"))["message"] == (
        'cannot find endpointslices for service/ships-api in "kube-system"'
    )
    unready = endpoints(pair.ships)
    unready["endpoints"][0]["conditions"]["ready"] = False
    await server.post(SLICES, unready)
    assert (await pair.until("MissingEndpoints"))["message"] == (
        'endpointslices for service/ships-api in "kube-system" have no addresses with port name "https"'
    )
    await server.patch(f"{SLICES}/ships-api", {"endpoints": endpoints(pair.ships)["endpoints"]})
    passed = await pair.until("Passed")
    assert (passed["status"], passed["message"]) == ("True", "all checks passed")
    await server.delete(f"{SERVICES}/ships-api")
    assert (await pair.until("ServiceNotFound"))["status"] == "False"


async def test_a_server_that_fails_without_a_change_is_noticed_and_found_again(registered: Pair) -> None:
    pair = registered
    pair.ships.failing = 500
    await pair.clock.advance(31.0)
    failed = await pair.until("FailedDiscoveryCheck")
    url = f"https://127.0.0.1:{pair.ships.port}{BASE}"
    assert failed["message"] == f"failing or missing response from {url}: bad status from {url}: 500"
    assert (await pair.server.call("GET", f"{BASE}/namespaces/a/ships")).status == 503
    pair.ships.failing = 0
    await pair.clock.advance(31.0)
    await pair.until("Passed")
    assert (await pair.server.call("GET", f"{BASE}/namespaces/a/ships")).status == 200


async def test_a_certificate_that_the_bundle_does_not_cover_is_refused(pair: Pair) -> None:
    other = Pki(Path(pair.server.server.core.config.front_proxy.ca or "").parent / "other", now=datetime.now(UTC))
    await register(pair.server, pair.ships)
    await pair.until("Passed")
    bundle = base64.b64encode(other.ensure_ca().cert.read_bytes()).decode()
    await pair.server.patch(NAME, {"spec": {"caBundle": bundle}})
    failed = await pair.until("FailedDiscoveryCheck")
    assert failed["message"].endswith(
        "tls: failed to verify certificate: x509: certificate signed by unknown authority"
    )
    await pair.server.patch(NAME, {"spec": {"caBundle": None, "insecureSkipTLSVerify": True}})
    await pair.until("Passed")


# -- requests ----------------------------------------------------------------------------------------------------------


async def test_requests_reach_the_server_with_the_user_in_headers(registered: Pair) -> None:
    server = registered.server
    made = await server.post(f"{BASE}/namespaces/a/ships", {"metadata": {"name": "gull"}, "sails": 3})
    assert made["sails"] == 3
    spoof = {"X-Remote-User": "eve", "x-remote-extra-scopes": "all", "X-Remote-Group": "spies"}
    answer = await server.call("GET", f"{BASE}/namespaces/a/ships/gull?pretty=true", headers=spoof)
    assert answer.ok()["kind"] == "Ship"
    request = registered.passed_on[-1]
    assert request.query == "pretty=true"
    assert request.headers[b"x-remote-user"] == b"admin"
    assert request.headers[b"x-remote-group"] in (
        b"system:masters, system:authenticated",
        b"system:masters,system:authenticated",
    )
    assert b"authorization" not in request.headers and b"x-remote-extra-scopes" not in request.headers
    missing = await server.call("GET", f"{BASE}/namespaces/a/ships/none")
    assert (missing.status, missing.json["message"]) == (404, "no such ship")


async def test_authorization_happens_before_anything_is_passed_on(registered: Pair) -> None:
    server = registered.server
    jane = {"Impersonate-User": "jane"}
    refused = await server.call("GET", f"{BASE}/namespaces/a/ships", headers=jane)
    assert refused.status == 403
    assert 'cannot list resource "ships" in API group "sea.example" in the namespace "a"' in refused.json["message"]
    assert not registered.passed_on
    await server.post("/api/v1/namespaces", {"metadata": {"name": "a"}})
    rules = [{"apiGroups": ["sea.example"], "resources": ["ships"], "verbs": ["list"]}]
    await server.post(f"{RBAC}/namespaces/a/roles", {"metadata": {"name": "sailor"}, "rules": rules})
    binding = {
        "metadata": {"name": "sailor"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "sailor"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}],
    }
    await server.post(f"{RBAC}/namespaces/a/rolebindings", binding)
    allowed = await server.call("GET", f"{BASE}/namespaces/a/ships", headers=jane)
    assert allowed.status == 200
    assert registered.passed_on[-1].headers[b"x-remote-user"] == b"jane"
    assert not [name for name in registered.passed_on[-1].headers if name.startswith(b"impersonate-")]


async def test_watches_are_streamed_and_end_with_their_client(registered: Pair) -> None:
    server, ships = registered.server, registered.ships
    async with server.watch(f"{BASE}/namespaces/a/ships?watch=true") as events:
        await server.post(f"{BASE}/namespaces/a/ships", {"metadata": {"name": "gull"}})
        assert (await take(events, 1))[0]["object"]["metadata"]["name"] == "gull"
        await server.post(f"{BASE}/namespaces/a/ships", {"metadata": {"name": "tern"}})
        assert (await take(events, 1))[0]["object"]["metadata"]["name"] == "tern"
        assert len(ships.watches) == 1

    async def ended() -> bool:
        return not ships.watches

    await eventually(ended)


async def test_large_answers_pass_and_redirects_do_not(registered: Pair) -> None:
    answer = await registered.server.call("GET", f"{BASE}/namespaces/a/ships/gull/log")
    assert answer.body == b"all well\n" * 100_000
    moved = await registered.server.call("GET", f"{BASE}/moved")
    assert (moved.status, b"not permitted" in moved.body) == (502, True)


async def test_connections_change_their_protocol_through_the_proxy(registered: Pair) -> None:
    port = await registered.server.server.listen("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    path = f"{BASE}/namespaces/a/ships/gull/talk/now/deep"
    lines = (
        f"GET {path} HTTP/1.1",
        "Host: x",
        f"Authorization: Bearer {ADMIN_TOKEN}",
        "Connection: Upgrade",
        "Upgrade: echo",
    )
    writer.write("\r\n".join((*lines, "", "")).encode())
    async with asyncio.timeout(10):
        assert b" 101 " in await reader.readline()
        while await reader.readline() != b"\r\n":
            pass
        writer.write(b"ahoy")
        assert await reader.readexactly(4) == b"ahoy"
    writer.close()


async def test_an_unavailable_server_is_503_and_a_removed_one_404(registered: Pair) -> None:
    server = registered.server
    await server.delete(f"{SLICES}/ships-api")
    await registered.until("EndpointsNotFound")
    refused = await server.call("GET", f"{BASE}/namespaces/a/ships")
    assert (refused.status, refused.body) == (503, b"service unavailable\n")
    await server.delete(NAME)
    assert (await server.call("GET", f"{BASE}/namespaces/a/ships")).status == 404
    assert (await server.call("GET", BASE)).status == 404


# -- discovery ---------------------------------------------------------------------------------------------------------


async def test_discovery_lists_the_group(registered: Pair) -> None:
    server = registered.server
    group = await server.get("/apis/sea.example")
    assert group["preferredVersion"] == {"groupVersion": "sea.example/v1", "version": "v1"}
    assert (await server.get("/apis"))["groups"][-1]["name"] == "sea.example"
    assert [each["name"] for each in (await server.get(BASE))["resources"]] == ["ships", "ships/log"]
    item = (await server.get("/apis", accept=AGGREGATED))["items"][-1]
    assert item["metadata"]["name"] == "sea.example"
    assert item["versions"][0]["freshness"] == "Current"
    assert item["versions"][0]["resources"][0]["resource"] == "ships"
    registered.ships.failing = 500
    await registered.clock.advance(31.0)
    await registered.until("FailedDiscoveryCheck")
    item = (await server.get("/apis", accept=AGGREGATED))["items"][-1]
    assert item["versions"][0]["freshness"] == "Stale"
    await server.delete(NAME)
    assert "sea.example" not in [group["name"] for group in (await server.get("/apis"))["groups"]]


async def test_an_aggregated_server_comes_before_a_definition_of_the_same_group_version(registered: Pair) -> None:
    server = registered.server
    schema = {"openAPIV3Schema": {"type": "object"}}
    names = {"plural": "ships", "singular": "ship", "kind": "Ship"}
    versions = [{"name": "v1", "served": True, "storage": True, "schema": schema}]
    spec = {"group": "sea.example", "scope": "Namespaced", "names": names, "versions": versions}
    await server.post(
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        {"metadata": {"name": "ships.sea.example"}, "spec": spec},
    )
    assert (await server.get(f"{BASE}/namespaces/a/ships"))["metadata"] == {}  # a list of the server, without a version
    await server.delete(NAME)

    async def served_here() -> bool:
        answer = await server.call("GET", f"{BASE}/namespaces/a/ships")
        return answer.status == 200 and "resourceVersion" in answer.json["metadata"]

    await eventually(served_here)
    condition = await registered.until("Local")  # the automatic one takes its place
    assert condition["status"] == "True"


async def test_an_automatic_api_service_can_be_taken_over_and_is_restored(pair: Pair) -> None:
    """As when a metrics server is installed beside the built-in metrics API."""
    server = pair.server
    schema = {"openAPIV3Schema": {"type": "object"}}
    names = {"plural": "ships", "singular": "ship", "kind": "Ship"}
    versions = [{"name": "v1", "served": True, "storage": True, "schema": schema}]
    spec = {"group": "sea.example", "scope": "Namespaced", "names": names, "versions": versions}
    crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    await server.post(crds, {"metadata": {"name": "ships.sea.example"}, "spec": spec})

    async def automatic() -> bool:
        answer = await server.call("GET", NAME)
        return answer.status == 200 and "service" not in answer.json["spec"]

    await eventually(automatic)
    await server.post(SERVICES, service())
    await server.post(SLICES, endpoints(pair.ships))
    await server.patch(NAME, {"spec": api_service(caBundle=pair.ships.ca_bundle)["spec"]})
    await pair.until("Passed")
    assert (await server.get(f"{BASE}/namespaces/a/ships"))["kind"] == "ShipList"
    assert pair.passed_on
    await server.delete(NAME)
    await eventually(automatic)
    assert (await server.get(NAME))["status"]["conditions"][0]["reason"] == "Local"


async def test_groups_without_which_nothing_could_be_repaired_stay_here(pair: Pair) -> None:
    own = api_service(group="apiregistration.k8s.io", insecureSkipTLSVerify=True)
    own["metadata"]["name"] = "v1.apiregistration.k8s.io"
    await pair.server.post(API_SERVICES, own)
    assert (await pair.server.get(f"{API_SERVICES}/v1.apiregistration.k8s.io"))["spec"]["service"]


# -- OpenAPI -----------------------------------------------------------------------------------------------------------


async def test_openapi_documents_are_merged(registered: Pair) -> None:
    server = registered.server

    async def read() -> bool:
        return "apis/sea.example/v1" in (await server.get("/openapi/v3"))["paths"]

    await eventually(read)
    place = (await server.get("/openapi/v3"))["paths"]["apis/sea.example/v1"]["serverRelativeURL"]
    assert place == "/openapi/v3/apis/sea.example/v1?hash=ABC"
    assert "example.sea.v1.Ship" in (await server.get(place))["components"]["schemas"]
    swagger = await server.get("/openapi/v2")
    assert f"{BASE}/namespaces/{{namespace}}/ships" in swagger["paths"]
    assert "/apis/other.example/v1/" not in swagger["paths"] and "/api/v1/pods" in swagger["paths"]
    assert swagger["definitions"]["example.sea.v1.Ship"]["description"] == "A Ship sails."
    assert "unused" not in swagger["definitions"]
    protobuf = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
    assert b"example.sea.v1.Ship" in (await server.call("GET", "/openapi/v2", headers={"accept": protobuf})).body
    await server.delete(NAME)
    assert "apis/sea.example/v1" not in (await server.get("/openapi/v3"))["paths"]
    assert "example.sea.v1.Ship" not in (await server.get("/openapi/v2"))["definitions"]
