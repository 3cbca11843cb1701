"""ResourceQuota: charges the usage of a write to the quotas of its namespace, in the transaction of the write.

Every charge requires the quota at the revision it was read at. A concurrent write, on this
server or another, fails this condition, reads the quota again and checks what is left.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from shoal.apiserver import objects
from shoal.apiserver.admission.builtin.object_cache import ObjectCache
from shoal.apiserver.admission.model import CREATE, UPDATE, Admission, Where
from shoal.apiserver.context import Core
from shoal.apiserver.effects import NOTHING, Extra
from shoal.apiserver.registry import Served
from shoal.kube.objects import Obj
from shoal.kube.quota import QuotaRefused, charge, evaluator_of
from shoal.store import At, Entry, Key, Put

QUOTAS: Final = "resourcequotas"
# Kinds that are not stored, and events, which Kubernetes does not count.
_IGNORED: Final = frozenset({
    "bindings", "componentstatuses", "events", "tokenreviews.authentication.k8s.io",
    "selfsubjectreviews.authentication.k8s.io", "subjectaccessreviews.authorization.k8s.io",
    "selfsubjectaccessreviews.authorization.k8s.io", "localsubjectaccessreviews.authorization.k8s.io",
    "selfsubjectrulesreviews.authorization.k8s.io",
})  # fmt: skip
_ON_UPDATE: Final = {
    "pods": ("", "resize"),
    "services": ("",),
    "persistentvolumeclaims": ("", "status"),
}


def _limited_names(quota: Obj) -> frozenset[str]:
    return frozenset((quota.get("status") or {}).get("hard") or ())


class ResourceQuota:
    """The charger of the built-in chain."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._quotas: ObjectCache[frozenset[str]] = ObjectCache(core, QUOTAS, _limited_names)

    def start(self) -> None:
        self._quotas.start()

    def handles(self, where: Where) -> bool:
        key, operation, subresource = where
        if operation == UPDATE:
            return subresource in _ON_UPDATE.get(key, ())
        if operation != CREATE or subresource or key in _IGNORED:
            return False
        served = self._core.registry.stored(key)
        return served is not None and served.resource.namespaced

    def concerns(self, admission: Admission) -> bool:
        if admission.namespace not in self._quotas:
            return False
        evaluator = evaluator_of(admission.served.key)
        new, old = admission.object, admission.old
        if new is None or (old is not None and not evaluator.changes(new, old, admission.subresource)):
            return False
        quotas = self._quotas.of(admission.namespace).values()
        return any(evaluator.tracks(name) for names in quotas for name in names)

    def charge(self, admission: Admission) -> Extra:
        assert admission.object is not None
        entries = list(self._entries(admission.namespace))
        quotas = [objects.decode(entry) for entry in entries]
        try:
            changed = charge(
                quotas, admission.served.key, admission.object, admission.old,
                now=self._core.clock.wall_s(), enforced=admission.subresource != "status",
            )  # fmt: skip
        except QuotaRefused as refused:
            raise admission.denied(str(refused)) from None
        if not changed:
            return NOTHING
        served = self._core.registry.stored(QUOTAS)
        assert served is not None
        puts = []
        for index, used in changed.items():
            quotas[index]["status"] = {**quotas[index]["status"], "used": used}
            puts.append(_put(served, quotas[index], entries[index].key))
        return Extra(puts, [At(entries[index].key, entries[index].revision) for index in changed])

    def _entries(self, namespace: str) -> Iterator[Entry]:
        for name in sorted(self._quotas.of(namespace)):
            entry = self._core.store.get(Key(QUOTAS, namespace, name))
            if entry is not None:
                yield entry


def _put(served: Served, quota: Obj, key: Key) -> Put:
    attrs = served.attrs(quota, key)
    value, hole = objects.encode(quota, served.resource.kind, served.resource.api_version)
    return Put(key, value, hole, attrs)
