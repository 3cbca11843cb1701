"""An agent needs nothing that only Shoal's API server has: all its requests are in Kubernetes' published API."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from published_api import field_faults, operation_faults

from shoal.apiserver.inprocess import InProcessTransport
from shoal.apiserver.user import User
from shoal.base.clock import RealClock
from shoal.client import Client, Fence, builtin
from shoal.crds.sentinel import GROUP, definitions
from shoal.krane import rbac
from shoal.testing.fleet_recorder import FleetRecorder
from shoal.testing.fleets import ENVIRONMENT, PROJECT, LocalFleet, app, app_path
from shoal.testing.servers import local_server
from shoal.testing.waiting import eventually

pytestmark = pytest.mark.timeout(300)  # enough for a busy machine

ACCOUNT = f"system:serviceaccount:{rbac.NAMESPACE}:{rbac.SERVICE_ACCOUNT}"
POLICY = {
    "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
    "rules": [{"level": "Request", "users": [ACCOUNT]}, {"level": "None"}],
}  # fmt: skip
EVERYTHING = {
    "command": ["serve"], "args": ["--all"], "env": {"MODE": "test"}, "secrets": ["db"],
    "resources": {"cpu": "100m", "memory": "64Mi"}, "healthcheck": {"http": {"path": "/health"}},
    "shutdownSignal": "SIGTERM", "terminationSeconds": 5, "git": {"sha": "0" * 40, "branch": "main"},
}  # fmt: skip
HEADERS = {"accept", "authorization", "content-type", "user-agent"}
FENCE = "shoal-fence"


def inside(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    about = {"name": name, "project": PROJECT, "environment": ENVIRONMENT}
    return {"apiVersion": "shoal.dev/v1", "kind": kind, "metadata": about, "spec": spec}


async def test_every_operation_of_an_agent_is_in_the_published_api_with_published_parameters_and_fields(
    tmp_path: Path,
) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(yaml.safe_dump(POLICY))

    with LocalFleet(tmp_path / "fleet") as fleet:
        await asyncio.to_thread(lambda: fleet.start({"eu-1": "eu"}, flags=("--audit-policy", str(policy))))
        await asyncio.to_thread(lambda: fleet.start_agents([("eu-1", "default")], elect=True))
        async with FleetRecorder(fleet) as witness:
            await live_a_life(fleet, witness)
        for process in (
            fleet.agents["eu-1", "default"],
            fleet.clusters["eu-1"].process,
        ):  # the log is complete then
            await asyncio.to_thread(process.stop)
        lines = (fleet.clusters["eu-1"].folder / "audit.log").read_bytes().splitlines()
        check([orjson.loads(line) for line in lines])


async def live_a_life(fleet: LocalFleet, witness: FleetRecorder) -> None:
    """Create, change and delete an object of every kind."""

    def apply(*documents: dict[str, Any]) -> Any:
        return asyncio.to_thread(fleet.api.apply, *documents)

    async def ready(state: str = "Ready") -> None:
        read = partial(asyncio.to_thread, fleet.api.app_status, "web")
        await eventually(read, until=lambda found: found["state"] == state, timeout_s=60, explain=fleet.logs)

    await apply(inside("Secret", "db", {"values": {"PASSWORD": "hunter2"}}), app("web", {"eu": 1}, **EVERYTHING))
    await ready()
    await apply(
        inside("Route", "front", {"host": "shop.example", "app": "web"}),
        inside("Policy", "limit", {"requestSize": {"maxBytes": 1000}}),
        inside("ApiKey", "key", {}),
    )
    await apply(app("web", {"eu": 2}, **EVERYTHING))
    await ready()
    scaled = {"autoscaling": {"min": 1, "max": 3, "cpu": 50}}
    await apply(app("web", {"eu": 1}, **EVERYTHING, **scaled))
    await witness.settled()
    await apply(app("web", {"eu": 1}, **{**EVERYTHING, "image": "shoal/echo:2"}))
    gateways = f"/projects/{PROJECT}/environments/{ENVIRONMENT}/sentinels"
    forget = partial(asyncio.to_thread, fleet.api.request, "POST", f"{gateways}/eu/forget")
    await eventually(forget, until=lambda reply: reply.body["pods"], timeout_s=60)  # simulated ones take no routes
    await ready()
    await asyncio.to_thread(fleet.api.request, "POST", f"{app_path('web')}/stop")
    await ready("Stopped")
    await asyncio.to_thread(fleet.api.request, "POST", f"{app_path('web')}/start")
    await ready()
    for kind, name in (("routes", "front"), ("policies", "limit"), ("apikeys", "key"), ("apps", "web")):
        await asyncio.to_thread(
            fleet.api.request, "DELETE", f"/projects/{PROJECT}/environments/{ENVIRONMENT}/{kind}/{name}"
        )
    await witness.settled()


def check(events: list[dict[str, Any]]) -> None:
    ours = {each["spec"]["names"]["kind"] for each in definitions()}
    faults: set[str] = set()
    seen: set[tuple[str, str]] = set()
    for event in events:
        assert event["user"]["username"] == ACCOUNT
        seen.add((event["verb"], (event.get("objectRef") or {}).get("resource", "")))
        faults.update(operation_faults(event["verb"], event["requestURI"]))
        body = event.get("requestObject")
        if isinstance(body, dict) and not (body.get("kind") in ours and body.get("apiVersion", "").startswith(GROUP)):
            if "kind" in body:  # a merge patch has none, and is checked by the server
                faults.update(field_faults(body))
    assert not faults, sorted(faults)
    wanted = {"deployments", "services", "secrets", "poddisruptionbudgets", "networkpolicies", "serviceaccounts"}
    wanted |= {"horizontalpodautoscalers", "sentinelroutes", "sentinelpolicies", "leases", "namespaces"}
    assert wanted <= {resource for _, resource in seen}, "some kinds were never written"
    assert {("delete", "deployments"), ("patch", "deployments"), ("watch", "pods")} <= seen


async def test_requests_carry_no_header_of_shoals_but_the_fence_which_other_servers_ignore() -> None:
    """Servers ignore headers they do not know. Without a server that checks it, the fence is its deadline alone."""

    class Recording:
        def __init__(self, inner: InProcessTransport) -> None:
            self._inner, self.headers = inner, set[str]()

        async def request(self, method: str, target: str, *, headers: Any = None, body: bytes = b"") -> Any:
            self.headers |= {name.lower() for name in headers or ()}
            passed = {name: value for name, value in (headers or {}).items() if name.lower() != FENCE}
            return await self._inner.request(method, target, headers=passed, body=body)  # as another server would

        async def stream(self, method: str, target: str, *, headers: Any = None) -> Any:
            return await self._inner.stream(method, target, headers=headers)

        async def close(self) -> None:
            await self._inner.close()

    async with local_server() as server:
        user = User("admin", ("system:masters", "system:authenticated"))
        recording = Recording(InProcessTransport(server.server.handler, user))
        clock = RealClock()
        fence = Fence("shoal-system", "krane", "a", clock=clock)
        fence.begin(1, clock.monotonic() + 60)
        client = Client(recording, clock=clock).fenced(fence)
        await client.of(builtin("configmaps")).apply(
            {"metadata": {"name": "a", "namespace": "default"}, "data": {"a": "b"}}
        )
        await client.of(builtin("configmaps")).get("a", "default")
        assert recording.headers - HEADERS == {FENCE}
