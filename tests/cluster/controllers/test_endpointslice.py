"""Slices, Endpoints and mirrored slices of services follow pods, nodes and users' objects."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from random import Random

from acting_as import acting_as
from lagging import Lagging

from shoal.client import Scope
from shoal.controllers.endpoints import wiring as endpoints_wiring
from shoal.controllers.endpointslice import wiring as slices_wiring
from shoal.controllers.mirroring import wiring as mirroring_wiring
from shoal.testing.controllers import Play, PodPlayer, running
from shoal.testing.servers import local_server
from shoal.testing.waiting import eventually


def everything(server):
    return [
        acting_as(server, "endpointslice-controller", slices_wiring.add),
        acting_as(server, "endpoint-controller", endpoints_wiring.add),
        acting_as(server, "endpointslicemirroring-controller", mirroring_wiring.add),
    ]


ZONE = "topology.kubernetes.io/zone"


class World:
    def __init__(self, context):
        self.context = context
        self.pods, self.services, self.nodes = (
            context.resource("pods"),
            context.resource("services"),
            context.resource("nodes"),
        )
        self.slices, self.endpoints = (
            context.resource("endpointslices", "discovery.k8s.io"),
            context.resource("endpoints"),
        )

    async def node(self, name="node-1", zone="z1"):
        await self.nodes.create({"metadata": {"name": name, "labels": {ZONE: zone}}})

    async def pod(self, name, labels=None, ports=(), **spec):
        container = {"name": "c", "image": "i", "ports": list(ports)}
        about = {"name": name, "labels": labels or {"app": "web"}}
        return await self.pods.create({"metadata": about, "spec": {"containers": [container], **spec}}, "default")

    async def service(self, name="web", labels=None, **spec):
        spec = {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}], **spec}
        about = {"name": name, "labels": labels or {}}
        return await self.services.create({"metadata": about, "spec": spec}, "default")

    async def of(self, service="web"):
        scope = Scope(namespace="default", label_selector=f"kubernetes.io/service-name={service}")
        return (await self.slices.list(scope)).items

    async def behind(self, service="web"):
        """Pod name → conditions, over all slices."""
        return {
            e["targetRef"]["name"]: e["conditions"] for s in await self.of(service) for e in s.get("endpoints") or ()
        }


@asynccontextmanager
async def world(player=None):
    player = player or PodPlayer()
    async with local_server() as server, running(server, [*everything(server), player.add]) as context:
        yield World(context)


async def test_a_service_has_a_slice_with_its_ready_pods_and_the_names_that_readers_rely_on():
    async with world() as w:
        await w.node()
        service = await w.service(labels={"team": "a", "endpointslice.kubernetes.io/managed-by": "me"})
        empty = (await eventually(w.of))[0]
        assert empty.get("endpoints") in (None, []) and empty.get("ports") in (None, [])
        pod = await w.pod("a")
        await eventually(w.behind)
        piece = (await w.of())[0]
        about = piece["metadata"]
        assert about["name"] == empty["metadata"]["name"], "the placeholder is used, not replaced"
        assert about["generateName"] == "web-" and about["name"].startswith("web-")
        assert about["labels"] == {
            "team": "a",
            "kubernetes.io/service-name": "web",
            "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
        }
        assert about["ownerReferences"][0]["uid"] == service["metadata"]["uid"]
        assert about["annotations"]["endpoints.kubernetes.io/last-change-trigger-time"].endswith("Z")
        assert piece["ports"] == [{"name": "", "port": 8080, "protocol": "TCP"}]
        endpoint = piece["endpoints"][0]
        assert endpoint["conditions"] == {"ready": True, "serving": True, "terminating": False}
        assert (endpoint["nodeName"], endpoint["zone"]) == ("node-1", "z1")
        assert endpoint["targetRef"]["uid"] == pod["metadata"]["uid"]


async def test_a_pod_that_goes_is_terminating_first_and_then_gone():
    player = PodPlayer()
    async with world(player) as w:
        await w.node()
        await w.service()
        await w.pod("a")
        await w.pod("b")
        await eventually(lambda: _all_ready(w, {"a", "b"}))
        player.ends = False
        await w.pods.delete("a", "default")
        await eventually(lambda: _conditions(w, "a", {"ready": False, "serving": True, "terminating": True}))
        endpoints = await w.endpoints.get("web", "default")
        await eventually(lambda: _addresses(w, {"b"}))
        assert endpoints["metadata"]["labels"] == {"endpoints.kubernetes.io/managed-by": "endpoint-controller"}
        player.ends = True
        player.replay()
        await eventually(lambda: _all_ready(w, {"b"}))


async def test_pods_that_are_not_ready_are_published_only_on_request():
    async with world(PodPlayer(lambda pod: Play.RUNNING)) as w:
        await w.node()
        await w.service()
        await w.service("all", publishNotReadyAddresses=True, clusterIP="None")
        await w.pod("a")
        await eventually(lambda: _conditions(w, "a", {"ready": False, "serving": False, "terminating": False}))
        await eventually(lambda: _conditions(w, "a", {"ready": True, "serving": False, "terminating": False}, "all"))
        piece = (await w.of("all"))[0]
        assert piece["metadata"]["labels"]["service.kubernetes.io/headless"] == ""
        await eventually(lambda: _addresses(w, {"a"}, field="notReadyAddresses"))
        await eventually(lambda: _addresses(w, {"a"}, service="all"))


async def test_a_named_port_may_be_another_number_at_each_pod():
    async with world() as w:
        await w.node()
        await w.service(ports=[{"name": "http", "port": 80, "targetPort": "web"}])
        await w.pod("a", ports=[{"name": "web", "containerPort": 8080}])
        await w.pod("b", ports=[{"name": "web", "containerPort": 9090}])
        await w.pod("c")
        await eventually(lambda: _all_ready(w, {"a", "b", "c"}))
        found = {
            s["endpoints"][0]["targetRef"]["name"]: [p["port"] for p in s.get("ports") or ()] for s in await w.of()
        }
        assert found == {"a": [8080], "b": [9090], "c": []}
        await eventually(lambda: _addresses(w, {"a", "b"}))
        subsets = (await w.endpoints.get("web", "default"))["subsets"]
        assert [s["ports"][0]["port"] for s in subsets] == [8080, 9090]


async def test_many_pods_fill_slices_of_a_hundred_in_few_writes():
    async with world() as w:
        await w.node()
        await w.service()
        for number in range(250):
            await w.pod(f"p{number}")
        await eventually(lambda: _all_ready(w, {f"p{n}" for n in range(250)}), timeout_s=30)
        sizes = sorted(len(s["endpoints"]) for s in await w.of())
        assert max(sizes) <= 100 and len(sizes) <= 4, sizes
        writes = sum(s["metadata"]["generation"] for s in await w.of())
        assert writes < 60, writes


async def test_pods_on_a_node_that_is_not_known_wait_for_it_and_zones_follow_the_node():
    async with world() as w:
        await w.service()
        await w.pod("a")
        await eventually(lambda: _phase(w, "a"))
        assert await w.behind() == {}
        await w.node(zone="z1")
        await eventually(lambda: _all_ready(w, {"a"}))
        await w.nodes.patch("node-1", {"metadata": {"labels": {ZONE: "z2"}}})

        async def moved():
            return (await w.of())[0]["endpoints"][0]["zone"] == "z2"

        await eventually(moved)


async def test_changes_and_deletions_by_other_clients_are_reverted():
    async with world() as w:
        await w.node()
        await w.service()
        await w.pod("a")
        await eventually(lambda: _all_ready(w, {"a"}))
        piece = (await w.of())[0]
        await w.slices.replace({**piece, "endpoints": []})
        await eventually(lambda: _all_ready(w, {"a"}))
        name = (await w.of())[0]["metadata"]["name"]
        await w.slices.delete(name, "default")
        await eventually(lambda: _all_ready(w, {"a"}))
        await eventually(lambda: _addresses(w, {"a"}))
        await w.endpoints.patch("web", {"subsets": None}, "default")
        await eventually(lambda: _addresses(w, {"a"}))
        await w.endpoints.delete("web", "default")
        await eventually(lambda: _addresses(w, {"a"}))


async def test_labels_of_the_service_are_copied_when_they_change():
    async with world() as w:
        await w.node()
        await w.service(labels={"a": "1"})
        await eventually(w.of)
        await w.services.patch("web", {"metadata": {"labels": {"a": "2"}}}, "default")

        async def copied():
            slices, endpoints = await w.of(), await w.endpoints.get("web", "default")
            return slices[0]["metadata"]["labels"]["a"] == endpoints["metadata"]["labels"]["a"] == "2"

        await eventually(copied)


async def test_endpoints_go_with_their_service_and_a_service_of_the_same_name_begins_anew():
    async with world() as w:
        await w.node()
        await w.service()
        await w.pod("a")
        await eventually(lambda: _all_ready(w, {"a"}))
        old = {s["metadata"]["uid"] for s in await w.of()}
        await w.services.delete("web", "default")

        async def gone():
            return not [e for e in (await w.endpoints.list()).items if e["metadata"]["name"] == "web"]

        await eventually(gone)
        await w.service()

        async def fresh():
            return {"a"} == set(await w.behind()) and not old & {s["metadata"]["uid"] for s in await w.of()}

        await eventually(fresh)


async def test_services_without_a_selector_are_left_alone_and_their_endpoints_mirrored():
    async with world() as w:
        await w.services.create({"metadata": {"name": "db"}, "spec": {"ports": [{"port": 5432}]}}, "default")
        subset = {
            "addresses": [{"ip": "192.0.2.7"}, {"ip": "2001:db8::1"}],
            "ports": [{"name": "pg", "port": 5432}],
        }
        made = {"metadata": {"name": "db", "labels": {"x": "y"}, "annotations": {"n": "1"}}, "subsets": [subset]}
        await w.endpoints.create(made, "default")

        async def mirrored(count):
            found = await w.of("db")
            return found if len(found) == count else None

        slices = await eventually(lambda: mirrored(2))
        by_family = {s["addressType"]: s for s in slices}
        piece = by_family["IPv4"]
        assert piece["endpoints"] == [{"addresses": ["192.0.2.7"], "conditions": {"ready": True}}]
        assert piece["metadata"]["labels"] == {
            "x": "y",
            "kubernetes.io/service-name": "db",
            "endpointslice.kubernetes.io/managed-by": "endpointslicemirroring-controller.k8s.io",
        }
        assert piece["metadata"]["annotations"] == {"n": "1"}
        assert piece["metadata"]["ownerReferences"][0]["kind"] == "Endpoints"
        subset = {"notReadyAddresses": [{"ip": "192.0.2.7"}], "ports": [{"name": "pg", "port": 5432}]}
        await w.endpoints.patch("db", {"subsets": [subset]}, "default")

        async def changed():
            found = await mirrored(1)
            return found and found[0]["endpoints"][0]["conditions"] == {"ready": False}

        await eventually(changed)
        await w.endpoints.patch(
            "db", {"metadata": {"labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}}}, "default"
        )
        await eventually(lambda: _none(w, "db"))
        assert [s["metadata"]["name"] for s in await w.of("kubernetes")] == ["kubernetes"]


async def test_a_cache_that_is_behind_makes_no_slice_too_many():
    async with local_server() as server, running(server, [PodPlayer().add]) as nodes:
        w = World(nodes)
        await w.node()
        slices = []
        nodes.informer("endpointslices", "discovery.k8s.io").cache.add_handler(
            lambda c: slices.append(c.key) if c.old is None and c.key.name.startswith("web-") else None
        )
        async with running(Lagging(server, 0.05, "endpointslices", "endpoints"), everything(server)):
            await w.service()
            for number in range(30):
                await w.pod(f"p{number}")
            await eventually(lambda: _all_ready(w, {f"p{n}" for n in range(30)}), timeout_s=30)
            await eventually(lambda: _addresses(w, {f"p{n}" for n in range(30)}), timeout_s=30)
        assert len(slices) == 1


async def test_after_churn_and_restarts_slices_and_endpoints_are_the_pods_that_are_left():
    random, names = Random(7), set()
    async with local_server() as server:
        player = PodPlayer()
        async with running(server, [player.add]) as nodes:
            w = World(nodes)
            await w.node()
            await w.service()
            for turn in range(12):
                async with running(server, everything(server)):
                    for _ in range(20):
                        name = f"p{random.randrange(60)}"
                        if name in names:
                            names.discard(name)
                            await w.pods.delete(name, "default", grace_period_s=0)
                        else:
                            names.add(name)
                            await w.pod(name)
                        for _ in range(random.randrange(20)):
                            await asyncio.sleep(0)
                    if turn == 11:
                        await eventually(lambda: _all_ready(w, names))
                        await eventually(lambda: _addresses(w, names))


async def _all_ready(w, names, service="web"):
    found = await w.behind(service)
    return set(found) == names and all(c["ready"] for c in found.values())


async def _conditions(w, pod, conditions, service="web"):
    return (await w.behind(service)).get(pod) == conditions


async def _addresses(w, names, service="web", field="addresses"):
    found = await w.endpoints.get(service, "default")
    return {a["targetRef"]["name"] for s in found.get("subsets") or () for a in s.get(field) or ()} == names


async def _phase(w, name):
    return (await w.pods.get(name, "default")).get("status", {}).get("phase") == "Running"


async def _none(w, service):
    return not await w.of(service)
