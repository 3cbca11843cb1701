"""The shared path against the slow and obvious one: same nodes refused for the same reasons, and one of the best chosen,
whatever happened to the cluster in between."""

from __future__ import annotations

from collections import Counter
from random import Random

import scheduler_reference as reference
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scheduler_builders import HOSTNAME, ZONE, a_constraint, a_node, a_pod, a_term

from shoal.kube.labels import from_object
from shoal.kube.objects import Obj
from shoal.reconcile.keys import ObjectKey
from shoal.scheduler.config import Profile, SchedulerConfig
from shoal.scheduler.plan import Placed, Planner
from shoal.scheduler.snapshot import Snapshot
from shoal.scheduler.table import Table

APPS = ("web", "db", "cache")
TAINTS = [
    {"key": "dedicated", "value": "a", "effect": "NoSchedule"},
    {"key": "slow", "value": "", "effect": "PreferNoSchedule"},
    {"key": "old", "value": "", "effect": "PreferNoSchedule"},
]
IMAGES = ("example.com/app:1", "example.com/big:1")


def random_node(random: Random, name: str) -> Obj:
    labels = {"disk": random.choice(("ssd", "hdd"))} if random.random() < 0.6 else {}
    if random.random() < 0.3:
        labels["rack"] = random.choice("rs")
    node = a_node(
        name,
        zone=random.choice(("", "z1", "z2", "z3")),
        cpu=random.choice(("1", "2", "4")),
        memory=random.choice(("1Gi", "4Gi", "0")),
        pods=random.choice(("3", "110")),
        labels=labels,
        others={"example.com/gpu": "1"} if random.random() < 0.2 else {},
        images={image: random.choice((10, 300, 2000)) * 2**20 for image in IMAGES if random.random() < 0.4},
        taints=random.sample(TAINTS, random.choice((0, 0, 1, 2))),
    )
    if random.random() < 0.1:
        node["spec"]["unschedulable"] = True
    if random.random() < 0.1:
        del node["metadata"]["labels"][HOSTNAME]
    return node


def random_template(random: Random, name: str) -> Obj:
    app = random.choice(APPS)
    extra: Obj = {"labels": {"app": app}}
    if random.random() < 0.3:
        extra["nodeSelector"] = {"disk": "ssd"}
    if random.random() < 0.4:
        extra["tolerations"] = [random.choice(({"operator": "Exists"}, {"key": "dedicated", "value": "a"}))]
    if random.random() < 0.3:
        extra["ports"] = [
            {
                "containerPort": 80,
                "hostPort": random.choice((80, 81)),
                "hostIP": random.choice(("0.0.0.0", "127.0.0.1")),
            }
        ]
    if random.random() < 0.2:
        extra["others"] = {"example.com/gpu": "1"}
    if random.random() < 0.4:
        extra["owner"] = app
    affinity: Obj = {}
    if random.random() < 0.3:
        affinity["nodeAffinity"] = {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {
                    "weight": random.randint(1, 100),
                    "preference": {"matchExpressions": [{"key": "disk", "operator": "In", "values": [value]}]},
                }
                for value in random.sample(("ssd", "hdd"), random.randint(1, 2))
            ]
        }
    for side in ("podAffinity", "podAntiAffinity"):
        chosen: Obj = {}
        if random.random() < 0.2:
            chosen["requiredDuringSchedulingIgnoredDuringExecution"] = [
                random_term(random) for _ in range(random.randint(1, 2))
            ]
        if random.random() < 0.3:
            chosen["preferredDuringSchedulingIgnoredDuringExecution"] = [
                {"weight": random.randint(1, 100), "podAffinityTerm": random_term(random)}
                for _ in range(random.randint(1, 2))
            ]
        if chosen:
            affinity[side] = chosen
    if affinity:
        extra["affinity"] = affinity
    if random.random() < 0.4:
        extra["topologySpreadConstraints"] = [
            a_constraint(key, random.randint(1, 3), hard=random.random() < 0.6, app=random.choice(APPS))
            | ({"nodeTaintsPolicy": "Honor"} if random.random() < 0.2 else {})
            | ({"nodeAffinityPolicy": "Ignore"} if random.random() < 0.2 else {})
            for key in random.sample((HOSTNAME, ZONE, "rack"), random.randint(1, 2))
        ]
    return a_pod(
        name,
        cpu=random.choice(("", "100m", "700m")),
        memory=random.choice(("", "100Mi", "900Mi")),
        namespace=random.choice(("default", "default", "other")),
        image=random.choice(IMAGES),
        **extra,
    )


