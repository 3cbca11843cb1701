"""The desired number of pods of an owner: from the caches for built-in workloads, from its scale for all others."""

from __future__ import annotations

from shoal.controllers.context import ControllerContext
from shoal.controllers.disruption.plan import scale_source
from shoal.errors import NotFound, ShoalError
from shoal.kube.objects import Obj
from shoal.reconcile import ObjectKey, controller_of

WORKLOADS = {
    ("apps", "ReplicaSet"): "replicasets",
    ("apps", "Deployment"): "deployments",
    ("apps", "StatefulSet"): "statefulsets",
    ("", "ReplicationController"): "replicationcontrollers",
}


class NoScale(ShoalError):
    """An owner has no desired number of pods."""


class Scales:
    def __init__(self, context: ControllerContext) -> None:
        self._client = context.client
        self.informers = {key: context.informer(plural, key[0]) for key, plural in WORKLOADS.items()}

    async def wanted(self, pods: tuple[Obj, ...]) -> tuple[int, int]:
        """The total of desired pods of the owners, each counted once, and the number of pods without an owner."""
        owners: dict[str, tuple[str, Obj]] = {}
        unmanaged = 0
        for pod in pods:
            reference = controller_of(pod)
            if reference is None:
                unmanaged += 1
            else:
                owners[reference["uid"]] = pod["metadata"]["namespace"], reference
        total: dict[str, int] = {}
        for namespace, reference in owners.values():
            uid, replicas = await self._of(namespace, reference)
            total[uid] = replicas
        return sum(total.values()), unmanaged

    async def _of(self, namespace: str, reference: Obj) -> tuple[str, int]:
        group = reference["apiVersion"].rpartition("/")[0]
        informer = self.informers.get((group, reference["kind"]))
        if informer is None:
            return await self._ask(namespace, reference)
        found = informer.cache.get(ObjectKey(namespace, reference["name"]))
        if found is None or found["metadata"]["uid"] != reference["uid"]:
            return reference["uid"], 0  # its pods are deleted with it
        if reference["kind"] == "ReplicaSet":
            above = scale_source(found)
            if above is not None:
                return await self._of(namespace, above)
        return reference["uid"], found["spec"].get("replicas", 1)

    async def _ask(self, namespace: str, reference: Obj) -> tuple[str, int]:
        try:
            resource = await self._client.by_kind(reference["kind"], reference["apiVersion"])
            scale = await resource.get_subresource(reference["name"], "scale", namespace)
        except NotFound as error:
            raise NoScale(
                f"{reference['kind']}.{reference['apiVersion']} does not implement the scale subresource"
            ) from (error)
        return reference["uid"], (scale.get("spec") or {}).get("replicas", 0)
