"""The cluster state for scheduling, updated incrementally: nodes with their pods, shapes, counters.

Every node has a *slot*, a small number that identifies it in tables and counters. ``changed`` holds the order in which
nodes last changed, so that a table can find the nodes changed since its last refresh. The service may add pods before
the API shows them (*assumed*). Nothing here waits or reads a clock.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any

from shoal.kube.labels import Selector
from shoal.kube.objects import Obj
from shoal.reconcile.keys import ObjectKey
from shoal.scheduler.counters import DomainCounter
from shoal.scheduler.nodes import NodeInfo
from shoal.scheduler.shapes import PodInfo, PodShape, PodTerm, claims_of, signature

_IDLE_SHAPES = 256  # unused shapes kept for pods to come


class Snapshot:
    """Nodes, pods, and counts over them."""

    def __init__(self) -> None:
        self.nodes: list[NodeInfo] = []  # by slot; the slot of a deleted node is reused
        self.by_name: dict[str, NodeInfo] = {}
        self.present = 0  # nodes that exist
        self.generation = 0
        self.changed: dict[int, int] = {}  # slot -> generation, the latest change last
        self.images: dict[str, int] = {}  # image -> nodes that have it
        self.images_generation = 0  # generation of the last change of that or of the number of nodes
        self.pods: dict[ObjectKey, PodInfo] = {}  # pods on a node
        self.claims_in_use: dict[ObjectKey, int] = {}  # claims used by pods on a node
        self.nominated: dict[str, dict[str, PodInfo]] = {}  # node -> uid -> pods that preemption made room for
        self._nominations: dict[str, str] = {}  # uid -> node
        self.shapes: dict[bytes, PodShape] = {}
        self.shapes_with_terms: dict[PodShape, None] = {}
        self.on_new_terms: Callable[[PodShape], None] = lambda shape: None
        self.selectors_generation: dict[
            str, int
        ] = {}  # namespace -> generation of the last change of its services or owners
        self._idle: dict[PodShape, None] = {}  # shapes without pods, least recently used first
        self._counters: dict[Hashable, DomainCounter] = {}
        self._free: list[int] = []
        self._services: dict[str, dict[str, dict[str, str]]] = {}  # namespace -> name -> selector
        self._owners: dict[tuple[str, str, str], Selector] = {}  # kind, namespace, name -> selector
        self._namespaces: dict[str, dict[str, str]] = {}  # name -> labels

    # nodes

    def set_node(self, obj: Obj) -> NodeInfo:
        """Add or update a node."""
        name = obj["metadata"]["name"]
        node = self.by_name.get(name) or self._new_node(name)
        if node.obj is not None and _relevant(node.obj) == _relevant(obj):
            node.obj = obj  # a heartbeat
            return node
        before = (node.labels, node.taints, node.images, node.obj is not None)
        node.set(obj)
        if not before[3]:
            self.present += 1
        if (node.labels, node.taints, True) != (before[0], before[1], before[3]):
            for counter in self._counters.values():
                counter.node_changed(node)
        if node.images != before[2] or not before[3]:
            self._recount_images(before[2], node.images)
        self._touch(node)
        node.object_generation = node.generation
        return node

    def remove_node(self, name: str) -> None:
        node = self.by_name.get(name)
        if node is None or node.obj is None:
            return
        images = node.images
        node.gone()
        self.present -= 1
        for counter in self._counters.values():
            counter.node_changed(node)
        self._recount_images(images, {})
        self._touch(node)
        node.object_generation = node.generation
        self._drop_if_empty(node)

    def _new_node(self, name: str) -> NodeInfo:
        slot = self._free.pop() if self._free else len(self.nodes)
        node = NodeInfo(name, slot)
        if slot == len(self.nodes):
            self.nodes.append(node)
        else:
            self.nodes[slot] = node
        self.by_name[name] = node
        return node

    def _drop_if_empty(self, node: NodeInfo) -> None:
        if node.obj is None and not node.pods:
            del self.by_name[node.name]
            self._free.append(node.slot)

    def _touch(self, node: NodeInfo) -> None:
        self.generation += 1
        slot, changed = node.slot, self.changed
        changed.pop(slot, None)
        changed[slot] = node.generation = self.generation

    def _recount_images(self, before: Iterable[str], after: Iterable[str]) -> None:
        for sign, names in ((-1, before), (1, after)):
            for name in names:
                left = self.images.get(name, 0) + sign
                if left:
                    self.images[name] = left
                else:
                    self.images.pop(name, None)
        self.images_generation += 1

    # pods

    def pod_info(self, pod: Obj) -> PodInfo:
        """A pod with its shape. Call ``hold`` for as long as the pod is known."""
        signed, affinity, pinned = signature(pod)
        about = pod["metadata"]
        shape = self.shapes.get(signed)
        if shape is None:
            shape = self._new_shape(PodShape(signed, pod, affinity))
        key = ObjectKey(about.get("namespace") or "", about["name"])
        claims, ephemeral = claims_of(pod) if pod["spec"].get("volumes") else ((), frozenset())
        return PodInfo(
            key, about.get("uid") or "", pod, shape, pinned, claims, ephemeral,
            terminating="deletionTimestamp" in about,
        )  # fmt: skip

    def add_pod(self, pod: PodInfo, node_name: str) -> None:
        """Count the pod on the node."""
        node = self.by_name.get(node_name) or self._new_node(node_name)
        pod.slot = slot = node.slot
        self.pods[pod.key] = pod
        node.add(pod)
        shape = pod.shape
        shape.placements[slot] = shape.placements.get(slot, 0) + 1
        for counter, amount in shape.subscriptions:
            if not (pod.terminating and counter.ignores_terminating):
                counter.add(slot, amount)
        if pod.terminating:
            shape.terminating[slot] = shape.terminating.get(slot, 0) + 1
        for claim in pod.claims:
            key = ObjectKey(pod.key.namespace, claim)
            self.claims_in_use[key] = self.claims_in_use.get(key, 0) + 1
        self._touch(node)

    def remove_pod(self, pod: PodInfo) -> None:
        """Remove the pod from its node."""
        node = self.nodes[pod.slot]
        slot, pod.slot = pod.slot, -1
        del self.pods[pod.key]
        node.remove(pod)
        shape = pod.shape
        _less(shape.placements, slot)
        for counter, amount in shape.subscriptions:
            if not (pod.terminating and counter.ignores_terminating):
                counter.add(slot, -amount)
        if pod.terminating:
            _less(shape.terminating, slot)
        for claim in pod.claims:
            _less(self.claims_in_use, ObjectKey(pod.key.namespace, claim))
        self._touch(node)
        self._drop_if_empty(node)

    def nominate(self, pod: PodInfo, node: str) -> None:
        """Reserve room on the node for a preempting pod against pods of lower priority."""
        self.withdraw(pod.uid)
        if node:
            self._nominations[pod.uid] = node
            self.nominated.setdefault(node, {})[pod.uid] = pod

    def withdraw(self, uid: str) -> None:
        node = self._nominations.pop(uid, None)
        if node is not None:
            pods = self.nominated[node]
            del pods[uid]
            if not pods:
                del self.nominated[node]

    def nomination(self, pod: PodInfo) -> str:
        """The node on which preemption makes room for the pod."""
        return self._nominations.get(pod.uid, "") or pod.nominated

    # shapes

    def hold(self, shape: PodShape) -> None:
        """Count one more known pod of the shape."""
        shape.pods += 1
        self._idle.pop(shape, None)

    def let_go(self, shape: PodShape) -> None:
        shape.pods -= 1
        if shape.pods == 0:
            self._idle[shape] = None
            while len(self._idle) > _IDLE_SHAPES:
                self._forget(next(iter(self._idle)))

    def _forget(self, shape: PodShape) -> None:
        del self._idle[shape]
        del self.shapes[shape.signature]
        self.shapes_with_terms.pop(shape, None)

    def _new_shape(self, shape: PodShape) -> PodShape:
        self.shapes[shape.signature] = shape
        self._idle[shape] = None
        for counter in self._counters.values():
            amount = counter.delta(shape)
            if amount:
                shape.subscriptions.append((counter, amount))
        if shape.terms:
            self.shapes_with_terms[shape] = None
            self.on_new_terms(shape)
        return shape

    # counters

    def counter(self, key: Hashable, make: Callable[[], DomainCounter]) -> DomainCounter:
        """The counter of a query; the caller must release it."""
        found = self._counters.get(key)
        if found is None:
            found = self._counters[key] = make()
            self._fill(found)
        found.users += 1
        return found

    def release(self, counter: DomainCounter) -> None:
        counter.users -= 1
        if counter.users == 0:
            del self._counters[counter.key]
            for shape in self.shapes.values():
                shape.subscriptions = [each for each in shape.subscriptions if each[0] is not counter]

    def _fill(self, counter: DomainCounter) -> None:
        for node in self.nodes:
            if node.obj is not None:
                counter.node_changed(node)
        namespaces = counter.namespaces
        for shape in self.shapes.values():
            if namespaces is not None and shape.namespace not in namespaces:
                continue
            amount = counter.delta(shape)
            if not amount:
                continue
            shape.subscriptions.append((counter, amount))
            for slot, pods in shape.placements.items():
                counted = pods - shape.terminating.get(slot, 0) if counter.ignores_terminating else pods
                counter.add(slot, counted * amount)

    # services and owners

    def set_service(self, obj: Obj) -> None:
        about, selector = obj["metadata"], (obj.get("spec") or {}).get("selector")
        services = self._services.setdefault(about["namespace"], {})
        if services.get(about["name"]) != selector:
            if selector:
                services[about["name"]] = selector
            else:
                services.pop(about["name"], None)
            self._selectors_changed(about["namespace"])

    def remove_service(self, key: ObjectKey) -> None:
        if self._services.get(key.namespace, {}).pop(key.name, None) is not None:
            self._selectors_changed(key.namespace)

    def set_owner(self, kind: str, key: ObjectKey, selector: Selector) -> None:
        at = (kind, key.namespace, key.name)
        if self._owners.get(at) != selector:
            self._owners[at] = selector
            self._selectors_changed(key.namespace)

    def remove_owner(self, kind: str, key: ObjectKey) -> None:
        if self._owners.pop((kind, key.namespace, key.name), None) is not None:
            self._selectors_changed(key.namespace)

    def _selectors_changed(self, namespace: str) -> None:
        self.selectors_generation[namespace] = self.selectors_generation.get(namespace, 0) + 1

    def services_of(self, shape: PodShape) -> list[dict[str, str]]:
        """The selectors of services that select the shape's pods."""
        labels = shape.labels.items()
        return [each for each in self._services.get(shape.namespace, {}).values() if each.items() <= labels]

    def owner_selector(self, shape: PodShape) -> Selector | None:
        if shape.owner is None:
            return None
        kind, name = shape.owner
        return self._owners.get((kind, shape.namespace, name))

    def set_namespace(self, name: str, labels: dict[str, str] | None) -> bool:
        """Set or remove a namespace's labels; return whether terms may now select other namespaces."""
        before = self._namespaces.get(name)
        if labels is None:
            self._namespaces.pop(name, None)
        else:
            self._namespaces[name] = labels
        if before == labels:
            return False
        terms = (each for shape in self.shapes_with_terms for each in _all_terms(shape))
        return any(each.namespace_selector is not None for each in terms)

    def term_matches(self, term: PodTerm, shape: PodShape) -> bool:
        """Whether a term selects pods of the shape."""
        namespace = shape.namespace
        if namespace not in term.namespaces:
            selector = term.namespace_selector
            if selector is None or not selector.matches(self._namespaces.get(namespace, {})):
                return False
        return term.selector.matches(shape.labels)


def _relevant(node: Obj) -> tuple[Any, ...]:
    """The fields of a node that scheduling depends on."""
    status = node.get("status") or {}
    return node["metadata"].get("labels"), node.get("spec"), status.get("allocatable"), status.get("images")


def _all_terms(shape: PodShape) -> tuple[PodTerm, ...]:
    return (*shape.terms.affinity, *shape.terms.anti_affinity, *shape.terms.likes)


def _less(counts: dict[Any, int], key: Any) -> None:
    left = counts[key] - 1
    if left:
        counts[key] = left
    else:
        del counts[key]