def random_term(random: Random) -> Obj:
    term = a_term(random.choice((HOSTNAME, ZONE, "rack")), app=random.choice(APPS))
    choice = random.random()
    if choice < 0.15:
        term["namespaces"] = ["other"]
    elif choice < 0.3:
        term["namespaceSelector"] = random.choice(({}, {"matchLabels": {"team": "a"}}))
    return term


class Both:
    """The same cluster, once for the scheduler and once for the reference."""

    def __init__(self, random: Random, config: SchedulerConfig) -> None:
        self.random = random
        self.world = reference.World()
        self.snapshot = Snapshot()
        self.planner = Planner(self.snapshot, config)
        self.count = 0
        for name, labels in (("default", {}), ("other", {"team": "a"})):
            self.world.namespaces[name] = labels
            self.snapshot.set_namespace(name, labels)
        for app in APPS:
            selector = {"matchLabels": {"app": app}}
            self.world.owners["default", app] = selector
            self.snapshot.set_owner("ReplicaSet", ObjectKey("default", app), from_object(selector))

    def set_node(self, name: str) -> None:
        node = random_node(self.random, name)
        self.world.nodes[name] = node
        self.snapshot.set_node(node)

    def remove_node(self, name: str) -> None:
        self.world.nodes.pop(name, None)
        self.snapshot.remove_node(name)

    def add_pod(self, template: Obj, node: str) -> None:
        self.count += 1
        pod = fresh(template, f"p{self.count}")
        pod["spec"]["nodeName"] = node
        self.world.pods[pod["metadata"]["uid"]] = pod
        self._add(pod)

    def _add(self, pod: Obj) -> None:
        info = self.snapshot.pod_info(pod)
        self.snapshot.hold(info.shape)
        self.snapshot.add_pod(info, pod["spec"]["nodeName"])

    def remove_pod(self, pod: Obj) -> None:
        del self.world.pods[pod["metadata"]["uid"]]
        self._remove(pod)

    def _remove(self, pod: Obj) -> None:
        info = self.snapshot.pods[ObjectKey(pod["metadata"]["namespace"], pod["metadata"]["name"])]
        self.snapshot.remove_pod(info)
        self.snapshot.let_go(info.shape)

    def begin_deletion(self, pod: Obj) -> None:
        self._remove(pod)
        pod["metadata"]["deletionTimestamp"] = "2024-01-01T00:00:00Z"
        self._add(pod)

    def set_service(self, selector: Obj) -> None:
        service = {"metadata": {"namespace": "default", "name": "s"}, "spec": {"selector": selector}}
        self.world.services = [service]
        self.snapshot.set_service(service)

    def step(self, templates: list[Obj]) -> None:
        """Something happens to the cluster."""
        random, pods, names = self.random, list(self.world.pods.values()), sorted(self.world.nodes)
        match random.randrange(9):
            case 0 | 1 | 2 if names:
                self.add_pod(random.choice(templates), random.choice(names))
            case 3 if pods:
                self.remove_pod(random.choice(pods))
            case 4 if pods:
                self.begin_deletion(random.choice(pods))
            case 5 if names:
                self.set_node(random.choice(names))
            case 6 if names:
                self.remove_node(random.choice(names))
            case 7:
                self.set_service({"app": random.choice(APPS)} if random.random() < 0.7 else {})
            case _:
                self.set_node(f"n{random.randrange(12)}")

    def compare(self, template: Obj) -> str:
        """Decide both ways; returns the node that was chosen."""
        pod = fresh(template, "incoming")
        info = self.snapshot.pod_info(pod)
        decided = self.planner.place(info, self.random.random)
        refused = {name: reference.refusal(pod, node, self.world) for name, node in self.world.nodes.items()}
        fitting = [node for name, node in self.world.nodes.items() if not refused[name]]
        if not isinstance(decided, Placed):
            assert not fitting, decided.message
            expected = Counter(reason for reasons in refused.values() for reason in reasons)
            found = Counter[str]()
            for refusal, count in decided.refusals.items():
                for reason in refusal.reasons:
                    found[reason] += count
            assert found == expected, (found, expected, template, refused)
            return ""
        totals = reference.totals(pod, self.world, fitting)
        assert decided.node in totals, (decided.node, refused)
        assert totals[decided.node] == max(totals.values()), (decided, totals)
        assert sum(decided.scores.values()) == totals[decided.node], (decided, totals)
        assert decided.feasible == len(fitting)
        assert decided.ties == sum(total == max(totals.values()) for total in totals.values())
        return decided.node


