"""The document's ShardConfig, applied alone to a cluster: built-in workers process ShardedResources, more of them under
load and fewer afterwards."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
from example_trial import EXAMPLE, INSTANCE, NAME, NAMESPACE, cluster

from shoal.app.kubectl import kubectl_word
from shoal.app.ports import any_free
from shoal.base.asgi import serving
from shoal.base.clock import RealClock
from shoal.client import Client, ResourceClient, Scope, builtin, connect, load
from shoal.crds.shard import GROUP, VERSION
from shoal.errors import NotFound
from shoal.kube.objects import Obj
from shoal.sharding import rbac
from shoal.sharding.manager.writers import CONFIGS, INSTANCES, LEASES
from shoal.testing.waiting import eventually

OBJECTS = 1000


def resources(client: Client) -> ResourceClient:
    return client.resource(GROUP, VERSION, "shardedresources")


def resource(number: int) -> Obj:
    about = {"name": f"resource-{number:03}", "namespace": NAMESPACE}
    return {
        "apiVersion": f"{GROUP}/{VERSION}", "kind": "ShardedResource", "metadata": about,
        "spec": {"number": number, "any": ["payload"]},
    }  # fmt: skip


async def applied(client: Client, count: int) -> None:
    limit = asyncio.Semaphore(32)

    async def one(number: int) -> None:
        async with limit:
            await resources(client).apply(resource(number))

    await asyncio.gather(*map(one, range(count)))


async def kinds_are_served(client: Client) -> bool:
    try:
        await client.of(CONFIGS).list()
    except NotFound:  # the kinds come with the manager
        return False
    return True


async def running(client: Client, count: int) -> list[Obj]:
    found = (await client.of(INSTANCES).list()).items
    assert [(it.get("status") or {}).get("phase") for it in found].count("Running") == count, found
    return [it for it in found if it["status"]["phase"] == "Running"]


async def processed(client: Client, count: int) -> list[Obj]:
    found = (await resources(client).list()).items
    phases = Counter((it.get("status") or {}).get("phase") for it in found)
    assert phases == {"Processed": count}, phases
    return found


async def ranges_agree(client: Client, shard: str) -> bool:
    """Whether hashRange is one of the ranges that the shard has."""
    spec = (await client.of(INSTANCES).get(shard, NAMESPACE))["spec"]
    assert spec["hashRange"] in spec["hashRanges"], spec["hashRange"]
    return True


async def no_pods(client: Client) -> bool:
    return not (await client.of(builtin("pods")).list(Scope(namespace=NAMESPACE))).items


@asynccontextmanager
async def connected(kubeconfig: str) -> AsyncIterator[Client]:
    async with connect(load(Path(kubeconfig)), clock=RealClock(), field_manager="people") as client:
        await eventually(lambda: kinds_are_served(client), timeout_s=30.0)
        yield client


async def kubectl_apply(kubeconfig: str, text: str) -> None:
    environ = {**os.environ, "KUBECONFIG": kubeconfig}
    command = [*kubectl_word().split(), "apply", "-f", "-"]
    await asyncio.to_thread(subprocess.run, command, input=text.encode(), check=True, env=environ)


async def workers_are_ready(kubeconfig: str, client: Client, handled: int) -> bool:
    """Their pods pass their probes, and their metrics count what they have done."""
    count = 0.0
    for pod in (await client.of(builtin("pods")).list(Scope(namespace=NAMESPACE))).items:
        about, (container,) = pod["metadata"], pod["spec"]["containers"]
        assert {"startupProbe", "livenessProbe", "readinessProbe"} <= container.keys()
        assert [it["status"] for it in pod["status"]["conditions"] if it["type"] == "Ready"] == ["True"]
        page = f"/api/v1/namespaces/{NAMESPACE}/pods/{about['name']}:8080/proxy/metrics"
        command = [*kubectl_word().split(), "--kubeconfig", kubeconfig, "get", "--raw", page]
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=True)
        (line,) = (line for line in done.stdout.splitlines() if line.startswith("shard_worker_handled_total "))
        count += float(line.split()[1])
    assert count >= handled, count
    return True


async def test_the_documents_shardconfig_alone_processes_a_thousand_resources(tmp_path: Path) -> None:
    with cluster(tmp_path) as server:
        async with connected(server.kubeconfig) as client:
            await kubectl_apply(server.kubeconfig, EXAMPLE)
            await applied(client, OBJECTS)
            found = await eventually(lambda: processed(client, OBJECTS), timeout_s=60.0, every_s=0.5)
            shards = await eventually(lambda: running(client, 2), timeout_s=30.0)
            by = Counter(it["status"]["processedBy"] for it in found)
            assert set(by) == {it["metadata"]["name"] for it in shards}, by
            assert {it["status"]["attempts"] for it in found} == {1}

            async def shown() -> bool:
                """Both ShardInstances show what the document's example shows."""
                for shard in await running(client, 2):
                    spec, status = shard["spec"], shard["status"]
                    assert spec["hashRange"]["start"] < spec["hashRange"]["end"] < 2**32
                    assert 0 < status["load"] <= 1
                    assert status["lastHeartbeat"]
                    assert status["assignedCount"] == by[shard["metadata"]["name"]]
                    assert set(status["assignedResources"]) <= {f"resource-{number:03}" for number in range(OBJECTS)}
                    assert len(status["assignedResources"]) == 100
                return True

            await eventually(shown, timeout_s=20.0)
            await eventually(lambda: workers_are_ready(server.kubeconfig, client, OBJECTS), timeout_s=30.0)
            status = (await client.of(CONFIGS).get(NAME, NAMESPACE))["status"]
            conditions = {it["type"]: (it["status"], it["reason"]) for it in status["conditions"]}
            assert conditions["Ready"] == ("True", "AllSlotsOwned"), status
            assert conditions["TargetsFound"] == ("True", "DefaultTarget")
            assert conditions["ScaleBlocked"] == ("False", "NotBlocked")
            lease = await client.of(LEASES).get(rbac.MANAGER, rbac.NAMESPACE)
            assert lease["spec"]["holderIdentity"], "the manager in a cluster's process elects like any other"


