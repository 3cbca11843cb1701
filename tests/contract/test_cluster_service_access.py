"""Who may call what of the services for agents and relays: every method for every kind of token."""

from __future__ import annotations

import asyncio
import pkgutil
from collections.abc import AsyncIterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pyqwest
import pytest
from connectrpc.code import Code
from connectrpc.errors import ConnectError
from protobuf import Oneof

from shoal import wire
from shoal.testing.fleet import ControlPlane, control_plane
from shoal.wire.fleet.v1 import cluster_pb as pb
from shoal.wire.fleet.v1 import relay_pb
from shoal.wire.fleet.v1.cluster_connect import ClusterService, ClusterServiceClient
from shoal.wire.fleet.v1.relay_connect import RelayService, RelayServiceClient

CALLERS = ("anonymous", "viewer", "editor", "admin", "edge", "agent", "other-agent", "relay")
IDENTITY = pb.Identity(cluster="c1", region="eu", shard="default", agent="a")
_OTHER = "permission_denied"
_PASSED_ON = {"agent": "ok", "other-agent": _OTHER, "relay": "unauthenticated"}  # a relay needs the agent's token too
_STREAMS = {"agent": "ok", "other-agent": _OTHER, "relay": _OTHER}  # a relay has a stream of its own
# A method that is missing here fails the test: think about who may call it.
EXPECTED = {
    "Join": _PASSED_ON,
    "Heartbeat": _PASSED_ON,
    "GetDesiredDeployment": _PASSED_ON,
    "GetDesiredSentinel": _PASSED_ON,
    "ReportDeploymentStatus": _PASSED_ON,
    "ReportSentinelStatus": _PASSED_ON,
    "WatchDeployments": _STREAMS,
    "WatchSentinels": _STREAMS,
    "SyncDeployments": _STREAMS,
    "SyncSentinels": _STREAMS,
    "Follow": {"agent": _OTHER, "other-agent": _OTHER, "relay": "ok"},
}


def snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")


async def tokens(control: ControlPlane) -> dict[str, str]:
    made = {"anonymous": ""}
    for role in ("viewer", "editor", "admin"):
        made[role], _ = await control.tokens.create(kind="user", name=role, workspace_id="default", role=role)
    made["edge"], _ = await control.tokens.create(kind="edge", name="e")
    made["agent"], _ = await control.tokens.create(kind="agent", name="a", cluster="c1", region="eu")
    made["other-agent"], _ = await control.tokens.create(kind="agent", name="b", cluster="c2", region="eu")
    made["relay"], _ = await control.tokens.create(kind="relay", name="r", region="eu")
    return made


def request_of(method: str) -> Any:
    """A request in the name of the agent of c1."""
    if method == "Join":
        return pb.JoinRequest(identity=IDENTITY, public_key=b"k" * 32)
    if method.startswith("Get"):
        return pb.GetDesiredRequest(identity=IDENTITY, key="deployment/x")
    if method.startswith("Sync"):
        return pb.SyncRequest(identity=IDENTITY)
    if method == "Heartbeat":
        return pb.HeartbeatRequest(identity=IDENTITY)
    if method == "ReportDeploymentStatus":
        return pb.ReportDeploymentStatusRequest(identity=IDENTITY, sequence=1)
    if method == "ReportSentinelStatus":
        return pb.ReportSentinelStatusRequest(identity=IDENTITY, sequence=1)
    if method == "Follow":
        return _one(relay_pb.FollowRequest())
    return _one(pb.WatchRequest(request=Oneof("hello", pb.Hello(identity=IDENTITY))))


async def _one(first: Any) -> AsyncIterator[Any]:
    yield first


async def outcome(client: Any, method: str, headers: dict[str, str]) -> str:
    """The code of the refusal; ``ok`` when the caller was let through, whatever came of it."""
    try:
        call = getattr(client, snake(method))(request_of(method), headers=headers)
        if hasattr(call, "__aiter__"):
            async for _ in call:
                break
        else:
            await call
    except ConnectError as error:
        return error.code.name.lower() if error.code in (Code.UNAUTHENTICATED, Code.PERMISSION_DENIED) else "ok"
    return "ok"


async def test_every_method_answers_every_kind_of_token_as_the_table_says(tmp_path: Path) -> None:
    async with asyncio.timeout(60), control_plane(tmp_path) as control:
        for cluster in ("c1", "c2"):
            await control.add_cluster(cluster, region="eu")
        known = await tokens(control)
        transport = pyqwest.HTTPTransport(tls_ca_cert=control.ca, http_version=pyqwest.HTTPVersion.HTTP2)
        async with transport:
            http = pyqwest.Client(transport)
            for service, client in (
                (ClusterService, ClusterServiceClient(control.url, http_client=http)),
                (RelayService, RelayServiceClient(control.url, http_client=http)),
            ):
                for method in service.desc().methods:
                    assert method.name in EXPECTED, f"{method.name}: say here who may call it"
                    for caller in CALLERS:
                        headers = {"authorization": f"Bearer {known[caller]}"} if known[caller] else {}
                        found = await outcome(client, method.name, headers)
                        expected = EXPECTED[method.name].get(caller)
                        if expected is None:  # people, edges, and who has no token
                            expected = "unauthenticated" if caller == "anonymous" else "permission_denied"
                        assert found == expected, f"{method.name} by {caller}"


def test_every_service_on_the_wire_has_a_test_of_its_callers() -> None:
    """Those of the navigator's are in ``test_navigator_service.py``. A new service needs a table like the one above."""
    modules = [
        each.name for each in pkgutil.walk_packages(wire.__path__, "shoal.wire.") if each.name.endswith("_connect")
    ]
    found = {
        (name, tuple(method.name for method in service.desc().methods) if service is not ClusterService else ())
        for module in map(import_module, modules)
        for name, service in vars(module).items()
        if name.endswith("Service") and hasattr(service, "desc")
    }
    assert found == {("ClusterService", ()), ("RelayService", ("Follow",)), ("ManagerService", ("Connect",))}


@pytest.mark.parametrize("cluster", ["c2"])
async def test_an_agent_speaks_for_no_other_cluster_whatever_it_says(tmp_path: Path, cluster: str) -> None:
    async with asyncio.timeout(60), control_plane(tmp_path) as control:
        for name in ("c1", cluster):
            await control.add_cluster(name, region="eu")
        token = await control.agent_token("c1", "eu")
        async with control.agent("c1", "eu", token=token) as agent:
            agent.identity = pb.Identity(cluster=cluster, region="eu", shard="default", agent="a", epoch=1)
            for method in ("Join", "Heartbeat"):
                request: Any = (
                    pb.JoinRequest(identity=agent.identity) if method == "Join"
                    else pb.HeartbeatRequest(identity=agent.identity)
                )  # fmt: skip
                with pytest.raises(ConnectError) as refused:
                    await getattr(agent.client, snake(method))(request, headers=agent.headers)
                assert refused.value.code is Code.PERMISSION_DENIED
