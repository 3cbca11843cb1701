"""A Deployment that ran before the fleet: adopted where it runs, scaled, replaced by revision 2 and deleted, with real
processes."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import yaml

from shoal.client import Scope, builtin
from shoal.errors import NotFound
from shoal.kube.objects import Obj
from shoal.testing.fleets import PROJECT, LocalFleet
from shoal.testing.waiting import eventually

pytestmark = [pytest.mark.xdist_group("adopt"), pytest.mark.timeout(300)]

WAIT_S = 60.0
ENVIRONMENT = NAMESPACE = "legacy"
HERE, ELSEWHERE = "eu-2", "eu-1"
LABELS = {"app": "web"}
APP = f"/projects/{PROJECT}/environments/{ENVIRONMENT}/apps/web"
EVERYTHING = Scope(namespace=NAMESPACE)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalFleet]:
    with LocalFleet(tmp_path_factory.mktemp("adopt")) as started:
        started.start({ELSEWHERE: "eu", HERE: "eu"})
        started.start_agents([(ELSEWHERE, "default"), (HERE, "default")])
        about = {"name": ENVIRONMENT, "project": PROJECT}
        started.api.apply(
            {
                "apiVersion": "shoal.dev/v1",
                "kind": "Environment",
                "metadata": about,
                "spec": {"namespace": NAMESPACE},
            }
        )
        yield started


async def test_adopted_scaled_replaced_and_deleted(fleet: LocalFleet) -> None:
    async with fleet.clusters[HERE].client() as client:
        before = await a_running_deployment(client)
        was = await pods(client)
        document = import_(fleet, HERE)
        assert document["spec"]["topology"][0]["adopt"]["uid"] == before["metadata"]["uid"]
        await asyncio.to_thread(fleet.api.apply, document)
        await ready(fleet, 2)
        after = await client.of(DEPLOYMENTS).get("web", NAMESPACE)
        assert (after["metadata"]["uid"], after["metadata"]["generation"], after["spec"]) == (
            before["metadata"]["uid"], before["metadata"]["generation"], before["spec"],
        )  # fmt: skip
        assert await pods(client) == was and len((await client.of(SETS).list(EVERYTHING)).items) == 1
        (row,) = (await status(fleet))["regions"]
        assert (row["cluster"], row["reported"]["drift"] if "drift" in row["reported"] else []) == (HERE, [])

        again = import_(fleet, HERE)
        assert again["spec"] == document["spec"]
        reply = (await asyncio.to_thread(fleet.api.apply, again))[0]
        assert not reply["changed"], reply
        fleet.control.kill()
        await asyncio.to_thread(fleet.control.start)
        document["spec"]["topology"][0]["replicas"] = 3
        await asyncio.to_thread(until_applied, fleet, document)
        await ready(fleet, 3)
        assert was.items() <= (await pods(client)).items()

        served = asyncio.Event()
        watcher = asyncio.create_task(always_served(client, served), name="the user's Service")
        document["spec"]["image"] = "shoal/echo:2"
        await asyncio.to_thread(fleet.api.apply, document)
        await ready(fleet, 3)
        await eventually(partial(deployments, client), until=lambda names: len(names) == 1, timeout_s=WAIT_S)
        served.set()
        assert await watcher > 0
        (name,) = await deployments(client)
        assert name.startswith("web-2-"), "an ordinary revision is all there is"
        assert not set(was) & set(await pods(client))
        left = set(await pods(client))  # the user's Service leads to them, and to nothing else
        await eventually(partial(endpoints, client), until=lambda names: set(names) == left, timeout_s=WAIT_S)

        await asyncio.to_thread(fleet.api.request, "DELETE", APP)
        await eventually(partial(deployments, client), until=lambda names: not names, timeout_s=WAIT_S)
        await client.of(SERVICES).get("web", NAMESPACE)  # it is the user's


async def test_delete_takes_the_deployment_and_a_wrong_cluster_is_named(fleet: LocalFleet) -> None:
    async with fleet.clusters[HERE].client() as client:
        await a_running_deployment(client)
        document = import_(fleet, HERE)
        document["spec"]["topology"][0]["adopt"]["cluster"] = ELSEWHERE
        await asyncio.to_thread(fleet.api.apply, document)

        def refused(found: dict[str, Any]) -> bool:
            return "does not exist in cluster eu-1: name the cluster where it runs" in str(found)

        await eventually(partial(status, fleet), until=refused, timeout_s=WAIT_S, explain=fleet.logs)
        await asyncio.to_thread(fleet.api.request, "DELETE", APP)
        assert await deployments(client) == ["web"], "it was never this App's"
        document["spec"]["topology"][0]["adopt"]["cluster"] = HERE
        await asyncio.to_thread(fleet.api.apply, document)
        await ready(fleet, 2)
        await asyncio.to_thread(fleet.api.request, "DELETE", APP)
        await eventually(partial(deployments, client), until=lambda names: not names, timeout_s=WAIT_S)


async def test_a_release_gives_the_deployment_back_and_it_can_be_adopted_again(fleet: LocalFleet) -> None:
    async with fleet.clusters[HERE].client() as client:
        before = await a_running_deployment(client)
        was, service = await pods(client), await client.of(SERVICES).get("web", NAMESPACE)
        document = import_(fleet, HERE)
        await asyncio.to_thread(fleet.api.apply, document)
        await ready(fleet, 2)
        adopted = await client.of(DEPLOYMENTS).get("web", NAMESPACE)
        assert adopted["metadata"]["labels"] != before["metadata"].get("labels", {})

        tried = (await asyncio.to_thread(fleet.api.request, "DELETE", f"{APP}?release=true&dryRun=true")).body
        assert [each["action"] for each in tried["effects"] if each["kind"] == "deployment"] == ["release"]
        await ready(fleet, 2)
        await asyncio.to_thread(fleet.api.request, "DELETE", f"{APP}?release=true")

        async def given_back() -> Obj:
            found: Obj = await client.of(DEPLOYMENTS).get("web", NAMESPACE)
            about = found["metadata"]
            assert about.get("labels", {}) == before["metadata"].get("labels", {})
            assert not [name for name in about.get("annotations") or {} if "shoal" in name]
            return found

        after = await eventually(given_back, timeout_s=WAIT_S, explain=fleet.logs)
        assert (after["metadata"]["uid"], after["spec"]) == (before["metadata"]["uid"], before["spec"])
        assert await pods(client) == was
        left = (await client.of(SERVICES).list(EVERYTHING)).items
        assert [(each["metadata"]["name"], each["spec"]) for each in left] == [("web", service["spec"])]
        assert (await asyncio.to_thread(fleet.api.get, "/apps"))["items"] == []

        await asyncio.to_thread(fleet.api.apply, import_(fleet, HERE))
        await ready(fleet, 2)
        assert await pods(client) == was
        await asyncio.to_thread(fleet.api.request, "DELETE", APP)
        await eventually(partial(deployments, client), until=lambda names: not names, timeout_s=WAIT_S)


DEPLOYMENTS, SETS = builtin("deployments", "apps"), builtin("replicasets", "apps")
PODS, SERVICES = builtin("pods"), builtin("services")


async def a_running_deployment(client: Any) -> Obj:
    container = {"name": "web", "image": "shoal/echo:1", "ports": [{"containerPort": 8080}]}
    template = {"metadata": {"labels": LABELS}, "spec": {"containers": [container]}}
    try:
        await client.of(builtin("namespaces")).get(NAMESPACE)
    except NotFound:
        await client.of(builtin("namespaces")).create({"metadata": {"name": NAMESPACE}})
        service = {"selector": LABELS, "ports": [{"port": 80, "targetPort": 8080}]}
        await client.of(SERVICES).create({"metadata": {"name": "web", "namespace": NAMESPACE}, "spec": service})
    about = {"name": "web", "namespace": NAMESPACE}
    spec = {"replicas": 2, "selector": {"matchLabels": LABELS}, "template": template}
    await client.of(DEPLOYMENTS).create({"metadata": about, "spec": spec})

    def up(found: Obj) -> bool:
        said = found.get("status") or {}
        current = said.get("observedGeneration") == found["metadata"]["generation"]
        return current and said.get("readyReplicas", 0) == said.get("updatedReplicas", 0) == 2

    found: Obj = await eventually(lambda: client.of(DEPLOYMENTS).get("web", NAMESPACE), until=up, timeout_s=WAIT_S)
    return found


def import_(fleet: LocalFleet, cluster: str) -> dict[str, Any]:
    command = [
        sys.executable, "-m", "shoal", "import", "--kubeconfig", str(fleet.clusters[cluster].kubeconfig), "-n",
        NAMESPACE, "deployment/web", "--region", "eu", "-p", PROJECT, "-e", ENVIRONMENT, "--adopt", "--cluster", cluster,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = yaml.safe_load(done.stdout)
    return found


def until_applied(fleet: LocalFleet, document: dict[str, Any]) -> None:
    fleet.api.until_acknowledged("PUT", APP, document)


async def status(fleet: LocalFleet) -> dict[str, Any]:
    found: dict[str, Any] = await asyncio.to_thread(fleet.api.get, f"{APP}/status")
    return found


async def ready(fleet: LocalFleet, count: int) -> None:
    def shown(found: dict[str, Any]) -> bool:
        return found["state"] == "Ready" and [row["reported"]["ready"] for row in found["regions"]] == [count]

    await eventually(partial(status, fleet), until=shown, timeout_s=WAIT_S, explain=fleet.logs)


async def pods(client: Any) -> dict[str, str]:
    found = (await client.of(PODS).list(EVERYTHING)).items
    return {
        pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in found if not pod["metadata"].get("deletionTimestamp")
    }


async def deployments(client: Any) -> list[str]:
    return [each["metadata"]["name"] for each in (await client.of(DEPLOYMENTS).list(EVERYTHING)).items]


async def endpoints(client: Any) -> list[str]:
    """The ready pods that the user's Service leads to."""
    chosen = Scope(namespace=NAMESPACE, label_selector="kubernetes.io/service-name=web")
    slices = (await client.of(builtin("endpointslices", "discovery.k8s.io")).list(chosen)).items
    return [
        each["targetRef"]["name"]
        for one in slices
        for each in one.get("endpoints") or ()
        if (each.get("conditions") or {}).get("ready")
    ]


async def always_served(client: Any, done: asyncio.Event) -> int:
    """How often the Service was looked at; it always led to at least two ready pods."""
    looks = 0
    while not done.is_set():
        found = await endpoints(client)
        assert len(found) >= 2, f"look {looks}: only {found}"
        looks += 1
        await asyncio.sleep(0.02)
    return looks
