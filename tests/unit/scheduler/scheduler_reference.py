"""A second scheduler, slow and obvious: asks every node everything, every time, from the plain objects.

Written from the rules and not from the scheduler's code, so that the two can be held against each other.
"""

from __future__ import annotations

import math

from shoal.kube import quantity
from shoal.kube.objects import Obj

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
WEIGHTS = {"taints": 3, "affinity": 2, "spread": 2, "pods": 2, "fit": 1, "balance": 1, "images": 1}


class World:
    """Plain objects: nodes by name, pods that are on nodes, services, owners' selectors, labels of namespaces."""

    def __init__(self) -> None:
        self.nodes: dict[str, Obj] = {}
        self.pods: dict[str, Obj] = {}
        self.services: list[Obj] = []
        self.owners: dict[tuple[str, str], Obj] = {}
        self.namespaces: dict[str, dict[str, str]] = {}

    def on(self, node: str) -> list[Obj]:
        return [pod for pod in self.pods.values() if pod["spec"].get("nodeName") == node]

    def placed(self) -> list[tuple[Obj, Obj]]:
        found = ((pod, self.nodes.get(pod["spec"]["nodeName"])) for pod in self.pods.values())
        return [(pod, node) for pod, node in found if node is not None]


def labels(obj: Obj) -> dict[str, str]:
    return obj["metadata"].get("labels") or {}


def selects(selector: Obj | None, have: dict[str, str]) -> bool:
    if selector is None:
        return False
    for key, value in (selector.get("matchLabels") or {}).items():
        if have.get(key) != value:
            return False
    return all(expression(each, have) for each in selector.get("matchExpressions") or ())


def expression(each: Obj, have: dict[str, str]) -> bool:
    key, operator, values = each["key"], each["operator"], each.get("values") or []
    match operator:
        case "In":
            return have.get(key) in values
        case "NotIn":
            return have.get(key) not in values
        case "Exists":
            return key in have
        case "DoesNotExist":
            return key not in have
        case "Gt":
            return key in have and int(have[key]) > int(values[0])
        case "Lt":
            return key in have and int(have[key]) < int(values[0])
    raise AssertionError(operator)


def tolerates(tolerations: list[Obj], taint: Obj) -> bool:
    for each in tolerations:
        if each.get("effect") and each["effect"] != taint["effect"]:
            continue
        if each.get("key") and each["key"] != taint["key"]:
            continue
        if each.get("operator") == "Exists" or each.get("value", "") == taint.get("value", ""):
            return True
    return False


def node_term(term: Obj, node: Obj) -> bool:
    if not term.get("matchExpressions") and not term.get("matchFields"):
        return False
    fields = {"metadata.name": node["metadata"]["name"]}
    return all(expression(each, labels(node)) for each in term.get("matchExpressions") or ()) and all(
        expression(each, fields) for each in term.get("matchFields") or ()
    )


