"""The scheduler's view of pods: a *shape*, shared by all pods that are placed alike, and data of the single pod.

A shape has everything that affects placement: namespace, labels, requests, ports, images, affinity, tolerations, spread
constraints, disks, priority. A single pod has its identity, its claims, and the nodes that its affinity names (as for
DaemonSets). ``signature`` is cheap and runs for every pod; the rest is computed once per shape.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import orjson

from shoal.kube.labels import EQUALS, EVERYTHING, Requirement, Selector, from_object
from shoal.kube.objects import Obj
from shoal.reconcile.keys import ObjectKey, controller_of
from shoal.scheduler import nodematch
from shoal.scheduler.amounts import requests_of
from shoal.scheduler.model import Requests

Port = tuple[str, str, int]  # address, protocol, port
Disk = tuple[str, bool]  # identity, whether it can be shared read-only

_SPREADING_OWNERS: Final = {
    ("v1", "ReplicationController"), ("apps/v1", "ReplicaSet"), ("apps/v1", "StatefulSet"),
}  # fmt: skip
_DISKS: Final = frozenset({"gcePersistentDisk", "awsElasticBlockStore", "iscsi", "rbd"})
_NOTHING: Final[Obj] = {}


@dataclass(frozen=True, slots=True)
class PodTerm:
    """A pod affinity or anti-affinity term about pods of ``namespaces`` or of namespaces that ``namespace_selector``
    selects."""

    topology_key: str
    selector: Selector
    namespaces: frozenset[str]
    namespace_selector: Selector | None
    weight: int = 0


@dataclass(frozen=True, slots=True)
class SpreadConstraint:
    topology_key: str
    max_skew: int
    hard: bool  # DoNotSchedule
    selector: Selector
    min_domains: int = 1
    honor_affinity: bool = True
    honor_taints: bool = False


@dataclass(frozen=True, slots=True)
class PodTerms:
    """All pod affinity and anti-affinity terms of a pod."""

    affinity: tuple[PodTerm, ...] = ()
    anti_affinity: tuple[PodTerm, ...] = ()
    likes: tuple[PodTerm, ...] = ()  # preferred; the weights of anti-affinity are negative

    def __bool__(self) -> bool:
        return bool(self.affinity or self.anti_affinity or self.likes)


_NO_TERMS: Final = PodTerms()


class PodShape:
    """The common data of all pods of a shape. Compared by identity: there is one object per shape."""

    __slots__ = (
        "disks", "images", "labels", "namespace", "node_match", "node_signature", "owner",
        "placements", "pods", "ports", "preempts", "preferred_nodes", "priority", "requests", "scheduler",
        "signature", "spread", "subscriptions", "terminating", "terms", "tolerations",
    )  # fmt: skip

    def __init__(self, signature: bytes, pod: Obj, affinity: Obj) -> None:
        spec, about = pod["spec"], pod["metadata"]
        bare = {**spec, "affinity": affinity}
        self.signature = signature
        self.namespace: str = about.get("namespace") or ""
        self.labels: dict[str, str] = about.get("labels") or {}
        self.owner = _spreading_owner(pod)
        self.scheduler: str = spec.get("schedulerName") or "default-scheduler"
        self.priority = int(spec.get("priority") or 0)
        self.preempts = spec.get("preemptionPolicy") != "Never"
        self.requests: Requests = requests_of(spec)
        self.ports = host_ports(spec)
        self.disks = _disks(spec)
        self.images = _images(spec)
        self.tolerations: list[Obj] = spec.get("tolerations") or []
        self.node_match = nodematch.required_match(bare)
        self.preferred_nodes = nodematch.preferred_weights(bare)
        # decides whether a node counts in spreading; pods with the same value share counts
        self.node_signature = orjson.dumps((spec.get("nodeSelector"), affinity.get("nodeAffinity"), self.tolerations))
        self.terms = _pod_terms(affinity, self.namespace, self.labels)
        self.spread = _spread_constraints(spec, self.labels)
        # updated by the snapshot
        self.pods = 0  # known pods of this shape, placed or not
        self.placements: dict[int, int] = {}  # slot of a node -> pods on it
        self.terminating: dict[int, int] = {}  # those of them that are terminating
        self.subscriptions: list[Any] = []  # (counter, change by one pod of this shape)


@dataclass(slots=True, eq=False)
class PodInfo:
    """A pod. ``obj`` belongs to a cache and is only read."""

    key: ObjectKey
    uid: str
    obj: Obj
    shape: PodShape
    pinned: frozenset[str] | None = None  # names of the only nodes that its affinity allows
    claims: tuple[str, ...] = ()  # names of its PersistentVolumeClaims
    ephemeral: frozenset[str] = frozenset()  # those of them that are created for the pod
    slot: int = -1  # name of the node it is on, or assumed to be on
    terminating: bool = False

    @property
    def priority(self) -> int:
        return self.shape.priority

    @property
    def nominated(self) -> str:
        found: str = (self.obj.get("status") or _NOTHING).get("nominatedNodeName") or ""
        return found

    @property
    def started_at(self) -> str:
        """The start time as sortable text; pods that have not started sort last."""
        return (self.obj.get("status") or _NOTHING).get("startTime") or "9999"


def signature(pod: Obj) -> tuple[bytes, Obj, frozenset[str] | None]:
    """The shape's signature, its affinity, and the nodes that the pod's affinity names."""
    spec, about = pod["spec"], pod["metadata"]
    affinity: Obj = spec.get("affinity") or _NOTHING
    pinned: frozenset[str] | None = None
    if affinity:
        affinity, pinned = _unpinned(spec, affinity)
    get = spec.get
    parts: list[Any] = [
        about.get("namespace"), about.get("labels"), affinity, get("tolerations"), get("nodeSelector"),
        [(c.get("image"), c.get("resources"), c.get("ports")) for c in spec["containers"]],
        get("priority"), get("schedulerName"), get("preemptionPolicy"), get("topologySpreadConstraints"),
        get("resources"), get("overhead"),
    ]  # fmt: skip
    if get("initContainers"):
        parts.append([
            (c.get("image"), c.get("resources"), c.get("ports"), c.get("restartPolicy")) for c in get("initContainers")
        ])  # fmt: skip
    owner = _spreading_owner(pod)
    if owner is not None:
        parts.append(owner)
    for volume in get("volumes") or ():
        if "image" in volume or not _DISKS.isdisjoint(volume):
            parts.append(volume)
    return orjson.dumps(parts), affinity, pinned


def claims_of(pod: Obj) -> tuple[tuple[str, ...], frozenset[str]]:
    """Names of the claims that a pod uses, and of those created for this pod."""
    names: list[str] = []
    ephemeral: list[str] = []
    for volume in pod["spec"].get("volumes") or ():
        claim = volume.get("persistentVolumeClaim")
        if claim is not None:
            names.append(claim.get("claimName", ""))
        elif "ephemeral" in volume:
            ephemeral.append(f"{pod['metadata']['name']}-{volume['name']}")
    return (*names, *ephemeral), frozenset(ephemeral)


def _unpinned(spec: Obj, affinity: Obj) -> tuple[Obj, frozenset[str] | None]:
    """Remove node names from required node affinity if every term has some, so that the pods of a DaemonSet have one
    shape. Pods with spread constraints keep them, because the names decide which nodes count."""
    node = affinity.get("nodeAffinity") or _NOTHING
    required = node.get("requiredDuringSchedulingIgnoredDuringExecution")
    terms: list[Obj] = (required or _NOTHING).get("nodeSelectorTerms") or []
    if not terms or spec.get("topologySpreadConstraints") or len(terms) > 1:
        return affinity, None
    fields: list[Obj] = terms[0].get("matchFields") or []
    if len(fields) != 1 or fields[0].get("key") != "metadata.name" or fields[0].get("operator") != "In":
        return affinity, None
    names = frozenset(fields[0].get("values") or ())
    expressions = terms[0].get("matchExpressions")
    rest = {key: value for key, value in node.items() if key != "requiredDuringSchedulingIgnoredDuringExecution"}
    if expressions:
        rest["requiredDuringSchedulingIgnoredDuringExecution"] = {
            "nodeSelectorTerms": [{"matchExpressions": expressions}]
        }
    return {**affinity, "nodeAffinity": rest}, names


def _spreading_owner(pod: Obj) -> tuple[str, str] | None:
    """Kind and name of the controller whose selector defines which pods are spread together."""
    owner = controller_of(pod)
    if owner is None or (owner.get("apiVersion"), owner.get("kind")) not in _SPREADING_OWNERS:
        return None
    return owner["kind"], owner["name"]


def host_ports(spec: Obj) -> tuple[Port, ...]:
    """Host ports requested by the pod's containers, sidecars included."""
    sidecars = (c for c in spec.get("initContainers") or () if c.get("restartPolicy") == "Always")
    return tuple(
        (port.get("hostIP") or "0.0.0.0", port.get("protocol") or "TCP", port["hostPort"])
        for container in (*(spec.get("containers") or ()), *sidecars)
        for port in container.get("ports") or ()
        if port.get("hostPort")
    )


