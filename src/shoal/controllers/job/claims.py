"""Claims of jobs: a pod that is adopted is tracked from then on, and one that is released is not any more."""

from __future__ import annotations

from shoal.client import PatchType, ResourceClient
from shoal.controllers.job.model import FINALIZER
from shoal.controllers.pods.claims import Claimer
from shoal.errors import Conflict, Invalid, NotFound
from shoal.kube.objects import Obj


class JobClaimer(Claimer):
    """Owner reference and finalizer come and go in one write."""

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
            pass  # it is gone, or another of its name is there


_WITHOUT_FINALIZER: Obj = {"$deleteFromPrimitiveList/finalizers": [FINALIZER]}


async def remove_finalizer(pods: ResourceClient, pod: Obj) -> Obj | None:
    """The pod without the finalizer, as the server has it; None when it is gone."""
    about = pod["metadata"]
    patch = {"metadata": {"uid": about["uid"], **_WITHOUT_FINALIZER}}
    try:
        return await pods.patch(about["name"], patch, about["namespace"], type=PatchType.STRATEGIC)
    except NotFound:
        return None
