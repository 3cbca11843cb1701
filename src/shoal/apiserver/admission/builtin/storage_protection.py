"""StorageObjectInUseProtection: new claims and volumes carry the finalizer that holds them while they are in use.

The controller of volumes removes it when an object that is being deleted is no longer used.
"""

from __future__ import annotations

from typing import Final

from shoal.apiserver.admission.model import CREATE, Admission, Where

_FINALIZERS: Final = {
    "persistentvolumeclaims": "kubernetes.io/pvc-protection",
    "persistentvolumes": "kubernetes.io/pv-protection",
}


class StorageObjectInUseProtection:
    def handles(self, where: Where) -> bool:
        return where[0] in _FINALIZERS and where[1:] == (CREATE, "")

    def mutate(self, admission: Admission) -> None:
        assert admission.object is not None
        metadata = admission.object["metadata"]
        finalizer, present = _FINALIZERS[admission.served.key], metadata.get("finalizers") or []
        if finalizer not in present:
            metadata["finalizers"] = [*present, finalizer]
