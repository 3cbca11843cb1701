"""The manager on a cluster with simulated workers: slots are assigned, move, survive their owners, and return."""

from __future__ import annotations

from shard_world import NAMESPACE, World, manager_of, world

from shoal.base.clock import RealClock
from shoal.client import builtin
from shoal.crds.shard import read_instance
from shoal.sharding.leases import AckKind
from shoal.sharding.model import SlotEntry
from shoal.testing.waiting import eventually

QUICK = {"leaseDuration": "3s", "heartbeatInterval": "500ms"}
TEMPLATE = {"metadata": {"labels": {"app": "websites"}}, "spec": {"containers": [{"name": "w", "image": "w:1"}]}}


async def no_states(w: World) -> bool:
    return not (await w.states.list()).items


async def test_slots_are_shared_out_move_with_their_state_and_survive_the_death_of_their_owner() -> None:
    async with world() as w:
        await w.config("web", minShards=1, **QUICK)
        a = w.worker("web", "a", lease_s=3).start()
        assert await w.shared_by("web", "a") == {"a": 1024}
        a.memory = {slot: f"state of {slot}".encode() for slot in range(0, 1024, 3)}
        b = w.worker("web", "b", lease_s=3).start()
        owners = await w.shared_by("web", "a", "b")
        assert 384 <= owners["b"] <= 640
        mine = {entry.slot for entry in await w.entries("web") if entry.owner == "b"}
        assert {slot: b.memory.get(slot) for slot in mine} == {slot: a.memory.get(slot) for slot in mine}
        await eventually(lambda: no_states(w))
        await eventually(lambda: ranges_tile(w, "a", "b"))
        await a.kill()
        assert await w.shared_by("web", "b") == {"b": 1024}
        await eventually(lambda: said(w, "LeaseTaken", "did not renew its Lease"))

        async def reported() -> None:
            assert await w.phase("a") == "Failed"
            status = await w.status("web")
            assert (status["currentShards"], status["healthyShards"]) == (2, 1)

        await eventually(lambda: done(reported()))
        a.start()  # it comes back, in a new term, and gets its share
        await w.shared_by("web", "a", "b")
        await eventually(lambda: phase_is(w, "a", "Running"))
        metrics = w.metrics.render().decode()
        for name in ("shards_total", "load_average", "migration_duration_seconds_bucket", "leases_taken_total 1.0"):
            assert f"shard_controller_{name}" in metrics


async def said(w: World, reason: str, text: str) -> bool:
    return any(text in message for message in await w.messages(reason))


async def done(check: object) -> bool:
    await check  # type: ignore[misc]
    return True


async def phase_is(w: World, shard: str, *phases: str) -> bool:
    return await w.phase(shard) in phases


async def ranges_tile(w: World, *shards: str) -> bool:
    ends = []
    for shard in shards:
        spec, _ = read_instance(await w.instances.get(shard, NAMESPACE))
        assert spec.hash_range in spec.hash_ranges
        ends += [(each.start, each.end) for each in spec.hash_ranges]
    ends.sort()
    assert ends[0][0] == 0
    assert ends[-1][1] == 2**32 - 1
    assert all(second[0] == first[1] + 1 for first, second in zip(ends, ends[1:], strict=False))
    return True


async def test_a_leaving_worker_hands_over_its_slots_and_a_restarted_one_gets_higher_epochs() -> None:
    async with world() as w:
        await w.config("web")
        a, b = (w.worker("web", name).start() for name in "ab")
        await w.shared_by("web", "a", "b")
        before = {entry.slot: entry for entry in await w.entries("web")}
        await b.release()
        b.start()

        async def reissued() -> bool:
            now = {entry.slot: entry for entry in await w.entries("web")}
            return all(
                now[slot].term == b.term and now[slot].epoch > entry.epoch
                for slot, entry in before.items()
                if entry.owner == "b" and now[slot].owner == "b"
            ) and any(entry.owner == "b" for entry in now.values())

        await eventually(reissued)
        a.memory = {3: b"three"}
        a.leaving = True
        assert await w.shared_by("web", "b") == {"b": 1024}
        assert b.memory == {3: b"three"} or before[3].owner == "b"
        await eventually(lambda: phase_is(w, "a", "Terminated"))
        await a.release()


