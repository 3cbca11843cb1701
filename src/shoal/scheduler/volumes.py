"""Volumes of pods: the nodes that their claims allow, and the steps that give unbound claims a volume there.

The volume controller does the binding: the scheduler only sets the node on which a claim will be used
(``selected-node``) or the existing volume that it should get (the volume's ``claimRef``), and waits.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from shoal.kube.labels import from_object
from shoal.kube.objects import Obj
from shoal.reconcile.keys import ObjectKey
from shoal.scheduler.amounts import amount
from shoal.scheduler.model import CLAIM_IN_USE, NodeRefusal
from shoal.scheduler.nodematch import NodeMatch, terms_match
from shoal.scheduler.nodes import NodeInfo
from shoal.scheduler.shapes import PodInfo

SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
_NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
_UNBOUND = "pod has unbound immediate PersistentVolumeClaims"
NO_VOLUME: Final = NodeRefusal("VolumeBinding", ("node(s) didn't find available persistent volumes to bind",))
WRONG_NODE: Final = NodeRefusal("VolumeBinding", ("node(s) didn't match PersistentVolume's node affinity",))
LOST_VOLUME: Final = NodeRefusal(
    "VolumeBinding", ("node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",)
)


@dataclass(frozen=True, slots=True)
class SelectNode:
    """Request a volume for the claim that can be used on the node."""

    claim: ObjectKey
    node: str


@dataclass(frozen=True, slots=True)
class TakeVolume:
    """Reserve an existing volume for the claim."""

    claim: ObjectKey
    volume: str


VolumeStep = SelectNode | TakeVolume


class VolumeState:
    """Current claims, volumes and classes, and volumes reserved for pods that are being bound."""

    def __init__(self) -> None:
        self.claims: dict[ObjectKey, Obj] = {}
        self.volumes: dict[str, Obj] = {}
        self.classes: dict[str, Obj] = {}
        self.promised: dict[str, ObjectKey] = {}  # volume -> claim

    def needs(self, pod: PodInfo, in_use: dict[ObjectKey, int]) -> Needs:
        """The requirements of the pod's claims on a node; ``in_use``: claims of pods that are on nodes."""
        needs = Needs(self)
        for name in pod.claims:
            key = ObjectKey(pod.key.namespace, name)
            fault = self._add(needs, key, name in pod.ephemeral)
            if fault:
                needs.fault = NodeRefusal("VolumeBinding", (fault,))
                return needs
            claim = self.claims[key]
            if "ReadWriteOncePod" in ((claim.get("spec") or {}).get("accessModes") or ()) and in_use.get(key):
                needs.claim_in_use = True
        return needs

    def _add(self, needs: Needs, key: ObjectKey, ephemeral: bool) -> str:
        """Add one claim; return its error message, or empty."""
        claim = self.claims.get(key)
        if claim is None:
            if ephemeral:
                return f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{key.name}"'
            return f'persistentvolumeclaim "{key.name}" not found'
        spec, status = claim.get("spec") or {}, claim.get("status") or {}
        if status.get("phase") == "Lost":
            return (
                f'persistentvolumeclaim "{key.name}" bound to non-existent persistentvolume "{spec.get("volumeName")}"'
            )
        if claim["metadata"].get("deletionTimestamp"):
            return f'persistentvolumeclaim "{key.name}" is being deleted'
        if is_bound(claim):
            volume = self.volumes.get(spec["volumeName"])
            if volume is None:
                needs.lost = True
            elif (match := _node_affinity(volume)) is not None:
                needs.matches.append(match)
        elif spec.get("volumeName") or not self._delayed(spec):
            return _UNBOUND
        else:
            needs.unbound.append(key)
        return ""

    def _delayed(self, spec: Obj) -> bool:
        found = self.classes.get(spec.get("storageClassName") or "")
        return found is not None and found.get("volumeBindingMode") == "WaitForFirstConsumer"

    def step(self, key: ObjectKey, node: NodeInfo, taken: Iterable[str]) -> VolumeStep | None:
        """The step that serves an unbound claim on the node; None if none can."""
        claim = self.claims[key]
        selected = (claim["metadata"].get("annotations") or {}).get(SELECTED_NODE)
        if selected:
            return SelectNode(key, node.name) if selected == node.name else None
        volume = self._smallest(key, claim, node, frozenset(taken))
        if volume is not None:
            return TakeVolume(key, volume)
        found = self.classes.get(claim["spec"].get("storageClassName") or "") or {}
        if found.get("provisioner", _NO_PROVISIONER) == _NO_PROVISIONER:
            return None
        allowed = found.get("allowedTopologies")
        return SelectNode(key, node.name) if not allowed or _allows(allowed, node) else None

    def _smallest(self, key: ObjectKey, claim: Obj, node: NodeInfo, taken: frozenset[str]) -> str | None:
        """The smallest free volume that serves the claim on the node; one reserved for it first."""
        best: tuple[int, str] | None = None
        for name, volume in self.volumes.items():
            if name in taken or self.promised.get(name, key) != key or not _serves(volume, key, claim):
                continue
            match = _node_affinity(volume)
            if match is not None and not match(node.labels, node.name):
                continue
            if (volume.get("spec") or {}).get("claimRef"):
                return name
            size = amount("storage", volume["spec"].get("capacity", {}).get("storage", "0"))
            if best is None or (size, name) < best:
                best = (size, name)
        return best[1] if best is not None else None


