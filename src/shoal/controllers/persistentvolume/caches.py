"""The caches of claims, volumes, classes and pods, and the keys to reconcile when one of them changes."""

from __future__ import annotations

from collections.abc import Iterable

from shoal.controllers.context import ControllerContext
from shoal.controllers.persistentvolume.plan import claims_of_pod
from shoal.kube.objects import Obj
from shoal.reconcile import Change, ObjectKey, key_of

BY_CLAIM = "claim"  # index of volumes by their claim, and of pods by their claims


def claim_of_volume(volume: Obj) -> Iterable[str]:
    """Namespace and name of a volume's claim; empty for an unclaimed volume."""
    reference = volume["spec"].get("claimRef")
    return (f"{reference.get('namespace')}/{reference.get('name')}" if reference else "",)


def claims_in_pod(pod: Obj) -> Iterable[str]:
    namespace = pod["metadata"]["namespace"]
    return [f"{namespace}/{name}" for name in claims_of_pod(pod)]


class VolumeCaches:
    def __init__(self, context: ControllerContext) -> None:
        self.claim_informer = context.informer("persistentvolumeclaims")
        self.volume_informer = context.informer("persistentvolumes", claim=claim_of_volume)
        self.class_informer = context.informer("storageclasses", "storage.k8s.io")
        self.pod_informer = context.informer("pods", claim=claims_in_pod)
        self.claims, self.volumes = self.claim_informer.cache, self.volume_informer.cache
        self.classes, self.pods = self.class_informer.cache, self.pod_informer.cache

    def claims_for_volume(self, volume: Obj) -> Iterable[ObjectKey]:
        """The claim of a volume; for an unclaimed volume all pending claims."""
        reference = volume["spec"].get("claimRef")
        if reference:
            return [ObjectKey(reference.get("namespace", ""), reference.get("name", ""))]
        return self.waiting_claims(volume)

    def waiting_claims(self, _: Obj) -> Iterable[ObjectKey]:
        return [key_of(claim) for claim in self.claims if not claim["spec"].get("volumeName")]

    def claims_for_pod(self, pod: Obj) -> Iterable[ObjectKey]:
        namespace = pod["metadata"]["namespace"]
        return [ObjectKey(namespace, name) for name in claims_of_pod(pod)]

    def volumes_for_claim(self, claim: Obj) -> Iterable[ObjectKey]:
        bound = claim["spec"].get("volumeName")
        found = [key_of(volume) for volume in self.volumes.by_index(BY_CLAIM, str(key_of(claim)))]
        return [ObjectKey("", bound), *found] if bound else found


def uses_claims_otherwise(change: Change) -> bool:
    """Whether a pod with claims was placed on a node or deleted; other changes do not affect claims."""
    if not change.object["spec"].get("volumes"):
        return False
    old, new = change.old, change.new
    if old is None or new is None:
        return True
    return bool(old["spec"].get("nodeName") != new["spec"].get("nodeName"))