async def test_every_step_of_a_move_can_fail_and_the_source_keeps_working() -> None:
    async with world() as w:
        await w.config("web", migrationTimeout="700ms", maxConcurrentMigrations=8)
        a = w.worker("web", "a").start()
        await w.shared_by("web", "a")
        a.memory = {slot: b"x%d" % slot for slot in range(1024)}
        b = w.worker("web", "b")
        b.failing = True
        b.start()

        def aborts() -> float:
            return metric(w, 'shard_controller_migrations_total{status="aborted"}')

        await eventually(lambda: aborts() > 0)
        assert all(entry.owner == "a" for entry in await w.entries("web"))
        b.failing = False
        for kind in (AckKind.PREPARED, AckKind.RESTORED):
            before = aborts()
            b.mute = {kind}
            await eventually(lambda before=before: aborts() > before)
        b.mute, a.mute, before = set(), {AckKind.DRAINED}, aborts()
        await eventually(lambda: aborts() > before)
        a.mute = set()
        await w.configs.patch("web", {"spec": {"migrationTimeout": "30s", "maxConcurrentMigrations": 256}}, NAMESPACE)

        async def all_moved() -> bool:
            return (await w.owners("web")).get("b", 0) >= 384

        await eventually(all_moved, timeout_s=60.0)
        mine = [entry.slot for entry in await w.entries("web") if entry.owner == "b"]
        assert all(b.memory[slot] == b"x%d" % slot for slot in mine)
        await eventually(lambda: said(w, "MovesAborted", "in time"))


def metric(w: World, name: str) -> float:
    for line in w.metrics.render().decode().splitlines():
        if line.startswith(name):
            return float(line.split()[-1])
    return 0.0


async def test_a_second_manager_takes_over_and_nothing_moves_because_of_it() -> None:
    async with world(manager=False) as w:
        async with manager_of(w, elected="second"):
            async with manager_of(w, elected="first-"):
                await w.config("web")
                for name in "ab":
                    w.worker("web", name).start()
                await w.shared_by("web", "a", "b")
                before = await w.entries("web")
            w.worker("web", "c").start()
            owners = await w.shared_by("web", "a", "b", "c")
            stayed = [entry for entry in await w.entries("web") if entry.owner != "c"]
            assert all(before[entry.slot] == entry for entry in stayed)
            assert owners["c"] <= 1.25 * 1024 / 3


async def test_pods_are_made_from_the_template_and_an_update_moves_each_slot_once() -> None:
    async with world() as w:
        seen: dict[int, list[str]] = {slot: [] for slot in range(1024)}

        def note(entries: list[SlotEntry]) -> None:
            for entry in entries:
                if entry.owner and (not seen[entry.slot] or seen[entry.slot][-1] != entry.owner):
                    seen[entry.slot].append(entry.owner)

        limits = {"limits": {"cpu": "500m", "memory": "512Mi"}}
        await w.config("web", minShards=2, template=TEMPLATE, resources=limits, update={"maxSurge": 1})
        players = w.pod_workers("web")
        await eventually(lambda: len(players.workers) == 2)
        old = sorted(players.workers)
        await w.shared_by("web", *old)
        pod = await w.pods.get(old[0], NAMESPACE)
        env = {each["name"]: each["value"] for each in pod["spec"]["containers"][0]["env"]}
        assert (env["SHARD_ID"], env["SHARD_CONFIG"], env["SHARD_NAMESPACE"]) == (old[0], "web", NAMESPACE)
        assert pod["spec"]["containers"][0]["resources"]["limits"] == limits["limits"]
        assert pod["metadata"]["ownerReferences"][0]["kind"] == "ShardInstance"
        note(await w.entries("web"))
        newer = {**TEMPLATE, "spec": {"containers": [{"name": "w", "image": "w:2"}]}}
        await w.configs.patch("web", {"spec": {"template": newer}}, NAMESPACE)

        async def updated() -> bool:
            entries = await w.entries("web")
            note(entries)
            owners = {entry.owner for entry in entries}
            return not owners & set(old) and all(entry.move is None for entry in entries) and len(owners) == 2

        await eventually(updated, timeout_s=30.0)
        assert {len(owners) for owners in seen.values()} == {2}
        await eventually(lambda: not set(old) & set(players.workers))
        status = await w.status("web")
        assert status["desiredShards"] == 2


