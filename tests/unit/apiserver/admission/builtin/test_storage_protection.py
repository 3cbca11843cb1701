"""StorageObjectInUseProtection: the finalizers of new claims and volumes."""

from __future__ import annotations

from typing import Any

from shoal.testing.servers import local_server

CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
SIZE = {"storage": "1Gi"}


def a_claim(**metadata: Any) -> dict[str, Any]:
    return {"metadata": metadata, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": SIZE}}}


async def test_the_answer_to_create_has_the_finalizer() -> None:
    async with local_server() as server:
        claim = await server.post(CLAIMS, a_claim(name="a"))
        assert claim["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]
        given = ["example.com/mine", "kubernetes.io/pvc-protection"]
        assert (await server.post(CLAIMS, a_claim(name="b", finalizers=given)))["metadata"]["finalizers"] == given
        volume = {"capacity": SIZE, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/tmp"}}
        made = await server.post("/api/v1/persistentvolumes", {"metadata": {"name": "v"}, "spec": volume})
        assert made["metadata"]["finalizers"] == ["kubernetes.io/pv-protection"]


async def test_a_deleted_claim_stays_until_the_finalizer_is_gone() -> None:
    async with local_server() as server:
        await server.post(CLAIMS, a_claim(name="a"))
        assert (await server.delete(f"{CLAIMS}/a"))["metadata"]["deletionTimestamp"]
        await server.patch(f"{CLAIMS}/a", {"metadata": {"finalizers": None}})
        assert (await server.call("GET", f"{CLAIMS}/a")).status == 404
