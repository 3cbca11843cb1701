"""Executes the next step of a StatefulSet: claims, pods, revisions, and its status."""

from __future__ import annotations

from typing import assert_never

from shoal.client import TransportError
from shoal.controllers.context import ControllerContext
from shoal.controllers.pods.claims import Claimer
from shoal.controllers.pods.control import BURST, Call, Failure, namespace_ends, slow_start
from shoal.controllers.pods.expectations import RECHECK_S, Expectations
from shoal.controllers.pods.owners import by_controller, selector_of
from shoal.controllers.pods.status import is_terminating
from shoal.controllers.pods.template import controller_reference
from shoal.controllers.revisions.history import RevisionHistory, Revisions
from shoal.controllers.revisions.plan import HASH_LABEL, name_of
from shoal.controllers.statefulset.identity import is_member, revision_of
from shoal.controllers.statefulset.model import (
    Action,
    CreateClaims,
    CreatePod,
    DeletePod,
    Refuse,
    StatefulSetPlan,
    UpdateClaim,
    UpdatePod,
)
from shoal.controllers.statefulset.plan import plan
from shoal.errors import AlreadyExists, ApiError, Conflict, NotFound
from shoal.kube.objects import Obj
from shoal.reconcile import DONE, EventType, Result
from shoal.reconcile.keys import ObjectKey


