"""The collector's decisions, alone and executed on random graphs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.controllers.garbagecollector.graph import Graph
from shoal.controllers.garbagecollector.model import (
    FOREGROUND,
    ORPHAN,
    GraphNode,
    NodeType,
    OwnerReference,
    PropagationPolicy,
)
from shoal.controllers.garbagecollector.plan import (
    KEEP,
    DeleteDependents,
    DropReferences,
    KeepObject,
    Orphan,
    OwnerState,
    ReleaseObject,
    Remove,
    decide,
    deletion_step,
    known_state,
)

PODS = NodeType(group="", version="v1", plural="pods", kind="Pod", namespaced=True)
NODES = NodeType(group="", version="v1", plural="nodes", kind="Node", namespaced=False)
SOLID, ABSENT, WAITING = OwnerState.SOLID, OwnerState.ABSENT, OwnerState.WAITING


def pod(uid, *owners, blocks=True, namespace="n", **more):
    references = tuple(OwnerReference(api_version="v1", kind="Pod", name=o, uid=o, blocks=blocks) for o in owners)
    return GraphNode(type=PODS, namespace=namespace, name=uid, uid=uid, version="1", owners=references, **more)


def graph_of(*nodes):
    graph = Graph()
    for node in nodes:
        graph.observe(node)
    return graph


@pytest.mark.parametrize(
    ("states", "with_dependents", "expected"),
    [
        ([], False, KEEP),
        ([SOLID], False, KEEP),
        ([ABSENT], False, Remove(PropagationPolicy.BACKGROUND)),
        ([ABSENT, ABSENT], True, Remove(PropagationPolicy.BACKGROUND)),
        ([WAITING], False, Remove(PropagationPolicy.BACKGROUND)),
        ([WAITING], True, Remove(PropagationPolicy.FOREGROUND)),
        ([WAITING, ABSENT], True, Remove(PropagationPolicy.FOREGROUND)),
        ([OwnerState.UNRESOLVABLE, ABSENT], False, KEEP),
    ],
)
def test_owners_decide_about_an_object(states, with_dependents, expected):
    item = pod("x", *(f"o{n}" for n in range(len(states))))
    graph = graph_of(item, *([pod("d", "x")] if with_dependents else []))
    assert decide(graph, item, states) == expected


def test_an_object_with_one_owner_that_stays_forgets_the_others():
    item = pod("x", "a", "b", "c")
    assert decide(graph_of(item), item, [ABSENT, SOLID, WAITING]) == DropReferences(item.owners[1:2])


def test_the_object_s_own_finalizers_decide_how_it_is_deleted():
    for finalizers, wanted in (((ORPHAN,), PropagationPolicy.ORPHAN), ((FOREGROUND,), PropagationPolicy.FOREGROUND)):
        item = pod("x", "gone", finalizers=finalizers)
        assert decide(graph_of(item), item, [ABSENT]) == Remove(wanted)


def test_an_owner_in_another_namespace_requires_a_request_to_the_server():
    owner, item = pod("o", namespace="elsewhere"), pod("x", "o")
    assert known_state(graph_of(owner, item), item, item.owners[0]) is None
    assert known_state(graph_of(pod("o"), item), item, item.owners[0]) is SOLID


def test_a_dependent_that_comes_after_its_owner_is_not_looked_at():
    graph = graph_of(pod("o"))
    assert graph.observe(pod("x", "o")) == []
    assert graph.observe(replace(pod("x", "o"), version="2")) == []
    assert graph.forget("o") == ["x"]


def test_a_dependent_that_does_not_block_is_not_waited_for():
    owner = pod("o", finalizers=(FOREGROUND,), deleting=True)
    assert deletion_step(graph_of(owner, pod("x", "o", blocks=False)), owner) == ReleaseObject(FOREGROUND)
    assert deletion_step(graph_of(owner, pod("x", "o")), owner) == DeleteDependents(("x",))


def test_objects_that_wait_only_for_each_other_are_let_go():
    ends = {"finalizers": (FOREGROUND,), "deleting": True}
    a, b = pod("a", "b", **ends), pod("b", "a", **ends)
    assert deletion_step(graph_of(a, b), a) == ReleaseObject(FOREGROUND)
    outside = pod("z", "b")
    assert deletion_step(graph_of(a, b, outside), a) == DeleteDependents(())  # z goes first
    assert deletion_step(graph_of(a, b, outside), b) == DeleteDependents(("z",))


# -- the whole: an API server in miniature, a graph that lags behind it, a queue in any order ---------------------------


@dataclass
class World:
    """Objects, the graph that has seen a part of their history, and who is to be looked at."""

    objects: dict[str, GraphNode]
    random: Random

    def __post_init__(self):
        self.graph = Graph()
        self.unseen: list[tuple[str, GraphNode | None]] = []
        self.queue: list[str] = []
        self.orphaned: set[str] = set()  # who was cut off on request
        self.version = 1
        for node in self.objects.values():
            self.unseen.append((node.uid, node))

    def write(self, node):
        self.version += 1
        node = replace(node, version=str(self.version))
        if node.deleting and not node.finalizers:
            del self.objects[node.uid]
            self.unseen.append((node.uid, None))
        else:
            self.objects[node.uid] = node
            self.unseen.append((node.uid, node))
        return node

    def delete(self, uid, propagation):
        node = self.objects.get(uid)
        if node is None:
            return
        finalizers = tuple(f for f in node.finalizers if f not in (ORPHAN, FOREGROUND))
        wanted = {PropagationPolicy.ORPHAN: (ORPHAN,), PropagationPolicy.FOREGROUND: (FOREGROUND,)}.get(propagation, ())
        self.write(replace(node, finalizers=finalizers + wanted, deleting=True))

    def look(self):
        """One event arrives, or one object is worked on."""
        if self.unseen and (not self.queue or self.random.random() < 0.6):
            uid, node = self.unseen.pop(0)
            self.queue += self.graph.forget(uid) if node is None else self.graph.observe(node)
            return
        self.work(self.queue.pop(self.random.randrange(len(self.queue))))

    def work(self, uid):
        item = self.graph.get(uid)
        if item is None:
            return
        stored = self.objects.get(uid)
        action = deletion_step(self.graph, item) or decide(self.graph, item, [self.state(item, r) for r in item.owners])
        if isinstance(action, KeepObject):
            return
        if isinstance(action, DeleteDependents):
            self.queue += action.dependents
            return
        if stored is None:
            return
        if stored.version != item.version:
            self.queue.append(uid)  # a conflict
            return
        self.carry_out(stored, action)

    def state(self, item, reference):
        known = known_state(self.graph, item, reference)
        if known is not None:
            return known
        owner = self.objects.get(reference.uid)
        return ABSENT if owner is None else WAITING if owner.waits else SOLID

    def carry_out(self, node, action):
        match action:
            case DropReferences(owners):
                self.write(replace(node, owners=owners))
            case Remove(propagation, unblock):
                if unblock:
                    node = self.write(replace(node, owners=tuple(replace(o, blocks=False) for o in node.owners)))
                self.delete(node.uid, propagation)
            case ReleaseObject(finalizer):
                self.write(replace(node, finalizers=tuple(f for f in node.finalizers if f != finalizer)))
            case Orphan(dependents):
                for dependent in dependents:
                    stored = self.objects.get(dependent.uid)
                    if stored is None:
                        continue
                    if stored.version != dependent.version:
                        self.queue.append(node.uid)
                        return
                    self.orphaned.add(dependent.uid)
                    self.write(replace(stored, owners=tuple(o for o in stored.owners if o.uid != node.uid)))
                self.write(replace(node, finalizers=tuple(f for f in node.finalizers if f != ORPHAN)))

    def settle(self):
        for _ in range(20_000):
            if not self.unseen and not self.queue:
                return
            self.look()
        raise AssertionError("the collector does not come to rest")


@st.composite
def worlds(draw):
    count = draw(st.integers(1, 9))
    names = [f"u{n}" for n in range(count)]
    owners = {name: draw(st.lists(st.sampled_from(names), max_size=3, unique=True)) for name in names}
    blocks = {name: draw(st.booleans()) for name in names}
    objects = {name: pod(name, *owners[name], blocks=blocks[name]) for name in names}
    return World(objects, Random(draw(st.integers(0, 10_000))))


def kept_by_others(objects, deleted):
    """What a correct collection leaves: not deleted by hand, and either without owners or with one that is left."""
    left = {uid for uid in objects if uid not in deleted}
    while True:
        doomed = {uid for uid in left if objects[uid].owners and not any(o.uid in left for o in objects[uid].owners)}
        if not doomed:
            return left
        left -= doomed


@settings(max_examples=250)
@given(worlds(), st.data())
def test_what_only_deleted_owners_kept_goes_and_all_else_stays(world, data):
    world.settle()
    before = dict(world.objects)
    policies = st.sampled_from([PropagationPolicy.BACKGROUND, PropagationPolicy.FOREGROUND])
    deleted = data.draw(st.dictionaries(st.sampled_from(sorted(before)), policies, max_size=4))
    for uid, propagation in deleted.items():
        world.delete(uid, propagation)
        for _ in range(data.draw(st.integers(0, 3))):
            if world.unseen or world.queue:
                world.look()
    world.settle()
    left = set(world.objects)
    assert not any(node.deleting for node in world.objects.values()), "an object is stuck in its deletion"
    assert left == kept_by_others(before, set(deleted))
    gone = set(before) - left
    for node in world.objects.values():
        assert not any(owner.uid in gone for owner in node.owners)


@settings(max_examples=150)
@given(worlds(), st.data())
def test_dependents_of_an_owner_that_lets_go_stay(world, data):
    world.settle()
    before = dict(world.objects)
    uid = data.draw(st.sampled_from(sorted(before)))
    dependents = {node.uid for node in before.values() if any(o.uid == uid for o in node.owners) and node.uid != uid}
    world.delete(uid, PropagationPolicy.ORPHAN)
    world.settle()
    assert uid not in world.objects
    assert set(world.objects) == set(before) - {uid}
    assert all(not any(o.uid == uid for o in world.objects[each].owners) for each in dependents)
