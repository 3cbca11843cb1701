"""ResourceQuota: what is charged, that quotas are never exceeded, and that their status follows what is there."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from builtin_steps import NAMESPACES, a_container, a_pod, denied

from shoal.apiserver.context import ServerConfig
from shoal.apiserver.registry import Registry
from shoal.apiserver.server import ApiServer
from shoal.base.clock import RealClock
from shoal.base.ids import Ids, token_digest
from shoal.testing.servers import ADMIN, ADMIN_TOKEN, LocalServer, local_server
from shoal.testing.waiting import eventually

PODS = f"{NAMESPACES}/default/pods"
QUOTAS = f"{NAMESPACES}/default/resourcequotas"
SERVICES = f"{NAMESPACES}/default/services"
CONFIGMAPS = f"{NAMESPACES}/default/configmaps"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def a_quota(hard: dict[str, str], name: str = "q", **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"hard": hard, **spec}}


async def used(server: LocalServer, name: str = "q") -> dict[str, str]:
    found: dict[str, str] = (await server.get(f"{QUOTAS}/{name}"))["status"]["used"]
    return found


def sized(name: str, cpu: str) -> dict[str, Any]:
    return a_pod(name, containers=[a_container(resources={"requests": {"cpu": cpu}})])


async def test_a_quota_counts_what_is_there_from_the_moment_it_exists() -> None:
    async with local_server() as server:
        await server.post(PODS, sized("old", "1"))
        made = await server.post(QUOTAS, a_quota({"pods": "2", "requests.cpu": "3", "count/configmaps": "9"}))
        assert made["status"] == {
            "hard": {"pods": "2", "requests.cpu": "3", "count/configmaps": "9"},
            "used": {"pods": "1", "requests.cpu": "1", "count/configmaps": "1"},
        }
        await server.post(PODS, sized("new", "2"))
        assert await used(server) == {"pods": "2", "requests.cpu": "3", "count/configmaps": "1"}
        answer = await server.call("POST", PODS, sized("more", "1"))
        assert denied(answer) == (
            'pods "more" is forbidden: exceeded quota: q, requested: pods=1,requests.cpu=1, '
            "used: pods=2,requests.cpu=3, limited: pods=2,requests.cpu=3"
        )
        assert denied(await server.call("POST", PODS, a_pod("none"))) == (
            'pods "none" is forbidden: failed quota: q: must specify requests.cpu for: c'
        )


async def test_deletions_and_finished_pods_give_back_what_they_used() -> None:
    async with local_server() as server:
        await server.post(QUOTAS, a_quota({"pods": "2", "count/pods": "3"}))
        for name in ("a", "b"):
            await server.post(PODS, a_pod(name))
        assert await used(server) == {"pods": "2", "count/pods": "2"}
        await server.patch(f"{PODS}/a/status", {"status": {"phase": "Succeeded"}})

        async def one_is_over() -> bool:
            return await used(server) == {"pods": "1", "count/pods": "2"}

        await eventually(one_is_over)
        await server.delete(f"{PODS}/b", {"gracePeriodSeconds": 0})

        async def one_is_gone() -> bool:
            return await used(server) == {"pods": "0", "count/pods": "1"}

        await eventually(one_is_gone)
        await server.post(PODS, a_pod("c"))
        assert await used(server) == {"pods": "1", "count/pods": "2"}


async def test_a_change_of_the_limits_counts_at_once() -> None:
    async with local_server() as server:
        await server.post(QUOTAS, a_quota({"pods": "1"}))
        await server.post(PODS, a_pod("a"))
        assert (await server.call("POST", PODS, a_pod("b"))).status == 403
        changed = await server.patch(f"{QUOTAS}/q", {"spec": {"hard": {"pods": "2", "services": "4"}}})
        assert changed["status"] == {"hard": {"pods": "2", "services": "4"}, "used": {"pods": "1", "services": "1"}}
        await server.post(PODS, a_pod("b"))
        assert (await server.call("POST", PODS, a_pod("c"))).status == 403
        await server.delete(f"{QUOTAS}/q")
        await server.post(PODS, a_pod("c"))


async def test_a_changed_status_is_corrected() -> None:
    async with local_server() as server:
        await server.post(QUOTAS, a_quota({"pods": "5"}))
        await server.patch(f"{QUOTAS}/q/status", {"status": {"hard": {"pods": "900"}, "used": {"pods": "7"}}})

        async def right() -> bool:
            found = (await server.get(f"{QUOTAS}/q"))["status"]
            return bool(found == {"hard": {"pods": "5"}, "used": {"pods": "0"}})

        await eventually(right)


async def test_services_are_charged_when_their_type_changes() -> None:
    async with local_server() as server:
        await server.post(QUOTAS, a_quota({"services.nodeports": "1", "services": "3"}))
        ports = [{"name": n, "port": p} for n, p in (("a", 80), ("b", 81))]
        await server.post(SERVICES, {"metadata": {"name": "s"}, "spec": {"ports": ports}})
        assert await used(server) == {"services.nodeports": "0", "services": "2"}
        merge = {"content-type": "application/merge-patch+json"}
        answer = await server.call("PATCH", f"{SERVICES}/s", {"spec": {"type": "NodePort"}}, merge)
        assert denied(answer) == (
            'services "s" is forbidden: exceeded quota: q, requested: services.nodeports=2, '
            "used: services.nodeports=0, limited: services.nodeports=1"
        )
        await server.patch(f"{SERVICES}/s", {"spec": {"type": "NodePort", "ports": ports[:1]}})
        assert await used(server) == {"services.nodeports": "1", "services": "2"}


async def test_custom_objects_are_counted() -> None:
    async with local_server() as server:
        schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
        await server.post(
            CRDS,
            {
                "metadata": {"name": "widgets.example.com"},
                "spec": {
                    "group": "example.com",
                    "scope": "Namespaced",
                    "names": {"plural": "widgets", "kind": "Widget"},
                    "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
                },
            },
        )
        widgets = "/apis/example.com/v1/namespaces/default/widgets"

        async def served() -> bool:
            return (await server.call("GET", widgets)).status == 200

        await eventually(served)
        await server.post(QUOTAS, a_quota({"count/widgets.example.com": "1"}))
        widget = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"}}
        await server.post(widgets, widget)
        answer = await server.call("POST", widgets, widget | {"metadata": {"name": "b"}})
        assert denied(answer) == (
            'widgets.example.com "b" is forbidden: exceeded quota: q, requested: count/widgets.example.com=1, '
            "used: count/widgets.example.com=1, limited: count/widgets.example.com=1"
        )
        await server.delete(f"{widgets}/a")

        async def gone() -> bool:
            return await used(server) == {"count/widgets.example.com": "0"}

        await eventually(gone)


async def test_scopes_decide_which_quota_pays() -> None:
    async with local_server() as server:
        await server.post(QUOTAS, a_quota({"pods": "1"}, "idle", scopes=["BestEffort"]))
        await server.post(QUOTAS, a_quota({"pods": "1"}, "busy", scopes=["NotBestEffort"]))
        await server.post(PODS, a_pod("a"))
        assert "exceeded quota: idle" in denied(await server.call("POST", PODS, a_pod("b")))
        await server.post(PODS, sized("c", "1"))
        assert "exceeded quota: busy" in denied(await server.call("POST", PODS, sized("d", "1")))


async def test_a_dry_run_is_checked_and_charges_nothing() -> None:
    async with local_server() as server:
        await server.post(QUOTAS, a_quota({"pods": "1"}))
        await server.post(f"{PODS}?dryRun=All", a_pod("a"))
        assert await used(server) == {"pods": "0"}
        await server.post(PODS, a_pod("a"))
        assert (await server.call("POST", f"{PODS}?dryRun=All", a_pod("b"))).status == 403


async def test_a_pod_that_is_refused_by_the_commit_is_not_charged() -> None:
    async with local_server() as server:
        await server.post(QUOTAS, a_quota({"pods": "5"}))
        await server.post(PODS, a_pod("a"))
        assert (await server.call("POST", PODS, a_pod("a"))).status == 409
        assert await used(server) == {"pods": "1"}


@pytest.mark.parametrize("limit", [1, 7])
async def test_a_quota_is_never_exceeded_by_many_at_once(limit: int) -> None:
    async with local_server() as server:
        await server.post(QUOTAS, a_quota({"pods": str(limit), "count/configmaps": str(limit + 1)}))

        async def pod(index: int) -> int:
            return (await server.call("POST", PODS, {**a_pod(), "metadata": {"generateName": "p-"}})).status

        async def configmap(index: int) -> int:
            return (await server.call("POST", CONFIGMAPS, {"metadata": {"name": f"c-{index}"}})).status

        answers = await asyncio.gather(*(pod(i) for i in range(20)), *(configmap(i) for i in range(20)))
        assert Counter(answers) == {201: 2 * limit, 403: 40 - 2 * limit}
        assert await used(server) == {"pods": str(limit), "count/configmaps": str(limit + 1)}


async def test_a_quota_is_never_exceeded_by_two_servers_at_once() -> None:
    async with local_server() as first:
        registry = Registry()
        other = ApiServer(
            first.store, registry, clock=RealClock(), ids=Ids(), config=ServerConfig(ca_certificate="test CA"),
            tokens={token_digest(ADMIN_TOKEN): ADMIN},
        )  # fmt: skip
        await other.start()
        try:
            await first.post(QUOTAS, a_quota({"pods": "9"}))
            second = LocalServer(other, first.store)

            async def pod(server: LocalServer, name: str) -> int:
                return (await server.call("POST", PODS, a_pod(name))).status

            for round_ in range(3):
                calls = [pod(server, f"p{round_}-{index}-{which}")
                         for index in range(10) for which, server in enumerate((first, second))]  # fmt: skip
                answers = Counter(await asyncio.gather(*calls))
                assert set(answers) <= {201, 403}, answers
                pods = (await first.get(PODS))["items"]
                assert len(pods) <= 9
                assert (await used(first))["pods"] == str(len(pods))
                await first.delete(f"{PODS}/{pods[0]['metadata']['name']}", {"gracePeriodSeconds": 0})

                async def counted() -> bool:
                    return (await used(first))["pods"] == str(len((await second.get(PODS))["items"]))

                await eventually(counted)
        finally:
            await other.stop()