class StatefulSetController:
    """Reconciles StatefulSets."""

    def __init__(self, context: ControllerContext) -> None:
        self.owners = context.informer("statefulsets", "apps")
        self.pods = context.informer("pods", controller=by_controller)
        self.claims = context.informer("persistentvolumeclaims")
        self._clock = context.clock
        self._events = context.events
        self._resource = context.resource("statefulsets", "apps")
        self._pods = context.resource("pods")
        self._claims = context.resource("persistentvolumeclaims")
        self._expectations = Expectations(context.clock)
        self._claimer = Claimer(self._pods, self.pods.cache, self._resource, self._expectations)
        self.history = RevisionHistory(context, "statefulsets", self._expectations, hash_label=HASH_LABEL)
        self._uids: dict[ObjectKey, str] = {}

    async def reconcile(self, key: ObjectKey) -> Result:
        owner = self.owners.cache.get(key)
        if owner is None:
            self._expectations.forget(self._uids.pop(key, ""))
            return DONE
        uid = self._uids[key] = owner["metadata"]["uid"]
        if is_terminating(owner):
            return DONE  # a new revision would only have to be deleted again
        if not self._expectations.satisfied(uid):
            return Result(after_s=RECHECK_S)
        reference = controller_reference(owner, "apps/v1", "StatefulSet")
        try:
            revisions = await self.history.sync(owner, reference)
        except ApiError as error:
            if namespace_ends(error):
                return DONE
            raise
        pods = await self._claimer.claim(owner, reference, selector_of(owner), wanted=lambda pod: is_member(owner, pod))
        decided = plan(
            owner, pods, claim_of=lambda name: self.claims.cache.get(ObjectKey(key.namespace, name)),
            current=_current(owner, revisions), update=revisions.update, collisions=revisions.collisions,
            now=self._clock.wall_s(),
        )  # fmt: skip
        failure = await self._act(owner, decided)
        await self._report(owner, decided.status)
        if failure is not None:
            raise failure
        live = {revision_of(pod) for pod in pods} | {decided.status["currentRevision"], name_of(revisions.update)}
        await self.history.truncate(owner, revisions.all, live)
        return Result(after_s=decided.recheck_s)

    async def _act(self, owner: Obj, decided: StatefulSetPlan) -> Failure | None:
        def call(action: Action) -> Call[None]:
            return lambda: self._do(owner, action)

        if decided.parallel:
            _, failure = await slow_start([call(action) for action in decided.actions[:BURST]])
            return None if failure is not None and namespace_ends(failure) else failure
        for action in decided.actions:
            try:
                await self._do(owner, action)
            except (ApiError, TransportError) as failure:
                return None if namespace_ends(failure) else failure
        return None

    async def _do(self, owner: Obj, action: Action) -> None:
        match action:
            case CreatePod(pod, claims):
                await self._create_pod(owner, pod, claims)
            case CreateClaims(pod, claims):
                await self._create_claims(owner, pod, claims)
            case UpdatePod(pod):
                await self._update_pod(owner, pod)
            case UpdateClaim(pod, claim):
                await self._update_claim(owner, pod, claim)
            case DeletePod(pod):
                await self._delete_pod(owner, pod)
            case Refuse(pod, why):
                refusal = Conflict(why)
                self._record_pod(owner, "Create", pod, refusal)
                raise refusal
            case _:
                assert_never(action)

    async def _create_pod(self, owner: Obj, pod: Obj, claims: tuple[Obj, ...]) -> None:
        try:
            await self._create_claims(owner, pod, claims)
            answer = await self._pods.create(pod)
        except AlreadyExists as failure:
            # a pod with this name is not ours, or not in the cache yet
            found = await self._pods.get(pod["metadata"]["name"], pod["metadata"]["namespace"])
            self._wrote(owner, found)
            if not _is_controlled(found, owner):
                self._record_pod(owner, "Create", pod, failure)
                raise
            return
        except (ApiError, TransportError) as failure:
            if not namespace_ends(failure):
                self._record_pod(owner, "Create", pod, failure)
            raise
        self._wrote(owner, answer)
        self._record_pod(owner, "Create", pod, None)

    async def _create_claims(self, owner: Obj, pod: Obj, claims: tuple[Obj, ...]) -> None:
        for claim in claims:
            try:
                answer = await self._claims.create(claim)
            except AlreadyExists:
                continue
            except (ApiError, TransportError) as failure:
                if not namespace_ends(failure):
                    self._record_claim(owner, claim, pod, failure)
                raise
            self._expectations.wrote(owner["metadata"]["uid"], self.claims.cache, answer)
            self._record_claim(owner, claim, pod, None)

    async def _update_pod(self, owner: Obj, pod: Obj) -> None:
        try:
            self._wrote(owner, await self._pods.replace(pod))
        except NotFound:
            return
        except ApiError as failure:
            self._record_pod(owner, "Update", pod, failure)
            raise
        self._record_pod(owner, "Update", pod, None)

    async def _update_claim(self, owner: Obj, pod: Obj, claim: Obj) -> None:
        try:
            answer = await self._claims.replace(claim)
        except NotFound:
            return
        except ApiError as failure:
            self._record_pod(owner, "Update", pod, failure)
            raise
        self._expectations.wrote(owner["metadata"]["uid"], self.claims.cache, answer)

    async def _delete_pod(self, owner: Obj, pod: Obj) -> None:
        about = pod["metadata"]
        try:
            await self._pods.delete(about["name"], about["namespace"], uid=about["uid"])
        except (NotFound, Conflict):
            return  # deleted, or another object has its name
        except (ApiError, TransportError) as failure:
            self._record_pod(owner, "Delete", pod, failure)
            raise
        self._expectations.deleted(owner["metadata"]["uid"], self.pods.cache, pod)
        self._record_pod(owner, "Delete", pod, None)

    def _wrote(self, owner: Obj, pod: Obj) -> None:
        self._expectations.wrote(owner["metadata"]["uid"], self.pods.cache, pod)

    def _record_pod(self, owner: Obj, verb: str, pod: Obj, failure: Exception | None) -> None:
        what = f"{verb} Pod {pod['metadata']['name']} in StatefulSet {owner['metadata']['name']}"
        self._record(
            owner, verb, f"{what} successful" if failure is None else f"{what} failed error: {failure}", failure
        )

    def _record_claim(self, owner: Obj, claim: Obj, pod: Obj, failure: Exception | None) -> None:
        names = claim["metadata"]["name"], pod["metadata"]["name"], owner["metadata"]["name"]
        if failure is None:
            self._record(owner, "Create", "Create Claim {} Pod {} in StatefulSet {} success".format(*names), None)
        else:
            text = "Create Claim {} for Pod {} in StatefulSet {} failed error: {}".format(*names, failure)
            self._record(owner, "Create", text, failure)

    def _record(self, owner: Obj, verb: str, message: str, failure: Exception | None) -> None:
        if failure is None:
            self._events.record(owner, EventType.NORMAL, f"Successful{verb}", message)
        else:
            self._events.record(owner, EventType.WARNING, f"Failed{verb}", message)

    async def _report(self, owner: Obj, status: Obj) -> None:
        if status == owner.get("status"):
            return
        answer = await self._resource.replace_status({**owner, "status": status})
        self._expectations.wrote(owner["metadata"]["uid"], self.owners.cache, answer)


def _current(owner: Obj, revisions: Revisions) -> Obj:
    """The revision that the set rolls from; by default the one that it rolls to."""
    name = (owner.get("status") or {}).get("currentRevision")
    return next((each for each in revisions.all if name_of(each) == name), revisions.update)


def _is_controlled(pod: Obj, owner: Obj) -> bool:
    references = pod["metadata"].get("ownerReferences") or ()
    return any(each.get("controller") and each["uid"] == owner["metadata"]["uid"] for each in references)