async def test_shards_are_added_under_load_and_removed_when_it_is_gone() -> None:
    async with world() as w:
        await w.config(
            "web", minShards=2, maxShards=3, template=TEMPLATE, sustainedFor="600ms", cooldown="900ms",
            rebalanceThreshold=1.0,
        )  # fmt: skip
        players = w.pod_workers("web")
        await eventually(lambda: len(players.workers) == 2)
        players.load = 0.95
        await eventually(lambda: len(players.workers) == 3, timeout_s=30.0)
        await w.shared_by("web", *players.workers, timeout_s=30.0)
        await eventually(lambda: said(w, "ScalingUp", "load 0.95 has been above 0.8"))
        assert metric(w, 'shard_controller_scaling_operations_total{operation="up",reason="Load"}') >= 1
        players.load = 0.05
        await eventually(lambda: len(players.workers) == 2, timeout_s=40.0)
        await w.shared_by("web", *players.workers, timeout_s=30.0)
        await eventually(lambda: said(w, "ScalingDown", "has been below 0.3"))
        status = await w.status("web")
        assert status["lastScale"].startswith("down to 2")


async def test_an_unhealthy_shard_is_emptied_and_gets_its_slots_back_when_it_is_healthy() -> None:
    async with world(manager=False) as w:
        ill: set[int] = set()

        async def probe(host: str, port: int, path: str, timeout_s: float) -> str:
            return "answered HTTP/1.1 500" if port in ill else ""

        async with manager_of(w, probe=probe):
            await w.config(
                "web", minShards=1, maxShards=1, template=TEMPLATE, healthCheckInterval="100ms",
                healthCheck={"port": 9000, "failureThreshold": 2},
            )  # fmt: skip
            players = w.pod_workers("web")
            await eventually(lambda: len(players.workers) == 1)
            (only,) = players.workers
            await w.shared_by("web", only)
            ill.add(9000)
            await eventually(lambda: phase_is(w, only, "Draining"))
            status = (await w.instances.get(only, NAMESPACE))["status"]
            assert status["reason"] == "Unhealthy"
            ill.clear()
            await eventually(lambda: phase_is(w, only, "Running", "Terminated"))


class Ahead(RealClock):
    """A machine whose wall clock is wrong by more than a shard may take to start."""

    def wall_s(self) -> float:
        return super().wall_s() + 600.0


async def test_a_leader_whose_clock_is_ahead_gives_starting_shards_their_time() -> None:
    async with world(manager=False) as w:

        async def pending(count: int) -> bool:
            statuses = [obj.get("status") or {} for obj in (await w.instances.list()).items]
            assert "Failed" not in {status.get("phase") for status in statuses}, statuses
            return [status.get("phase") for status in statuses] == ["Pending"] * count

        async with manager_of(w):
            await w.config("web", minShards=2, template=TEMPLATE)
            await eventually(lambda: pending(2))
        async with manager_of(w, clock=Ahead()):
            await w.configs.patch("web", {"spec": {"minShards": 3}}, NAMESPACE)
            await eventually(lambda: pending(3))  # it has looked at all of them


async def test_a_config_of_a_name_that_is_taken_is_refused_with_the_reason() -> None:
    async with world() as w:
        await w.client.of(builtin("namespaces")).create({"metadata": {"name": "other"}})
        for namespace in (NAMESPACE, "other"):
            await w.configs.create({"metadata": {"name": "web", "namespace": namespace}, "spec": {}})

        async def refused() -> bool:
            found = []
            for namespace in (NAMESPACE, "other"):
                status = (await w.configs.get("web", namespace)).get("status") or {}
                conditions = {each["type"]: each for each in status.get("conditions") or ()}
                found.append((conditions.get("Accepted") or {}).get("reason"))
            return sorted(found, key=str) == ["NameTaken", "Valid"]

        await eventually(refused)
