"""Reports about a sentinel, route or policy, made from the cluster's objects; pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import orjson

from shoal.krane import labels
from shoal.krane.deployments.instances import fault_of
from shoal.krane.objects.conditions import overdue, replica_failure
from shoal.krane.owner import Owner
from shoal.krane.protocol import wire_version
from shoal.krane.sentinels.render import ENTRY_PORT, SENTINEL_PORT, WEB, WEB_PORT
from shoal.kube.objects import Obj
from shoal.wire.fleet.v1 import cluster_pb as pb

UNKNOWN = "*"  # in place of pods: which of them have taken a route is not known yet
STATS_SCOPE = f"{labels.COMPONENT}=sentinel-stats"
_NODES_MAX = 8  # of those by whose addresses a sentinel is reached
_STATS_BYTES = 60_000  # what is more is left out, but for deployments that a rollout is judged by
_STATS_MAX_BYTES = 250_000  # more is not kept by the control plane
_MESSAGE_MAX = 1024
_ENDED = ("Succeeded", "Failed")


def sentinel_report(deployment: Obj, services: Iterable[Obj], nodes: Iterable[Obj]) -> pb.SentinelReport:
    """What a sentinel's Deployment and Service show."""
    desired = deployment["spec"].get("replicas") or 0
    available = (deployment.get("status") or {}).get("availableReplicas") or 0
    known = list(services)
    return pb.SentinelReport(
        desired_replicas=desired,
        available_replicas=available,
        health=_health(desired, available),
        running_image=running_image(deployment),
        address=next((text for service in known if (text := _address(service, nodes))), ""),
        entries=next((found for service in known if (found := _entries(service, nodes))), []),
    )


def running_image(deployment: Obj) -> str:
    """The image, once every replica runs it and nothing of an older one is left; empty until then."""
    spec, status = deployment["spec"], deployment.get("status") or {}
    desired, updated = spec.get("replicas") or 0, status.get("updatedReplicas") or 0
    rolled_out = (
        (status.get("observedGeneration") or 0) >= deployment["metadata"]["generation"]
        and updated >= desired
        and (status.get("replicas") or 0) <= updated
        and (status.get("availableReplicas") or 0) >= desired
        and not status.get("unavailableReplicas")
    )
    return str(spec["template"]["spec"]["containers"][0].get("image") or "") if rolled_out else ""


def _health(desired: int, available: int) -> pb.SentinelHealth:
    """Whether it serves, not whether it is rolled out."""
    if desired == 0:
        return pb.SentinelHealth.PAUSED
    return pb.SentinelHealth.HEALTHY if available > 0 else pb.SentinelHealth.UNHEALTHY


def _address(service: Obj, nodes: Iterable[Obj]) -> str:
    """Reachable from outside where the cluster offers that, else within it. Clusters without load balancers never give
    a Service an address."""
    outside = [
        *(_with_port(host, _web_port(service)) for host in _balancers(service)),
        *(_at_nodes(service, nodes, WEB) if service["spec"].get("type") == "NodePort" else ()),
    ]
    return next((text for text in (*outside, *(_with_port(host, SENTINEL_PORT) for host in _own(service)))), "")


def _web_port(service: Obj) -> int:
    """Services of an earlier release have no port for users."""
    has_one = any(one.get("name") == WEB for one in service["spec"].get("ports") or ())
    return WEB_PORT if has_one else SENTINEL_PORT


def _at_nodes(service: Obj, nodes: Iterable[Obj], name: str) -> list[str]:
    ports: Iterable[Obj] = service["spec"].get("ports") or ()
    port: Obj = next((one for one in ports if one.get("name") == name), {})
    hosts = sorted(place for node in nodes if (place := node.get("place")))[:_NODES_MAX]
    return [_with_port(host, port["nodePort"]) for host in hosts] if port.get("nodePort") else []


