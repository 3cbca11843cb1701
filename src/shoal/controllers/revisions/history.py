"""Keeps the revisions of one kind of workload: records new templates, renumbers reused ones, deletes old ones."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import assert_never

from shoal.controllers.context import ControllerContext
from shoal.controllers.pods.claims import Claimer
from shoal.controllers.pods.expectations import Expectations
from shoal.controllers.pods.owners import by_controller, selector_of
from shoal.controllers.revisions.plan import (
    CreateRevision,
    RenumberRevision,
    UseRevision,
    choose,
    data_of,
    new_revision,
    ordered,
    surplus,
)
from shoal.errors import AlreadyExists, Conflict, NotFound
from shoal.kube.objects import Obj
from shoal.reconcile.keys import controller_of

_TRIES = 10  # attempts against name collisions


@dataclass(frozen=True, slots=True)
class Revisions:
    """The revisions of a workload, oldest first; the last one is its template."""

    update: Obj
    all: tuple[Obj, ...]
    collisions: int


class RevisionHistory:
    def __init__(self, context: ControllerContext, plural: str, expectations: Expectations, *, hash_label: str) -> None:
        self.informer = context.informer("controllerrevisions", "apps", controller=by_controller)
        self._resource = context.resource("controllerrevisions", "apps")
        self._expectations = expectations
        self._claimer = Claimer(self._resource, self.informer.cache, context.resource(plural, "apps"), expectations)
        self._hash_label = hash_label

    async def sync(self, owner: Obj, reference: Obj) -> Revisions:
        """The revisions of the owner; creates or renumbers the one of its current template."""
        claimed = await self._claimer.claim(owner, reference, selector_of(owner))
        present = ordered(claimed)
        collisions = (owner.get("status") or {}).get("collisionCount") or 0
        choice = choose(owner, present, reference, collisions, self._hash_label)
        match choice:
            case UseRevision(revision):
                return Revisions(revision, tuple(present), collisions)
            case RenumberRevision(revision):
                answer = await self._resource.replace(revision)
            case CreateRevision(revision):
                answer, collisions = await self._create(owner, reference, revision, collisions)
            case _:
                assert_never(choice)
        self._expectations.wrote(owner["metadata"]["uid"], self.informer.cache, answer)
        others = [each for each in present if each["metadata"]["uid"] != answer["metadata"]["uid"]]
        return Revisions(answer, (*others, answer), collisions)

    async def _create(self, owner: Obj, reference: Obj, revision: Obj, collisions: int) -> tuple[Obj, int]:
        for _ in range(_TRIES):
            try:
                return await self._resource.create(revision), collisions
            except AlreadyExists:
                about = revision["metadata"]
                found = await self._resource.get(about["name"], about["namespace"])
                parent = controller_of(found)
                ours = parent is not None and parent["uid"] == owner["metadata"]["uid"]
                if ours and found.get("data") == data_of(owner):
                    return found, collisions
                collisions += 1
                revision = new_revision(owner, reference, revision["revision"], collisions, self._hash_label)
        raise Conflict(f"no name is free for a revision of {owner['metadata']['name']}")

    async def truncate(self, owner: Obj, revisions: Sequence[Obj], live: Collection[str]) -> None:
        """Delete the oldest revisions beyond the owner's limit, but none whose name is in ``live``."""
        for revision in surplus(revisions, live, owner["spec"].get("revisionHistoryLimit")):
            about = revision["metadata"]
            try:
                await self._resource.delete(about["name"], about["namespace"], uid=about["uid"])
            except (NotFound, Conflict):
                continue
            self._expectations.deleted(owner["metadata"]["uid"], self.informer.cache, revision)
