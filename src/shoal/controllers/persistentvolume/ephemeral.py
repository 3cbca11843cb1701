"""Claims of a pod's ephemeral volumes: created for the pod and deleted with it."""

from __future__ import annotations

from shoal.controllers.context import ControllerContext
from shoal.errors import AlreadyExists
from shoal.kube.objects import Obj
from shoal.reconcile import DONE, Cache, Change, EventType, ObjectKey, Result


def claims_to_make(pod: Obj) -> list[Obj]:
    """The claims that the pod's ephemeral volumes need."""
    about = pod["metadata"]
    if about.get("deletionTimestamp"):
        return []
    owner = {
        "apiVersion": "v1", "kind": "Pod", "name": about["name"], "uid": about["uid"], "controller": True,
        "blockOwnerDeletion": True,
    }  # fmt: skip
    made: list[Obj] = []
    for volume in pod["spec"].get("volumes") or ():
        template = (volume.get("ephemeral") or {}).get("volumeClaimTemplate")
        if not template:
            continue
        given = template.get("metadata") or {}
        metadata: Obj = {"name": f"{about['name']}-{volume['name']}", "ownerReferences": [owner]}
        metadata |= {name: given[name] for name in ("labels", "annotations") if given.get(name)}
        made.append({"metadata": metadata, "spec": template["spec"]})
    return made


def belongs_to(claim: Obj, pod: Obj) -> bool:
    uid = pod["metadata"]["uid"]
    return any(each["uid"] == uid and each.get("controller") for each in claim["metadata"].get("ownerReferences") or ())


class EphemeralClaims:
    def __init__(self, context: ControllerContext, pods: Cache, claims: Cache) -> None:
        self._context = context
        self._pods, self._claims = pods, claims
        self._resource = context.resource("persistentvolumeclaims")

    async def reconcile(self, key: ObjectKey) -> Result:
        pod = self._pods.get(key)
        if pod is None:
            return DONE
        for wanted in claims_to_make(pod):
            name = wanted["metadata"]["name"]
            known = self._claims.get(ObjectKey(key.namespace, name))
            if known is None:
                try:
                    await self._resource.create(wanted, key.namespace)
                except AlreadyExists:
                    known = await self._resource.get(name, key.namespace)
            if known is not None and not belongs_to(known, pod):
                message = f'PVC "{name}" was not created for the pod'
                self._context.events.record(pod, EventType.WARNING, "FailedCreate", message)
        return DONE


def has_ephemeral(change: Change) -> bool:
    """A predicate for new pods with ephemeral volumes; a pod's volumes do not change."""
    if change.new is None or change.old is not None:
        return False
    return any(each.get("ephemeral") for each in change.new["spec"].get("volumes") or ())
