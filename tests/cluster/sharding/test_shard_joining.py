"""ShardInstances that users create become shards of their ShardConfig, or say why they do not."""

from __future__ import annotations

from shard_world import NAMESPACE, World, world

from shoal.kube.objects import Obj
from shoal.testing.waiting import eventually

TEMPLATE = {"spec": {"containers": [{"name": "w", "image": "w:1"}]}}


async def create(w: World, name: str) -> None:
    """The document's example of a ShardInstance."""
    spec = {"shardId": name, "hashRange": {"start": 0, "end": 1073741823}}
    await w.instances.create({"metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec})


async def joined(w: World, name: str, reason: str) -> Obj:
    conditions = ((await w.instances.get(name, NAMESPACE)).get("status") or {}).get("conditions") or []
    assert [it["reason"] for it in conditions] == [reason], conditions
    return conditions[0]


async def test_an_instance_waits_for_a_config_and_joins_the_first_that_is_created() -> None:
    async with world() as w:
        await create(w, "shard-001")
        assert "create one" in (await eventually(lambda: joined(w, "shard-001", "NoConfig")))["message"]
        await w.config("web")
        assert (await eventually(lambda: joined(w, "shard-001", "Joined")))["status"] == "True"
        w.worker("web", "shard-001").start()
        assert await w.shared_by("web", "shard-001") == {"shard-001": 1024}


async def test_an_instance_of_a_user_is_one_more_shard_with_a_worker_of_the_template() -> None:
    async with world() as w:
        await w.config("web", minShards=2, maxShards=3, template=TEMPLATE, healthCheckInterval="500ms")
        players = w.pod_workers("web")
        await eventually(lambda: len(players.workers) == 2)
        await w.shared_by("web", *players.workers)
        await create(w, "shard-001")
        await eventually(lambda: "shard-001" in players.workers)
        await w.shared_by("web", *players.workers)
        assert len(players.workers) == 3
        assert (await w.status("web"))["desiredShards"] == 3
        assert await w.messages("ScalingUp") == ["2 to 3 shards: a user created shard-001"]
        await eventually(lambda: joined(w, "shard-001", "Joined"))
        await create(w, "shard-002")
        full = await eventually(lambda: joined(w, "shard-002", "AtMaximum"))
        assert "has 3 shards, and maxShards is 3" in full["message"]
        assert await w.phase("shard-002") == ""
