"""Claims get folders and release them; existing volumes are found; nothing in use is removed."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from pathlib import Path

from shoal.controllers.persistentvolume import wiring
from shoal.controllers.persistentvolume.config import VolumeConfig
from shoal.errors import NotFound
from shoal.testing.controllers import running
from shoal.testing.servers import local_server
from shoal.testing.waiting import eventually

SELECTED = {"volume.kubernetes.io/selected-node": "node-1"}


def is_folder(path):
    return path.is_dir()


@asynccontextmanager
async def bound(directory: Path, **config):
    def add(context):
        wiring.add(context, VolumeConfig(directory=directory, **config))

    async with local_server() as server, running(server, [add]) as context:
        classes = context.resource("storageclasses", "storage.k8s.io")
        if config.get("class_name", "local"):
            await eventually(lambda: classes.get("local"))
        yield World(context)


class World:
    def __init__(self, context):
        self.context = context
        self.claims, self.volumes = context.resource("persistentvolumeclaims"), context.resource("persistentvolumes")
        self.pods = context.resource("pods")

    async def claim(self, name, notes=None, **spec):
        spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, **spec}
        about = {"name": name, "annotations": notes or {}}
        return await self.claims.create({"metadata": about, "spec": spec}, "default")

    async def phase(self, name, wanted):
        async def check():
            found = await self.claims.get(name, "default")
            assert found["status"]["phase"] == wanted
            return found

        return await eventually(check)

    async def volume_phase(self, name, wanted):
        async def check():
            found = await self.volumes.get(name)
            assert found["status"]["phase"] == wanted
            return found

        return await eventually(check)

    async def gone(self, resource, name, namespace=""):
        async def check():
            try:
                await resource.get(name, namespace)
            except NotFound:
                return True
            return False

        await eventually(check)


async def test_a_claim_gets_a_folder_when_its_pod_is_placed_and_the_folder_goes_with_it(tmp_path):
    async with bound(tmp_path / "volumes") as world:
        claim = await world.claim("data")
        assert claim["spec"]["storageClassName"] == "local"
        events = world.context.resource("events")

        async def waits():
            return any(each["reason"] == "WaitForFirstConsumer" for each in (await events.list()).items)

        await eventually(waits)
        assert (await world.volumes.list()).items == []
        await world.claims.patch("data", {"metadata": {"annotations": SELECTED}}, "default")
        claim = await world.phase("data", "Bound")
        volume = await world.volume_phase(claim["spec"]["volumeName"], "Bound")
        path = Path(volume["spec"]["hostPath"]["path"])
        assert is_folder(path)
        (path / "file").write_text("content")
        await world.claims.delete("data", "default")
        await world.gone(world.claims, "data", "default")
        await world.gone(world.volumes, volume["metadata"]["name"])
        assert not is_folder(path)


async def test_claims_of_an_immediate_class_are_bound_at_once(tmp_path):
    async with bound(tmp_path, wait_for_consumer=False) as world:
        await asyncio.gather(*(world.claim(f"c{n}") for n in range(10)))
        for number in range(10):
            claim = await world.phase(f"c{number}", "Bound")
            assert claim["status"]["capacity"] == {"storage": "1Gi"}
        assert len(list(tmp_path.iterdir())) == 10


async def test_a_claim_in_use_stays_until_its_pod_is_gone(tmp_path):
    async with bound(tmp_path, wait_for_consumer=False) as world:
        await world.claim("data")
        await world.phase("data", "Bound")
        spec = {
            "containers": [{"name": "c", "image": "i"}], "nodeName": "n",
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}],
        }  # fmt: skip
        await world.pods.create({"metadata": {"name": "user"}, "spec": spec}, "default")
        cache = world.context.informer("pods").cache
        await eventually(lambda: len(cache))
        await world.claims.delete("data", "default")
        claim = await world.claims.get("data", "default")
        assert claim["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]
        await world.pods.delete("user", "default", grace_period_s=0)
        await world.gone(world.claims, "data", "default")


async def test_an_existing_volume_is_taken_kept_and_released(tmp_path):
    async with bound(tmp_path, class_name="") as world:
        for name, size in (("big", "5Gi"), ("small", "2Gi")):
            spec = {
                "capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"], "storageClassName": "manual",
                "hostPath": {"path": str(tmp_path / name)},
            }  # fmt: skip
            await world.volumes.create({"metadata": {"name": name}, "spec": spec})
            await world.volume_phase(name, "Available")
        await world.claim("data", storageClassName="manual")
        claim = await world.phase("data", "Bound")
        assert claim["spec"]["volumeName"] == "small"
        await world.volume_phase("small", "Bound")
        await world.claims.delete("data", "default")
        await world.volume_phase("small", "Released")
        await world.claim("data", storageClassName="manual")
        claim = await world.phase("data", "Bound")
        assert claim["spec"]["volumeName"] == "big"
        await world.volumes.delete("big")
        held = await world.volumes.get("big")
        assert held["metadata"]["finalizers"] == ["kubernetes.io/pv-protection"]
        await world.claims.delete("data", "default")
        await world.gone(world.volumes, "big")


async def test_a_folder_outside_of_the_directory_is_never_removed(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    async with bound(tmp_path / "volumes", wait_for_consumer=False) as world:
        claim = await world.claim("data")
        claim = await world.phase("data", "Bound")
        name = claim["spec"]["volumeName"]
        volume = await world.volumes.get(name)
        real = Path(volume["spec"]["hostPath"]["path"])
        forged = {
            "metadata": {"name": "forged", "annotations": {"pv.kubernetes.io/provisioned-by": "shoal.dev/folder"}},
            "spec": {
                **{key: volume["spec"][key] for key in ("capacity", "accessModes", "storageClassName")},
                "persistentVolumeReclaimPolicy": "Delete", "hostPath": {"path": str(outside)},
                "claimRef": {"namespace": "default", "name": "never", "uid": "gone"},
            },
        }  # fmt: skip
        await world.volumes.create(forged)
        await world.volume_phase("forged", "Released")
        assert is_folder(outside)
        assert is_folder(real)


async def test_a_pod_with_an_ephemeral_volume_gets_a_claim_of_its_own(tmp_path):
    async with bound(tmp_path, wait_for_consumer=False) as world:
        template = {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}}
        spec = {
            "containers": [{"name": "c", "image": "i"}],
            "volumes": [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}],
        }  # fmt: skip
        pod = await world.pods.create({"metadata": {"name": "user"}, "spec": spec}, "default")
        claim = await world.phase("user-scratch", "Bound")
        owner = claim["metadata"]["ownerReferences"][0]
        assert (owner["uid"], owner["controller"]) == (pod["metadata"]["uid"], True)
