"""One write's pass through admission, as the verbs use it: ``begin_pass`` returns None when no plugin handles it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from shoal.apiserver.admission.chain import Chain, Plan
from shoal.apiserver.admission.model import Admission
from shoal.apiserver.body import WriteOptions
from shoal.apiserver.context import Call
from shoal.apiserver.effects import NOTHING, Extra
from shoal.apiserver.registry import Served
from shoal.kube.objects import Obj

_OPTIONS = {"POST": "CreateOptions", "PUT": "UpdateOptions", "PATCH": "PatchOptions"}
_KEPT = ("name", "namespace", "uid", "creationTimestamp")
# Fields that only the server sets; changes by users' plugins are undone.
_OURS = (
    "generation", "deletionTimestamp", "deletionGracePeriodSeconds", "resourceVersion", "selfLink", "managedFields",
)  # fmt: skip


class AdmissionPass:
    """Admission of one write. The verbs work on objects in the storage version; plugins see the version asked for."""

    __slots__ = ("_chain", "admission", "plan")

    def __init__(self, chain: Chain, plan: Plan, admission: Admission) -> None:
        self._chain = chain
        self.plan = plan
        self.admission = admission

    async def mutate(self, obj: Obj) -> Obj:
        """The object as the mutating plugins leave it."""
        if not self.plan.mutates:
            return obj
        admission = self.admission
        before = dict(obj.get("metadata") or ()) if self.plan.dynamic_mutators else {}
        admission.object = self._shown(obj)
        await self._chain.mutate(self.plan, admission)
        changed: Obj = admission.object
        if self.plan.dynamic_mutators and not admission.kind[2]:
            metadata = changed["metadata"]
            for name in _KEPT:
                if name in before:
                    metadata[name] = before[name]
            for name in _OURS:
                if name in before:
                    metadata[name] = before[name]
                else:
                    metadata.pop(name, None)
            if admission.served.to_storage is not None:
                changed = admission.served.to_storage(changed)
        return changed

    async def validate(self, obj: Obj) -> None:
        """Raise the error of the first validating plugin that rejects the object."""
        if self.plan.validates:
            self.admission.object = self._shown(obj)
            await self._chain.validate(self.plan, self.admission)

    async def agree(self) -> None:
        """Both steps for a write without an object: a deletion."""
        await self._chain.mutate(self.plan, self.admission)
        await self._chain.validate(self.plan, self.admission)

    def charges(self, obj: Obj) -> bool:
        """Whether a quota has to be charged for this write."""
        if not self.plan.chargers:
            return False
        self.admission.object = obj
        return any(charger.concerns(self.admission) for charger in self.plan.chargers)

    def charge(self, obj: Obj) -> Extra:
        self.admission.object = obj
        extra = NOTHING
        for charger in self.plan.chargers:
            if charger.concerns(self.admission):
                more = charger.charge(self.admission)
                extra = Extra([*extra.ops, *more.ops], [*extra.requires, *more.requires])
        return extra

    def _shown(self, obj: Obj) -> Obj:
        """``obj`` as the plugins see it. Built-in plugins only concern kinds that are stored as they are shown."""
        from_storage = self.admission.served.from_storage
        if from_storage is None or self.admission.kind[2]:
            return obj
        return from_storage(obj)


def begin_pass(
    chain: Chain,
    call: Call | None,
    served: Served,
    operation: str,
    *,
    subresource: str = "",
    old: Obj | None = None,
    name: str = "",
    namespace: str = "",
    options: WriteOptions | Mapping[str, Any],
    kind: tuple[str, str, str] = ("", "", ""),
) -> AdmissionPass | None:
    """Admission of a client's write; None for the server's own writes and for writes that no plugin handles."""
    if call is None:
        return None
    plan = chain.plan(served, operation, subresource)
    if plan is None:
        return None
    if isinstance(options, WriteOptions):
        dry_run, shown = options.dry_run, _options(_OPTIONS.get(call.request.method, "CreateOptions"), options)
    else:
        dry_run, shown = bool(options.get("dryRun")), options
    admission = Admission(
        operation, served, subresource, namespace or call.namespace or "", name or call.name, call.user, None, old,
        shown, dry_run, call.warnings, call.annotations, kind,
    )  # fmt: skip
    return AdmissionPass(chain, plan, admission)


@lru_cache(maxsize=256)
def _options(kind: str, options: WriteOptions) -> Mapping[str, Any]:
    shown: dict[str, Any] = {"kind": kind, "apiVersion": "meta.k8s.io/v1"}
    if options.dry_run:
        shown["dryRun"] = ["All"]
    if options.field_manager:
        shown["fieldManager"] = options.field_manager
    if options.validation:
        shown["fieldValidation"] = options.validation
    return shown