def _entries(service: Obj, nodes: Iterable[Obj]) -> list[str]:
    """Where sentinels of other regions come in: by the load balancer, by nodes, else by the Service's own address, for
    clusters that share a network."""
    kind = service["spec"].get("type")
    if kind == "LoadBalancer":
        return [_with_port(host, ENTRY_PORT) for host in _balancers(service)]
    if all(one.get("name") != "entry" for one in service["spec"].get("ports") or ()):
        return []
    if kind == "NodePort":
        return _at_nodes(service, nodes, "entry")
    return [_with_port(host, ENTRY_PORT) for host in _own(service)]


def _balancers(service: Obj) -> list[str]:
    ingress = ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
    return [found for each in ingress if (found := each.get("ip") or each.get("hostname"))]


def _own(service: Obj) -> list[str]:
    host = service["spec"].get("clusterIP") or ""
    return [host] if host and host != "None" else []


def _with_port(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def node_place(node: Obj) -> Obj:
    """A transform: of a node only the address by which others reach it, while it is ready."""
    about, status = node["metadata"], node.get("status") or {}
    kept = {name: about[name] for name in ("name", "uid", "resourceVersion") if name in about}
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in status.get("conditions") or ())
    addresses = {each["type"]: each["address"] for each in reversed(status.get("addresses") or ())}
    place = addresses.get("ExternalIP") or addresses.get("InternalIP") or ""
    return {"metadata": kept, "place": place if ready else ""}


def verdicts(obj: Obj) -> list[pb.Verdict]:
    """What sentinels make of a route or policy as it is now; those that have not looked at it yet say nothing."""
    entries = (obj.get("status") or {}).get("gateways") or ()
    applied = labels.live_version(obj)
    version = wire_version(applied) if applied is not None else None
    return [
        pb.Verdict(
            sentinel=entry["name"],
            accepted=entry.get("accepted") is True,
            message=str(entry.get("message") or "")[:_MESSAGE_MAX],
            version=version,
        )
        for entry in sorted(entries, key=lambda one: str(one["name"]))
        if entry.get("generation") == obj["metadata"].get("generation")
    ]


def gateway_pod(pod: Obj) -> Obj:
    """A transform: of a sentinel's pod whom it serves, whether it does, and if not why."""
    about, status = pod["metadata"], pod.get("status") or {}
    kept = {name: about[name] for name in ("name", "namespace", "uid", "resourceVersion", "labels") if name in about}
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in status.get("conditions") or ())
    return {
        "metadata": kept, "ready": ready, "ended": status.get("phase") in _ENDED, "fault": fault_of(status),
        "restarts": sum(each.get("restartCount") or 0 for each in status.get("containerStatuses") or ()),
    }  # fmt: skip


def candidate_report(deployment: Obj, pods: Iterable[Obj]) -> pb.SentinelCandidateReport:
    """What there is of the version that is being rolled out. ``pods`` are all of the sentinel's."""
    revision = candidate_of(deployment)
    own = [pod for pod in pods if candidate_of(pod) == revision and not pod["ended"]]
    reason, message = gateway_fault(deployment, own)
    return pb.SentinelCandidateReport(
        revision=revision,
        replicas=len(own),
        ready=sum(pod["ready"] for pod in own),
        restarts=max((pod["restarts"] for pod in own), default=0),
        reason=reason,
        message=message,
    )


def candidate_of(obj: Obj) -> int:
    """The revision that a Deployment or pod was made for while it was rolled out; 0 for those of the stable one."""
    text = str((obj["metadata"].get("labels") or {}).get(labels.CANDIDATE) or "")
    return int(text) if text.isdecimal() else 0


def gateway_fault(deployment: Obj, pods: Iterable[Obj]) -> tuple[str, str]:
    """Reason and message of why not all replicas of a sentinel run, or not in its newest version. Empty when they do,
    or when nothing but time is missing."""
    found = replica_failure(deployment)
    if found[0]:
        return found
    for pod in sorted(pods, key=lambda each: str(each["metadata"]["name"])):
        reason, message = pod["fault"]
        if reason and not pod["ended"] and reason != "NotReady":
            return reason, f"{pod['metadata']['name']}: {message}".removesuffix(": ")
    return overdue(deployment)


