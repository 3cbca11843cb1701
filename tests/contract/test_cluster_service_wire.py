"""The cluster service as others speak to it: a stock gRPC client, curl with JSON, and callers who get it wrong."""

from __future__ import annotations

import asyncio
import json
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import grpc
import pytest
from connectrpc.code import Code
from connectrpc.errors import ConnectError
from protobuf import Oneof

from shoal.testing.fleet import AgentClient, ControlPlane, control_plane
from shoal.wire.fleet.v1 import cluster_pb as pb
from shoal.wire.fleet.v1.cluster_connect import ClusterService

SERVICE = ClusterService.desc().type_name


def channel(control: ControlPlane) -> grpc.aio.Channel:
    credentials = grpc.ssl_channel_credentials(control.ca)
    # No proxy of the environment may stand between a test and its own server.
    return grpc.aio.secure_channel(f"127.0.0.1:{control.port}", credentials, options=[("grpc.enable_http_proxy", 0)])


def method(name: str) -> dict[str, Any]:
    found = next(one for one in ClusterService.desc().methods if one.name == name)
    answer = getattr(pb, found.output.name)
    return {
        "method": f"/{SERVICE}/{name}",
        "request_serializer": lambda message: message.to_binary(),
        "response_deserializer": lambda data: answer.from_binary(data),
    }


async def test_a_stock_grpc_client_joins_watches_and_reports(tmp_path: Path) -> None:
    async with asyncio.timeout(60):
        async with control_plane(tmp_path) as control:
            await control.add_cluster("c1", region="eu")
            key = await control.deploy("c1", "web")
            metadata = (("authorization", f"Bearer {await control.agent_token('c1', 'eu')}"),)
            identity = pb.Identity(cluster="c1", region="eu", shard="default", agent="grpc")
            async with channel(control) as grpc_channel:
                joined = await grpc_channel.unary_unary(**method("Join"))(
                    pb.JoinRequest(identity=identity), metadata=metadata
                )
                identity = pb.Identity(cluster="c1", region="eu", shard="default", agent="grpc", epoch=joined.epoch)
                hello = pb.WatchRequest(request=cast(Any, Oneof("hello", pb.Hello(identity=identity))))
                call = grpc_channel.stream_stream(**method("WatchDeployments"))(metadata=metadata)
                await call.write(hello)
                fields = []
                while "sync_end" not in fields:
                    event = await call.read()
                    fields.append(event.event.field)
                assert fields == ["welcome", "sync_begin", "item", "sync_keys", "sync_end"]
                await control.deploy("c1", "web", image="nginx:2")
                event = await call.read()
                while event.event.field != "item":
                    event = await call.read()
                assert event.event.value.action.value.image == "nginx:2"
                call.cancel()
                report = pb.DeploymentReport(key=key, applied=event.event.value.version)
                answer = await grpc_channel.unary_unary(**method("ReportDeploymentStatus"))(
                    pb.ReportDeploymentStatusRequest(identity=identity, sequence=1, reports=[report]), metadata=metadata
                )
                assert list(answer.unknown) == []
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await grpc_channel.unary_unary(**method("Heartbeat"))(pb.HeartbeatRequest(identity=identity))
                assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await grpc_channel.unary_unary(**method("Heartbeat") | {"method": f"/{SERVICE}/Nothing"})(
                        pb.HeartbeatRequest(identity=identity), metadata=metadata
                    )
                assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def curl(control: ControlPlane, folder: Path, name: str, body: str, *headers: str) -> tuple[int, Any]:
    """Status and decoded body."""
    (folder / "ca.pem").write_bytes(control.ca)
    arguments = ["--silent", "--noproxy", "*", "--cacert", str(folder / "ca.pem"), "--write-out", "\n%{http_code}"]
    for header in ("Content-Type: application/json", *headers):
        arguments += ["--header", header]
    process = await asyncio.create_subprocess_exec(
        "curl", *arguments, "--data-binary", "@-", f"{control.url}/{SERVICE}/{name}",
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    answer, _ = await process.communicate(body.encode())
    content, _, status = answer.decode().rpartition("\n")
    assert content, (process.returncode, name, body, answer)
    return int(status), json.loads(content) if content else None


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
async def test_unary_calls_work_with_curl_and_say_what_is_wrong(tmp_path: Path) -> None:
    async with asyncio.timeout(60):
        async with control_plane(tmp_path) as control:
            await control.add_cluster("c1", region="eu")
            key = await control.deploy("c1", "web")
            auth = f"Authorization: Bearer {await control.agent_token('c1', 'eu')}"
            identity = {"cluster": "c1", "region": "eu", "shard": "default", "agent": "curl"}
            status, joined = await curl(control, tmp_path, "Join", json.dumps({"identity": identity}), auth)
            assert status == 200 and joined["epoch"] == "1" and joined["heartbeatSeconds"] == 10
            identity["epoch"] = joined["epoch"]
            asked = json.dumps({"identity": identity, "key": key})
            status, item = await curl(control, tmp_path, "GetDesiredDeployment", asked, auth)
            assert status == 200 and item["deployment"]["image"] == "nginx:1"
            wrong = [
                ("Heartbeat", "{}", "invalid_argument", 400),
                ("Heartbeat", json.dumps({"identity": identity, "moood": 1}), "invalid_argument", 400),
                ("Heartbeat", "{", "invalid_argument", 400),
                ("Nothing", "{}", "unimplemented", 404),
            ]
            for name, body, code, expected in wrong:
                status, error = await curl(control, tmp_path, name, body, auth)
                assert (status, error["code"]) == (expected, code) and error["message"], (name, body, error)
            status, error = await curl(control, tmp_path, "Heartbeat", "{")
            assert (status, error["code"]) == (401, "unauthenticated"), "who is not known learns nothing else"


async def test_an_oversized_message_is_refused_and_streams_of_others_go_on(tmp_path: Path) -> None:
    from dataclasses import replace

    from shoal.testing.fleet import QUICK

    async with asyncio.timeout(60):
        async with control_plane(tmp_path, config=replace(QUICK, read_max_bytes=100_000)) as control:
            await control.add_cluster("c1", region="eu")
            async with control.agent("c1", "eu") as agent:
                stop = asyncio.Event()
                events: asyncio.Queue[str] = asyncio.Queue()
                task = asyncio.create_task(listen(agent, events, stop), name="listen")
                while await events.get() != "sync_end":
                    pass
                big = pb.HeartbeatRequest(identity=agent.identity, software="x" * 200_000)
                with pytest.raises(ConnectError) as caught:
                    await agent.client.heartbeat(big, headers=agent.headers)
                assert caught.value.code is Code.RESOURCE_EXHAUSTED
                with pytest.raises(ConnectError) as caught:
                    async for _ in agent.client.watch_deployments(hello(agent, "c" * 200_000), headers=agent.headers):
                        pass
                assert caught.value.code is Code.RESOURCE_EXHAUSTED
                await control.deploy("c1", "web")
                assert await events.get() == "item"
                stop.set()
                task.cancel()
                await asyncio.wait([task])


async def hello(agent: AgentClient, cursor: str = "", stop: asyncio.Event | None = None) -> Any:
    yield pb.WatchRequest(request=cast(Any, Oneof("hello", pb.Hello(identity=agent.identity, cursor=cursor))))
    if stop is not None:
        await stop.wait()


async def listen(agent: AgentClient, events: asyncio.Queue[str], stop: asyncio.Event) -> None:
    with suppress(ConnectError):  # the library's word for being cancelled
        async for event in agent.client.watch_deployments(hello(agent, "", stop), headers=agent.headers):
            events.put_nowait(event.event.field)
