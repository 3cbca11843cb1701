"""DefaultStorageClass and DefaultIngressClass: claims and ingresses that name no class get the newest default one.

PersistentVolumeClaimResize looks at the same storage classes: claims only grow where their class allows it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from shoal.apiserver.admission.builtin.object_cache import ObjectCache
from shoal.apiserver.admission.model import CREATE, UPDATE, Admission, Where
from shoal.apiserver.context import Core
from shoal.kube.kinds.checks import quantity_of
from shoal.kube.objects import Obj
from shoal.kube.quantity import Quantity

_CLAIMS: Final = "persistentvolumeclaims"
_INGRESSES: Final = "ingresses.networking.k8s.io"
_STORAGE_CLASSES: Final = "storageclasses.storage.k8s.io"
_INGRESS_CLASSES: Final = "ingressclasses.networking.k8s.io"
_OLD_CLAIM_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
_OLD_INGRESS_CLASS: Final = "kubernetes.io/ingress.class"
_STORAGE_DEFAULT: Final = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)
_INGRESS_DEFAULT: Final = ("ingressclass.kubernetes.io/is-default-class",)


class _Class(NamedTuple):
    name: str
    created: str
    is_default: bool
    grows: bool


class Classes:
    """The classes of one kind."""

    def __init__(self, core: Core, resource: str, marks: tuple[str, ...]) -> None:
        self._marks = marks
        self._mirror: ObjectCache[_Class] = ObjectCache(core, resource, self._read)

    def start(self) -> None:
        self._mirror.start()

    def _read(self, obj: Obj) -> _Class:
        metadata = obj["metadata"]
        annotations = metadata.get("annotations") or {}
        is_default = any(annotations.get(mark) == "true" for mark in self._marks)
        return _Class(
            metadata["name"], metadata["creationTimestamp"], is_default, bool(obj.get("allowVolumeExpansion"))
        )

    def get(self, name: str) -> _Class | None:
        return self._mirror.get(name)

    def default(self) -> str:
        """The newest of the default classes, the first by name among equally old ones; "" if there is none."""
        found = [known for known in self._mirror.of().values() if known.is_default]
        if not found:
            return ""
        newest = max(known.created for known in found)
        return min(known.name for known in found if known.created == newest)


def storage_classes(core: Core) -> Classes:
    return Classes(core, _STORAGE_CLASSES, _STORAGE_DEFAULT)


def ingress_classes(core: Core) -> Classes:
    return Classes(core, _INGRESS_CLASSES, _INGRESS_DEFAULT)


class DefaultStorageClass:
    def __init__(self, classes: Classes) -> None:
        self._classes = classes

    def handles(self, where: Where) -> bool:
        return where == (_CLAIMS, CREATE, "")

    def mutate(self, admission: Admission) -> None:
        claim = admission.object
        assert claim is not None
        annotations = claim["metadata"].get("annotations") or {}
        spec = claim.setdefault("spec", {})
        if _OLD_CLAIM_CLASS in annotations or spec.get("storageClassName") is not None:
            return  # "" asks for no class
        name = self._classes.default()
        if name:
            spec["storageClassName"] = name


class DefaultIngressClass:
    def __init__(self, classes: Classes) -> None:
        self._classes = classes

    def handles(self, where: Where) -> bool:
        return where == (_INGRESSES, CREATE, "")

    def mutate(self, admission: Admission) -> None:
        ingress = admission.object
        assert ingress is not None
        annotations = ingress["metadata"].get("annotations") or {}
        spec = ingress.setdefault("spec", {})
        if _OLD_INGRESS_CLASS in annotations or spec.get("ingressClassName") is not None:
            return
        name = self._classes.default()
        if name:
            spec["ingressClassName"] = name


class PersistentVolumeClaimResize:
    def __init__(self, classes: Classes) -> None:
        self._classes = classes

    def handles(self, where: Where) -> bool:
        return where == (_CLAIMS, UPDATE, "")

    def validate(self, admission: Admission) -> None:
        new, old = admission.object, admission.old
        if new is None or old is None or _size(new) <= _size(old):
            return
        if (old.get("status") or {}).get("phase") != "Bound":
            raise admission.denied("Only bound persistent volume claims can be expanded")
        name = class_of_claim(new)
        found = self._classes.get(name) if name and name == class_of_claim(old) else None
        if found is None or not found.grows:
            raise admission.denied(
                "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must "
                "support resize"
            )


def class_of_claim(claim: Obj) -> str:
    annotations = claim["metadata"].get("annotations") or {}
    name: str | None = annotations.get(_OLD_CLAIM_CLASS)
    return name if name is not None else (claim.get("spec") or {}).get("storageClassName") or ""


def _size(claim: Obj) -> Quantity:
    requests = ((claim.get("spec") or {}).get("resources") or {}).get("requests") or {}
    return quantity_of(requests.get("storage", "0"))