def serves(pod: Obj, environment: str) -> bool:
    """Whether a sentinel's pod serves an environment: its own, or all of them."""
    own = pod["metadata"].get("labels") or {}
    return own.get(labels.COMPONENT) == "sentinel" and own.get(labels.ENVIRONMENT) in (None, environment)


def waiting(route: Obj, pods: Iterable[Obj], *, seen: bool, drained: Collection[str] = ()) -> list[str]:
    """The pods of sentinels that have not taken a route as it is now. A pod that never was ready and never judged the
    route leads nowhere yet, and one that was taken out of its Service a while ago (``drained``) leads nowhere any more.
    ``seen`` is False while the route here is older than what was written: then all wait."""
    about = route["metadata"]
    environment = str((about.get("labels") or {}).get(labels.ENVIRONMENT) or "")
    entries = {str(one.get("name")): one for one in (route.get("status") or {}).get("gateways") or ()}
    found: list[str] = []
    for pod in pods:
        name, entry = str(pod["metadata"]["name"]), entries.get(str(pod["metadata"]["name"]))
        if name in drained or pod["ended"] or not serves(pod, environment) or (entry is None and not pod["ready"]):
            continue
        is_taken = entry is not None and entry.get("accepted") is True
        if not seen or not is_taken or (entry or {}).get("generation") != about.get("generation"):
            found.append(name)
    return sorted(found)


def has_judged(pod: Obj, routes: Iterable[Obj]) -> bool:
    """Whether a sentinel's pod has looked at every route that it serves, as it is now."""
    for route in routes:
        about = route["metadata"]
        if not serves(pod, str((about.get("labels") or {}).get(labels.ENVIRONMENT) or "")):
            continue
        entries = (route.get("status") or {}).get("gateways") or ()
        judged = {one.get("generation") for one in entries if one.get("name") == pod["metadata"]["name"]}
        if about.get("generation") not in judged:
            return False
    return True


def stats_key(owner: Owner, config_map: Obj) -> str | None:
    """The sentinel of a ConfigMap of counters. The sentinel writes it, so only its labels name this fleet."""
    found = config_map["metadata"].get("labels") or {}
    ours = {name: text for name, text in labels.owner_labels(owner).items() if name != labels.MANAGED_BY}
    id_ = found.get(labels.SENTINEL)
    return f"sentinel/{id_}" if id_ and all(found.get(name) == text for name, text in ours.items()) else None


def entries_of(config_maps: Iterable[Obj]) -> dict[str, Obj]:
    """The counters of sentinels, by pod; also of pods that have gone, until their entries are removed."""
    found: dict[str, Obj] = {}
    for one in config_maps:
        for pod, text in sorted((one.get("data") or {}).items()):
            entry = _parsed(text)
            if entry is not None:
                found[pod] = entry
    return found


def owned_stats(entries: Mapping[str, Obj], judged: Collection[str] = ()) -> bytes:
    """Counters as JSON by pod. Where not all have room, those of the deployments that a rollout is ``judged`` by, and
    of the busiest others."""
    if not entries:
        return b""
    found, kept = dict(entries), frozenset(judged)
    made = orjson.dumps({"gateways": found})
    while len(made) > _STATS_BYTES:
        before, found = found, {pod: _busiest(entry, kept) for pod, entry in found.items()}
        made = orjson.dumps({"gateways": found})
        if found == before:
            break
    return made if len(made) <= _STATS_MAX_BYTES else b""


def _parsed(text: str) -> Obj | None:
    try:
        entry = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return entry if isinstance(entry, dict) and isinstance(entry.get("deployments"), dict) else None


def _busiest(entry: Obj, kept: frozenset[str]) -> Obj:
    """Without half of the deployments that may be left out."""
    known: dict[str, Obj] = entry["deployments"]
    others = sorted(known.keys() - kept, key=lambda name: (-sum(known[name].get("codes") or ()), name))
    left = {*others[: len(others) // 2], *kept}
    return {**entry, "deployments": {name: known[name] for name in known if name in left}}