def wants_node(pod: Obj, node: Obj) -> bool:
    spec = pod["spec"]
    if any(labels(node).get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
        return False
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    return required is None or any(node_term(term, node) for term in required["nodeSelectorTerms"])


def asks(pod: Obj, name: str, missing: int = 0) -> int:
    """Containers only, or an init container that needs more, and the overhead."""

    def one(container: Obj) -> int:
        text = ((container.get("resources") or {}).get("requests") or {}).get(name)
        if text is None:
            return missing
        parsed = quantity.parse(text)
        return parsed.milli() if name == "cpu" else parsed.value()

    spec = pod["spec"]
    total = sum(map(one, spec["containers"]))
    return max([total, *map(one, spec.get("initContainers") or ())])


def has(node: Obj, name: str) -> int:
    text = node["status"]["allocatable"].get(name, "0")
    return quantity.parse(text).milli() if name == "cpu" else quantity.parse(text).value()


def ports(pod: Obj) -> list[tuple[str, str, int]]:
    return [
        (port.get("hostIP", "0.0.0.0"), port.get("protocol", "TCP"), port["hostPort"])
        for container in pod["spec"]["containers"]
        for port in container.get("ports") or ()
        if port.get("hostPort")
    ]


def conflict(one: tuple[str, str, int], other: tuple[str, str, int]) -> bool:
    return one[1:] == other[1:] and (one[0] == other[0] or "0.0.0.0" in (one[0], other[0]))


def term_covers(term: Obj, owner: Obj, pod: Obj, world: World) -> bool:
    """Whether ``pod`` is among those that a term of ``owner`` is about."""
    namespace = pod["metadata"]["namespace"]
    listed, selector = term.get("namespaces") or [], term.get("namespaceSelector")
    if not listed and selector is None:
        listed = [owner["metadata"]["namespace"]]
    if namespace not in listed and not (
        selector is not None and selects(selector, world.namespaces.get(namespace, {}))
    ):
        return False
    return selects(term.get("labelSelector"), labels(pod))


def pod_terms(pod: Obj, side: str, strength: str) -> list[Obj]:
    field = f"{strength}DuringSchedulingIgnoredDuringExecution"
    return ((pod["spec"].get("affinity") or {}).get(side) or {}).get(field) or []


# filters


def refusal(pod: Obj, node: Obj, world: World) -> list[str]:
    """The reasons of the first filter that refuses; nothing when the node fits."""
    spec, on_node = pod["spec"], world.on(node["metadata"]["name"])
    tolerations, taints = spec.get("tolerations") or [], node["spec"].get("taints") or []
    cordon = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    if node["spec"].get("unschedulable") and not tolerates(tolerations, cordon):
        return ["node(s) were unschedulable"]
    if any(t["effect"] in ("NoSchedule", "NoExecute") and not tolerates(tolerations, t) for t in taints):
        return ["node(s) had untolerated taint(s)"]
    if not wants_node(pod, node):
        return ["node(s) didn't match Pod's node affinity/selector"]
    if any(conflict(mine, theirs) for mine in ports(pod) for other in on_node for theirs in ports(other)):
        return ["node(s) didn't have free ports for the requested pod ports"]
    short = ["Too many pods"] if len(on_node) + 1 > has(node, "pods") else []
    for name in ("cpu", "memory", "example.com/gpu"):
        wanted = asks(pod, name)
        if wanted and wanted > has(node, name) - sum(asks(other, name) for other in on_node):
            short.append(f"Insufficient {name}")
    if short:
        return short
    spread = refused_by_spread(pod, node, world)
    return [spread] if spread else refused_by_pods(pod, node, world)


def counted(constraint: Obj, pod: Obj, node: Obj, keys: list[str]) -> bool:
    if any(key not in labels(node) for key in keys):
        return False
    if constraint.get("nodeAffinityPolicy", "Honor") == "Honor" and not wants_node(pod, node):
        return False
    tolerations = pod["spec"].get("tolerations") or []
    return constraint.get("nodeTaintsPolicy", "Ignore") == "Ignore" or all(
        taint["effect"] == "PreferNoSchedule" or tolerates(tolerations, taint)
        for taint in node["spec"].get("taints") or []
    )


def matching(constraint: Obj, pod: Obj, nodes: list[Obj], world: World) -> int:
    names = {node["metadata"]["name"] for node in nodes}
    selector = constraint["labelSelector"]
    if not selector.get("matchLabels") and not selector.get("matchExpressions"):
        return 0
    return sum(
        other["spec"]["nodeName"] in names
        and other["metadata"]["namespace"] == pod["metadata"]["namespace"]
        and "deletionTimestamp" not in other["metadata"]
        and selects(selector, labels(other))
        for other in world.pods.values()
    )


def refused_by_spread(pod: Obj, node: Obj, world: World) -> str:
    reason = "node(s) didn't match pod topology spread constraints"
    hard = [c for c in pod["spec"].get("topologySpreadConstraints") or [] if c["whenUnsatisfiable"] == "DoNotSchedule"]
    keys = [constraint["topologyKey"] for constraint in hard]
    for constraint in hard:
        key = constraint["topologyKey"]
        if key not in labels(node):
            return f"{reason} (missing required label)"
        nodes = [each for each in world.nodes.values() if counted(constraint, pod, each, keys)]
        domains = {labels(each)[key] for each in nodes}
        counts = {d: matching(constraint, pod, [n for n in nodes if labels(n)[key] == d], world) for d in domains}
        least = min(counts.values(), default=2**31)
        if len(domains) < constraint.get("minDomains", 1):
            least = 0
        mine = counts.get(labels(node)[key], 0) + selects(constraint["labelSelector"], labels(pod))
        if mine - least > constraint["maxSkew"]:
            return reason
    return ""


def near(key: str, node: Obj, world: World) -> list[Obj]:
    """Pods in the node's domain."""
    if key not in labels(node):
        return []
    return [other for other, where in world.placed() if labels(where).get(key) == labels(node)[key]]


def refused_by_pods(pod: Obj, node: Obj, world: World) -> list[str]:
    wanted = pod_terms(pod, "podAffinity", "required")
    if wanted:
        if any(term["topologyKey"] not in labels(node) for term in wanted):
            return ["node(s) didn't match pod affinity rules"]

        def covered(other: Obj) -> bool:
            return all(term_covers(term, pod, other, world) for term in wanted)

        if not all(any(map(covered, near(term["topologyKey"], node, world))) for term in wanted):
            somewhere = any(
                covered(other) and any(term["topologyKey"] in labels(where) for term in wanted)
                for other, where in world.placed()
            )
            if somewhere or not covered(pod):
                return ["node(s) didn't match pod affinity rules"]
    for term in pod_terms(pod, "podAntiAffinity", "required"):
        if any(term_covers(term, pod, other, world) for other in near(term["topologyKey"], node, world)):
            return ["node(s) didn't match pod anti-affinity rules"]
    for other, where in world.placed():
        for term in pod_terms(other, "podAntiAffinity", "required"):
            key = term["topologyKey"]
            together = key in labels(node) and labels(where).get(key) == labels(node)[key]
            if together and term_covers(term, other, pod, world):
                return ["node(s) didn't satisfy existing pods anti-affinity rules"]
    return []


# scores


def totals(pod: Obj, world: World, fitting: list[Obj]) -> dict[str, int]:
    """The weighted total of every node that fits."""
    parts = {
        "taints": normalised([disliked(pod, node) for node in fitting], reverse=True),
        "affinity": normalised([liked(pod, node) for node in fitting]) if likes_nodes(pod) else [0] * len(fitting),
        "spread": spread(pod, world, fitting),
        "pods": pod_likes(pod, world, fitting),
        "fit": [least_allocated(pod, node, world) for node in fitting],
        "balance": [balanced(pod, node, world) for node in fitting],
        "images": [images(pod, node, world) for node in fitting],
    }
    return {
        node["metadata"]["name"]: sum(WEIGHTS[part] * scores[at] for part, scores in parts.items())
        for at, node in enumerate(fitting)
    }


def normalised(raw: list[int], reverse: bool = False) -> list[int]:
    most = max(raw, default=0)
    if most == 0:
        return [100 if reverse else 0 for _ in raw]
    return [100 - 100 * value // most if reverse else 100 * value // most for value in raw]


def disliked(pod: Obj, node: Obj) -> int:
    usable = [
        t for t in pod["spec"].get("tolerations") or [] if t.get("effect", "PreferNoSchedule") == "PreferNoSchedule"
    ]
    return sum(t["effect"] == "PreferNoSchedule" and not tolerates(usable, t) for t in node["spec"].get("taints") or [])


def likes_nodes(pod: Obj) -> list[Obj]:
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    return affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or []


def liked(pod: Obj, node: Obj) -> int:
    return sum(each["weight"] for each in likes_nodes(pod) if node_term(each["preference"], node))


def default_constraints(pod: Obj, world: World) -> list[Obj]:
    expressions: list[Obj] = []
    namespace = pod["metadata"]["namespace"]
    for service in world.services:
        selector = service["spec"].get("selector")
        if (
            service["metadata"]["namespace"] == namespace
            and selector
            and selects({"matchLabels": selector}, labels(pod))
        ):
            expressions += ({"key": k, "operator": "In", "values": [v]} for k, v in selector.items())
    owner = next((each for each in pod["metadata"].get("ownerReferences") or () if each.get("controller")), None)
    selector = world.owners.get((namespace, owner["name"])) if owner is not None else None
    if selector:
        expressions += (
            {"key": k, "operator": "In", "values": [v]} for k, v in (selector.get("matchLabels") or {}).items()
        )
        expressions += selector.get("matchExpressions") or []
    if not expressions:
        return []
    together = {"matchExpressions": expressions}
    return [
        {"topologyKey": HOSTNAME, "maxSkew": 3, "labelSelector": together},
        {"topologyKey": ZONE, "maxSkew": 5, "labelSelector": together},
    ]


def spread(pod: Obj, world: World, fitting: list[Obj]) -> list[int]:
    own = pod["spec"].get("topologySpreadConstraints") or []
    soft = [each for each in own if each["whenUnsatisfiable"] == "ScheduleAnyway"]
    if not own:
        soft = default_constraints(pod, world)
    if not soft:
        return [0] * len(fitting)
    keys = [each["topologyKey"] for each in soft] if own else []
    ignored = [any(key not in labels(node) for key in keys) for node in fitting]
    scored = [node for node, left_out in zip(fitting, ignored, strict=True) if not left_out]
    raw: list[float] = [0.0] * len(fitting)
    for constraint in soft:
        key = constraint["topologyKey"]
        size = len(scored) if key == HOSTNAME else len({labels(node).get(key) for node in scored})
        for at, node in enumerate(fitting):
            if key not in labels(node):
                continue
            if key == HOSTNAME:
                count = matching(constraint, pod, [node], world)
            else:
                domain = [
                    each
                    for each in world.nodes.values()
                    if labels(each).get(key) == labels(node)[key] and counted(constraint, pod, each, keys)
                ]
                count = matching(constraint, pod, domain, world)
            raw[at] += count * math.log(size + 2) + constraint["maxSkew"] - 1
    rounded = [math.floor(value + 0.5) for value in raw]
    kept = [value for value, left_out in zip(rounded, ignored, strict=True) if not left_out]
    most, least = max(kept, default=0), min(kept, default=0)
    return [
        0 if left_out else 100 if most == 0 else 100 * (most + least - value) // most
        for value, left_out in zip(rounded, ignored, strict=True)
    ]


def pod_likes(pod: Obj, world: World, fitting: list[Obj]) -> list[int]:
    raw = [sum(attraction(pod, node, other, where, world) for other, where in world.placed()) for node in fitting]
    least, width = min(raw, default=0), max(raw, default=0) - min(raw, default=0)
    return [int(100 * ((value - least) / width)) if width else 0 for value in raw]


def attraction(pod: Obj, node: Obj, other: Obj, where: Obj, world: World) -> int:
    total = 0

    def together(term: Obj) -> bool:
        key = term["topologyKey"]
        return key in labels(node) and labels(where).get(key) == labels(node)[key]

    for sign, side in ((1, "podAffinity"), (-1, "podAntiAffinity")):
        for owner, about in ((pod, other), (other, pod)):
            for each in pod_terms(owner, side, "preferred"):
                term = each["podAffinityTerm"]
                if together(term) and term_covers(term, owner, about, world):
                    total += sign * each["weight"]
    for term in pod_terms(other, "podAffinity", "required"):
        total += together(term) and term_covers(term, other, pod, world)
    return total


def least_allocated(pod: Obj, node: Obj, world: World) -> int:
    parts = []
    for name, missing in (("cpu", 100), ("memory", 200 * 1024 * 1024)):
        capacity = has(node, name)
        if capacity:
            used = sum(asks(each, name, missing) for each in (pod, *world.on(node["metadata"]["name"])))
            parts.append((capacity - used) * 100 // capacity if used <= capacity else 0)
    return sum(parts) // len(parts) if parts else 0


def balanced(pod: Obj, node: Obj, world: World) -> int:
    if not asks(pod, "cpu") and not asks(pod, "memory"):
        return 0

    def balance(pods: list[Obj]) -> int:
        fractions = [
            min(1.0, sum(asks(each, name) for each in pods) / has(node, name))
            for name in ("cpu", "memory")
            if has(node, name)
        ]
        deviation = abs((fractions[0] - fractions[1]) / 2) if len(fractions) == 2 else 0.0
        return int((1 - deviation) * 100)

    on_node = world.on(node["metadata"]["name"])
    return 50 + (50 + balance([*on_node, pod]) - balance(on_node)) // 2


def images(pod: Obj, node: Obj, world: World) -> int:
    mb = 1024 * 1024
    names = [each["image"] for each in (*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"])]
    total = 0
    for name in names:
        for image in node["status"].get("images") or ():
            if name in image["names"]:
                nodes = sum(
                    any(name in each["names"] for each in other["status"].get("images") or ())
                    for other in world.nodes.values()
                )
                total += int(image["sizeBytes"] * (nodes / len(world.nodes)))
    clamped = min(max(total, 23 * mb), 1000 * mb * len(names))
    return 100 * (clamped - 23 * mb) // (1000 * mb * len(names) - 23 * mb)