def fresh(template: Obj, name: str) -> Obj:
    about = {**template["metadata"], "name": name, "uid": f"uid-{name}"}
    return {**template, "metadata": about, "spec": dict(template["spec"])}


EVERY_NODE = SchedulerConfig(profiles=(Profile(percentage_of_nodes_to_score=100),), tables=3)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32 - 1))
def test_the_shared_path_chooses_one_of_the_best_nodes_after_any_history(seed: int) -> None:
    random = Random(seed)
    both = Both(random, EVERY_NODE)
    for at in range(random.randrange(1, 10)):
        both.set_node(f"n{at}")
    templates = [random_template(random, f"t{at}") for at in range(random.randrange(1, 5))]
    for _ in range(random.randrange(25)):
        template = random.choice(templates)
        node = both.compare(template)
        if node and random.random() < 0.7:
            both.add_pod(template, node)
        for _ in range(random.randrange(3)):
            both.step(templates)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32 - 1), st.integers(1, 6))
def test_a_limited_search_chooses_one_of_the_best_of_the_nodes_it_has_asked(seed: int, enough: int) -> None:
    random = Random(seed)
    both = Both(random, EVERY_NODE)
    for at in range(12):
        both.set_node(f"n{at}")
    templates = [random_template(random, f"t{at}") for at in range(3)]
    pod = fresh(templates[0], "incoming")
    shape, *_ = (both.snapshot.pod_info(fresh(template, "known")).shape for template in templates)
    table = Table(shape, Profile(), both.snapshot, start=random.randrange(12))
    for _ in range(6):
        if table.topology.stale:
            table = Table(shape, Profile(), both.snapshot, start=random.randrange(12))
        table.refresh()
        table.widen(enough)
        asked = {row.node for row in table.explain({})}
        fitting = [
            node
            for name, node in both.world.nodes.items()
            if name in asked and not reference.refusal(pod, node, both.world)
        ]
        choice = table.choose(random.random, {})
        if choice is None:
            assert not fitting
        else:
            totals = reference.totals(pod, both.world, fitting)
            assert totals[both.snapshot.nodes[choice.slot].name] == max(totals.values())
        assert table.complete or table.fitting >= enough
        both.step(templates)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32 - 1))
def test_the_explanation_of_every_node_equals_that_of_the_reference(seed: int) -> None:
    random = Random(seed)
    both = Both(random, EVERY_NODE)
    for at in range(random.randrange(1, 10)):
        both.set_node(f"n{at}")
    templates = [random_template(random, f"t{at}") for at in range(3)]
    for _ in range(15):
        both.step(templates)
    pod = fresh(templates[0], "asked")
    explained = {row.node: row for row in both.planner.explain(both.snapshot.pod_info(pod)).nodes}
    assert explained.keys() == both.world.nodes.keys()
    refused = {name: reference.refusal(pod, node, both.world) for name, node in both.world.nodes.items()}
    totals = reference.totals(pod, both.world, [node for name, node in both.world.nodes.items() if not refused[name]])
    for name, row in explained.items():
        assert list(row.refusal.reasons if row.refusal else ()) == refused[name]
        assert row.refusal is not None or row.total == totals[name]
