"""A ShardConfig on a cluster that lacks something: its conditions name it, and change when it is there."""

from __future__ import annotations

from shard_world import NAMESPACE, World, world
from test_shard_sweep import kind

from shoal.client import builtin
from shoal.kube.objects import Obj
from shoal.testing.waiting import eventually


async def condition(w: World, kind: str, reason: str) -> Obj:
    conditions = {each["type"]: each for each in (await w.status("web")).get("conditions") or ()}
    assert conditions.get(kind, {}).get("reason") == reason, conditions
    return conditions[kind]


async def test_built_in_workers_without_their_service_account_are_blocked_until_it_is_there() -> None:
    async with world() as w:
        spec = {"minShards": 2, "healthCheckInterval": "500ms"}
        await w.configs.create({"metadata": {"name": "web", "namespace": NAMESPACE}, "spec": spec})

        async def starting() -> bool:
            ready = await condition(w, "Ready", "NoWorkers")
            return "2 of 2 shards are starting" in ready["message"]

        await eventually(starting)
        blocked = await eventually(lambda: condition(w, "ScaleBlocked", "PodsNotStarting"))
        assert blocked["status"] == "True"
        assert 'serviceaccount "shard-worker" not found' in blocked["message"]

        async def both_refused() -> bool:
            return len(await w.messages("PodRefused")) == 2

        await eventually(both_refused)  # the second pod is refused in the same pass, or in the next
        await w.client.of(builtin("serviceaccounts")).create(
            {"metadata": {"name": "shard-worker", "namespace": NAMESPACE}}
        )
        players = w.pod_workers("web")
        await eventually(lambda: len(players.workers) == 2)
        await w.shared_by("web", *players.workers)
        await eventually(lambda: condition(w, "Ready", "AllSlotsOwned"))
        await eventually(lambda: condition(w, "ScaleBlocked", "NotBlocked"))


async def test_a_target_that_the_server_does_not_serve_is_named_until_it_is_served() -> None:
    async with world() as w:
        await w.config("web", targets=[{"group": "example.com", "kind": "Website"}], healthCheckInterval="500ms")
        missing = await eventually(lambda: condition(w, "TargetsFound", "NoTargets"))
        assert "Website.example.com: the server does not serve this kind" in missing["message"]
        assert "externalWorkers is set" in (await eventually(lambda: condition(w, "Ready", "NoWorkers")))["message"]
        await kind(w, "Website", "websites")
        await eventually(lambda: condition(w, "TargetsFound", "Served"))
