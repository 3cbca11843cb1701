"""OwnerReferencesPermissionEnforcement: a user who sets an owner reference must be allowed to delete the
dependent, and to block the deletion of the owner. Off by default.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from shoal.apiserver.admission.model import CREATE, UPDATE, Admission, Where
from shoal.apiserver.authz.attributes import Attributes
from shoal.apiserver.context import Core
from shoal.apiserver.user import User
from shoal.kube.objects import Obj


class AccessDecision(Protocol):
    @property
    def allowed(self) -> bool: ...

    @property
    def reason(self) -> str: ...


class Authorizes(Protocol):
    def authorize(self, user: User, asked: Attributes, /) -> AccessDecision: ...


class OwnerReferencesPermissionEnforcement:
    def __init__(self, core: Core, authorizer: Authorizes) -> None:
        self._core = core
        self._authorizer = authorizer

    def handles(self, where: Where) -> bool:
        key, operation, subresource = where
        if (key, subresource) == ("pods", "status"):
            return False  # the status of a pod never changes its owners
        return operation in (CREATE, UPDATE)

    def validate(self, admission: Admission) -> None:
        new, old = _owners(admission.object), _owners(admission.old)
        if new == old:
            return
        if admission.operation != CREATE:
            self._check_delete(admission)
        blocking = _newly_blocking(new, old)
        if not blocking or self._authorizer.authorize(admission.user, _ANY_FINALIZERS).allowed:
            return
        for owner in blocking:
            self._check_finalizers(admission, owner)

    def _check_delete(self, admission: Admission) -> None:
        resource = admission.served.resource
        asked = Attributes(
            "delete", resource.group, resource.plural, admission.subresource, admission.namespace, admission.name
        )
        verdict = self._authorizer.authorize(admission.user, asked)
        if not verdict.allowed:
            raise admission.denied(f"cannot set an ownerRef on a resource you can't delete: {verdict.reason}, <nil>")

    def _check_finalizers(self, admission: Admission, owner: Obj) -> None:
        api_version, kind = owner.get("apiVersion", ""), owner.get("kind", "")
        group, _, version = api_version.rpartition("/")
        served = self._core.registry.by_kind(group, version, kind)
        if served is None:
            raise admission.denied(
                "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion "
                f'{api_version} Kind {kind}: no matches for kind "{kind}" in version "{api_version}"'
            )
        resource = served.resource
        namespace = admission.namespace if resource.namespaced else ""
        asked = Attributes("update", group, resource.plural, "finalizers", namespace, owner.get("name", ""))
        verdict = self._authorizer.authorize(admission.user, asked)
        if not verdict.allowed:
            raise admission.denied(
                "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: "
                f"{verdict.reason}, <nil>"
            )


_ANY_FINALIZERS = Attributes("update", "*", "*", "finalizers", "", "*")


def _owners(obj: Obj | None) -> list[Obj]:
    return ((obj or {}).get("metadata") or {}).get("ownerReferences") or []


def _newly_blocking(new: list[Obj], old: list[Obj]) -> list[Obj]:
    before = {owner.get("uid") for owner in _blocking(old)}
    return [owner for owner in _blocking(new) if owner.get("uid") not in before]


def _blocking(owners: list[Obj]) -> Iterator[Obj]:
    return (owner for owner in owners if owner.get("blockOwnerDeletion"))
