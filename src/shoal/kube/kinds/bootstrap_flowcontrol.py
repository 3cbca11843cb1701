"""The priority levels and flow schemas a cluster starts with.

Clients cannot change the mandatory ones (``exempt``, ``catch-all``). The suggested ones are reset to these values as
long as their annotation requests it. Every call returns new objects.
"""

from __future__ import annotations

from typing import Final

from shoal.kube.objects import Obj

API_VERSION: Final = "flowcontrol.apiserver.k8s.io/v1"
AUTO_UPDATE: Final = "apf.kubernetes.io/autoupdate-spec"

# name, shares, lendable percent, queues (0: reject), hand size
_LEVELS: Final = (
    ("catch-all", 5, 0, 0, 0),
    ("system", 30, 33, 64, 6),
    ("node-high", 40, 25, 64, 6),
    ("leader-election", 10, 0, 16, 4),
    ("workload-high", 40, 50, 128, 6),
    ("workload-low", 100, 90, 128, 6),
    ("global-default", 20, 50, 128, 6),
)
_QUEUE_LENGTH: Final = 50
_EVERYONE: Final = ("Group system:unauthenticated", "Group system:authenticated")
_KUBE_SYSTEM: Final = ("ServiceAccount *",)
_ALL: Final = ("* * * cluster",)
_ALL_URLS: Final = ("* *",)

# name, level, precedence, distinguisher, subjects, resource rules (verbs groups resources [cluster]), url rules
_SCHEMAS: Final = (
    ("exempt", "exempt", 1, "", ("Group system:masters",), _ALL, _ALL_URLS),
    ("probes", "exempt", 2, "", _EVERYONE, (), ("get /healthz,/readyz,/livez",)),
    (
        "system-leader-election",
        "leader-election",
        100,
        "ByUser",
        ("User system:kube-controller-manager", "User system:kube-scheduler", *_KUBE_SYSTEM),
        ("get,create,update coordination.k8s.io leases",),
        (),
    ),
    (
        "system-node-high",
        "node-high",
        400,
        "ByUser",
        ("Group system:nodes",),
        ("* - nodes,nodes/status cluster", "* coordination.k8s.io leases"),
        (),
    ),
    ("system-nodes", "system", 500, "ByUser", ("Group system:nodes",), _ALL, _ALL_URLS),
    (
        "kube-controller-manager",
        "workload-high",
        800,
        "ByNamespace",
        ("User system:kube-controller-manager",),
        _ALL,
        _ALL_URLS,
    ),
    ("kube-scheduler", "workload-high", 800, "ByNamespace", ("User system:kube-scheduler",), _ALL, _ALL_URLS),
    ("kube-system-service-accounts", "workload-high", 900, "ByNamespace", _KUBE_SYSTEM, _ALL, _ALL_URLS),
    ("service-accounts", "workload-low", 9000, "ByUser", ("Group system:serviceaccounts",), _ALL, _ALL_URLS),
    ("global-default", "global-default", 9900, "ByUser", _EVERYONE, _ALL, _ALL_URLS),
    ("catch-all", "catch-all", 10000, "ByUser", _EVERYONE, _ALL, _ALL_URLS),
)
MANDATORY: Final = frozenset({"exempt", "catch-all"})


def _object(kind: str, name: str, spec: Obj) -> Obj:
    return {
        "apiVersion": API_VERSION,
        "kind": kind,
        "metadata": {"name": name, "annotations": {AUTO_UPDATE: "true"}},
        "spec": spec,
    }


def _limited(shares: int, lendable: int, queues: int, hand: int) -> Obj:
    response: Obj = {"type": "Reject"}
    if queues:
        queuing = {"queues": queues, "handSize": hand, "queueLengthLimit": _QUEUE_LENGTH}
        response = {"type": "Queue", "queuing": queuing}
    limited = {"nominalConcurrencyShares": shares, "lendablePercent": lendable, "limitResponse": response}
    return {"type": "Limited", "limited": limited}


def priority_levels() -> list[Obj]:
    exempt = {"type": "Exempt", "exempt": {"nominalConcurrencyShares": 0, "lendablePercent": 0}}
    levels = [_object("PriorityLevelConfiguration", "exempt", exempt)]
    for name, shares, lendable, queues, hand in _LEVELS:
        levels.append(_object("PriorityLevelConfiguration", name, _limited(shares, lendable, queues, hand)))
    return levels


def _subject(text: str) -> Obj:
    kind, name = text.split(" ")
    if kind == "ServiceAccount":
        return {"kind": kind, "serviceAccount": {"name": name, "namespace": "kube-system"}}
    return {"kind": kind, kind.lower(): {"name": name}}


def _resource_rule(text: str) -> Obj:
    verbs, groups, resources, *cluster = text.split(" ")
    rule: Obj = {
        "verbs": verbs.split(","),
        "apiGroups": ["" if group == "-" else group for group in groups.split(",")],
        "resources": resources.split(","),
        "namespaces": ["*"],
    }
    if cluster:
        rule["clusterScope"] = True
    return rule


def _url_rule(text: str) -> Obj:
    verbs, urls = text.split(" ")
    return {"verbs": verbs.split(","), "nonResourceURLs": urls.split(",")}


def flow_schemas() -> list[Obj]:
    schemas = []
    for name, level, precedence, distinguisher, subjects, resources, urls in _SCHEMAS:
        rule: Obj = {"subjects": [_subject(text) for text in subjects]}
        if resources:
            rule["resourceRules"] = [_resource_rule(text) for text in resources]
        if urls:
            rule["nonResourceRules"] = [_url_rule(text) for text in urls]
        spec: Obj = {"priorityLevelConfiguration": {"name": level}, "matchingPrecedence": precedence}
        if distinguisher:
            spec["distinguisherMethod"] = {"type": distinguisher}
        spec["rules"] = [rule]
        schemas.append(_object("FlowSchema", name, spec))
    return schemas


def bootstrap_objects() -> list[Obj]:
    """All objects, levels before the schemas that refer to them."""
    return [*priority_levels(), *flow_schemas()]
