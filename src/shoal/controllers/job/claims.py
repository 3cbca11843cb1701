"""Claims of jobs: adopting a pod starts its tracking, releasing it ends the tracking."""

from __future__ import annotations

from shoal.client import PatchType, ResourceClient
from shoal.controllers.job.model import FINALIZER
from shoal.controllers.pods.claims import Claimer
from shoal.errors import Conflict, Invalid, NotFound
from shoal.kube.objects import Obj


class JobClaimer(Claimer):
    """Sets and removes owner reference and finalizer in one write."""

    async def _adopt(self, owner: Obj, reference: Obj, obj: Obj) -> tuple[Obj, ...]:
        about = {"uid": obj["metadata"]["uid"], "ownerReferences": [reference], "finalizers": [FINALIZER]}
        try:
            return (await self._patch(owner, obj, {"metadata": about}),)
        except NotFound:
            return ()

    async def _release(self, owner: Obj, obj: Obj) -> None:
        gone = {"$patch": "delete", "uid": owner["metadata"]["uid"]}
        about = {"uid": obj["metadata"]["uid"], "ownerReferences": [gone], **_WITHOUT_FINALIZER}
        try:
            await self._patch(owner, obj, {"metadata": about})
        except (NotFound, Invalid, Conflict):
            pass  # deleted, or another object has its name


_WITHOUT_FINALIZER: Obj = {"$deleteFromPrimitiveList/finalizers": [FINALIZER]}


async def remove_finalizer(pods: ResourceClient, pod: Obj) -> Obj | None:
    """Remove the finalizer; return the pod as stored, or None if it is gone."""
    about = pod["metadata"]
    patch = {"metadata": {"uid": about["uid"], **_WITHOUT_FINALIZER}}
    try:
        return await pods.patch(about["name"], patch, about["namespace"], type=PatchType.STRATEGIC)
    except NotFound:
        return None