def _images(spec: Obj) -> tuple[str, ...]:
    containers = (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()))
    names = [c.get("image") or "" for c in containers]
    names += [v["image"].get("reference") or "" for v in spec.get("volumes") or () if v.get("image")]
    return tuple(f"{name}:latest" if name.rfind(":") <= name.rfind("/") else name for name in names)


def _disks(spec: Obj) -> tuple[Disk, ...]:
    """Disks that only one pod of a node may use, unless all uses are read-only and the kind allows sharing."""
    found: list[Disk] = []
    for volume in spec.get("volumes") or ():
        if (gce := volume.get("gcePersistentDisk")) is not None:
            found.append((f"gce/{gce.get('pdName')}", bool(gce.get("readOnly"))))
        elif (aws := volume.get("awsElasticBlockStore")) is not None:
            found.append((f"aws/{aws.get('volumeID')}", False))
        elif (iscsi := volume.get("iscsi")) is not None:
            found.append((f"iscsi/{iscsi.get('iqn')}", bool(iscsi.get("readOnly"))))
        elif (rbd := volume.get("rbd")) is not None:
            found += (
                (f"rbd/{monitor}/{rbd.get('pool') or 'rbd'}/{rbd.get('image')}", bool(rbd.get("readOnly")))
                for monitor in rbd.get("monitors") or ()
            )
    return tuple(found)