async def test_the_documents_shardinstance_joins_the_documents_shardconfig_beside_others(tmp_path: Path) -> None:
    with cluster(tmp_path) as server:
        async with connected(server.kubeconfig) as client:
            # as in a cluster of `shoal up`: a ShardConfig with targets and workers of its own
            own = {"targets": [{"group": "example.com", "kind": "Website"}], "externalWorkers": True}
            await client.of(CONFIGS).create({"metadata": {"name": "own", "namespace": NAMESPACE}, "spec": own})
            await kubectl_apply(server.kubeconfig, EXAMPLE)
            await kubectl_apply(server.kubeconfig, INSTANCE)
            shards = await eventually(lambda: running(client, 3), timeout_s=60.0)
            assert "shard-001" in {it["metadata"]["name"] for it in shards}
            await applied(client, 30)

            async def shown() -> bool:
                """Its status is its own, not what the document's example claims."""
                found = await client.of(INSTANCES).get("shard-001", NAMESPACE)
                status = found["status"]
                assert found["spec"]["config"] == NAME
                assert status.get("assignedCount", 0) == len(status.get("assignedResources", ())) > 0, status
                assert status["lastHeartbeat"] > "2026"
                return status["load"] != 0.65

            await eventually(shown, timeout_s=60.0)
            found = await eventually(lambda: processed(client, 30), timeout_s=60.0)
            assert "shard-001" in {it["status"]["processedBy"] for it in found}

            await kubectl_apply(server.kubeconfig, INSTANCE)  # again: its hashRange is not the shard's
            await eventually(lambda: ranges_agree(client, "shard-001"), timeout_s=20.0)
            await client.of(CONFIGS).delete(NAME, NAMESPACE)
            # workers do not wait out their grace period of 30 s for slots that no manager will move
            await eventually(lambda: no_pods(client), timeout_s=20.0)


class Hook:
    """A webhook that answers once it is ``free``."""

    def __init__(self) -> None:
        self.free = asyncio.Event()
        self.calls: list[Obj] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        self.calls.append(orjson.loads((await receive())["body"]))
        await self.free.wait()
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})


async def test_a_slow_webhook_adds_a_shard_and_without_work_it_goes_again(tmp_path: Path) -> None:
    hook, port = Hook(), any_free("127.0.0.1")
    with cluster(tmp_path) as server:
        async with (
            connected(server.kubeconfig) as client,
            serving(hook, host="127.0.0.1", port=port, clock=RealClock()),
        ):
            spec = {
                "minShards": 2, "maxShards": 3, "sustainedFor": "2s", "cooldown": "2s", "heartbeatInterval": "500ms",
                "worker": {"concurrency": 2, "drainTimeout": "200ms"}, "handler": {"webhook": {"url": f"http://127.0.0.1:{port}/process", "timeout": "30s"}},
            }  # fmt: skip
            await client.of(CONFIGS).create({"metadata": {"name": NAME, "namespace": NAMESPACE}, "spec": spec})
            await eventually(lambda: running(client, 2), timeout_s=60.0)
            await applied(client, 200)
            await eventually(lambda: running(client, 3), timeout_s=60.0)
            hook.free.set()
            await eventually(lambda: processed(client, 200), timeout_s=60.0)
            await eventually(lambda: running(client, 2), timeout_s=60.0)
            assert {call["object"]["spec"]["number"] for call in hook.calls} == set(range(200))