class Needs:
    """The requirements of one pod's claims on a node."""

    def __init__(self, state: VolumeState) -> None:
        self._state = state
        self.fault: NodeRefusal | None = None  # concerns the pod as a whole
        self.claim_in_use = False
        self.lost = False
        self.matches: list[NodeMatch] = []  # of bound volumes
        self.unbound: list[ObjectKey] = []

    @property
    def anywhere(self) -> bool:
        """Whether every node satisfies the claims."""
        return not (self.claim_in_use or self.lost or self.matches or self.unbound)

    def refuse(self, node: NodeInfo) -> NodeRefusal | None:
        if self.claim_in_use:
            return CLAIM_IN_USE
        if self.lost:
            return LOST_VOLUME
        for match in self.matches:
            if not match(node.labels, node.name):
                return WRONG_NODE
        return NO_VOLUME if self.unbound and self.steps(node) is None else None

    def steps(self, node: NodeInfo) -> list[VolumeStep] | None:
        """The steps that serve all unbound claims on the node; None if one cannot be served."""
        found: list[VolumeStep] = []
        taken: list[str] = []
        for key in self.unbound:
            step = self._state.step(key, node, taken)
            if step is None:
                return None
            if isinstance(step, TakeVolume):
                taken.append(step.volume)
            found.append(step)
        return found


def is_bound(claim: Obj) -> bool:
    """Whether the volume controller has bound the claim."""
    annotations = claim["metadata"].get("annotations") or {}
    return bool((claim.get("spec") or {}).get("volumeName")) and BIND_COMPLETED in annotations


def _node_affinity(volume: Obj) -> NodeMatch | None:
    required = ((volume.get("spec") or {}).get("nodeAffinity") or {}).get("required")
    return terms_match(required.get("nodeSelectorTerms") or ()) if required else None


def _serves(volume: Obj, key: ObjectKey, claim: Obj) -> bool:
    """Whether a volume is free and matches the claim."""
    has, wants = volume.get("spec") or {}, claim.get("spec") or {}
    if volume["metadata"].get("deletionTimestamp"):
        return False
    reference = has.get("claimRef")
    if reference:
        if (reference.get("namespace"), reference.get("name")) != (key.namespace, key.name):
            return False
        if reference.get("uid") and reference["uid"] != claim["metadata"].get("uid"):
            return False
    elif (volume.get("status") or {}).get("phase") != "Available":
        return False
    if (has.get("storageClassName") or "") != (wants.get("storageClassName") or ""):
        return False
    if (has.get("volumeMode") or "Filesystem") != (wants.get("volumeMode") or "Filesystem"):
        return False
    if not set(wants.get("accessModes") or ()) <= set(has.get("accessModes") or ()):
        return False
    wanted = ((wants.get("resources") or {}).get("requests") or {}).get("storage", "0")
    if amount("storage", (has.get("capacity") or {}).get("storage", "0")) < amount("storage", wanted):
        return False
    selector = wants.get("selector")
    return selector is None or from_object(selector).matches(volume["metadata"].get("labels") or {})


def _allows(topologies: list[Obj], node: NodeInfo) -> bool:
    return any(
        all(
            node.labels.get(each.get("key", "")) in (each.get("values") or ())
            for each in term.get("matchLabelExpressions") or ()
        )
        for term in topologies
    )