def _pod_terms(affinity: Obj, namespace: str, labels: dict[str, str]) -> PodTerms:
    near, apart = affinity.get("podAffinity") or _NOTHING, affinity.get("podAntiAffinity") or _NOTHING
    if not near and not apart:
        return _NO_TERMS
    required, preferred = (
        "requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution",
    )  # fmt: skip
    likes = [
        _pod_term(each.get("podAffinityTerm") or _NOTHING, namespace, sign * int(each.get("weight", 0)))
        for sign, side in ((1, near), (-1, apart))
        for each in side.get(preferred) or ()
    ]
    return PodTerms(
        tuple(_pod_term(each, namespace) for each in near.get(required) or ()),
        tuple(_pod_term(each, namespace) for each in apart.get(required) or ()),
        tuple(likes),
    )


def _pod_term(term: Obj, namespace: str, weight: int = 0) -> PodTerm:
    # matchLabelKeys were merged into the selector by the API server when the pod was created
    listed, selected = term.get("namespaces") or (), term.get("namespaceSelector")
    own = (namespace,) if not listed and selected is None else ()
    return PodTerm(
        term.get("topologyKey", ""),
        from_object(term.get("labelSelector")),
        frozenset((*listed, *own)),
        from_object(selected) if selected is not None else None,
        weight,
    )


def _spread_constraints(spec: Obj, labels: dict[str, str]) -> tuple[SpreadConstraint, ...]:
    found = []
    for each in spec.get("topologySpreadConstraints") or ():
        selector = from_object(each.get("labelSelector"))
        own = [Requirement(key, EQUALS, (labels[key],)) for key in each.get("matchLabelKeys") or () if key in labels]
        if own and not selector.nothing:
            selector = Selector((*own, *selector.requirements))
        found.append(
            SpreadConstraint(
                each.get("topologyKey", ""),
                int(each.get("maxSkew", 1)),
                each.get("whenUnsatisfiable") != "ScheduleAnyway",
                selector,
                int(each.get("minDomains") or 1),
                (each.get("nodeAffinityPolicy") or "Honor") == "Honor",
                (each.get("nodeTaintsPolicy") or "Ignore") == "Honor",
            )
        )
    return tuple(found)


def merged(*selectors: Selector) -> Selector:
    """A selector that requires all given ones."""
    requirements = tuple(dict.fromkeys(each for selector in selectors for each in selector.requirements))
    if any(selector.nothing for selector in selectors):
        return Selector(nothing=True)
    return Selector(requirements) if requirements else EVERYTHING
