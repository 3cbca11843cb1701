"""The kinds that can be queried, their fields, and the expressions that read them.

The labels of the fleet's agent are constants here, as are those of Kubernetes and Istio.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from shoal.navigator.answers.query.model import FieldType, QueryField, QueryKind
from shoal.navigator.model import KINDS

APP_LABELS = ("app.kubernetes.io/name", "app")
"""Labels that may name the app of an object, in order of precedence."""
DEPLOYMENT_LABEL = "shoal.dev/deployment"
APP_LABEL = "shoal.dev/app"  # its id
WORKSPACE_LABEL = "shoal.dev/workspace"  # its id
TEMPLATE_HASH_LABEL = "pod-template-hash"
CLUSTERS, APPS, ROUTES = "clusters", "apps", "routes"
"""Kinds of queries that are no kind of object."""
ROUTE_KINDS = ("sentinelroutes", "ingresses", "httproutes")

_TEXT, _TEXTS, _NUMBER, _NUMBERS = FieldType.TEXT, FieldType.TEXTS, FieldType.NUMBER, FieldType.NUMBERS
_BOOL, _AGE, _TIME, _MAP = FieldType.BOOL, FieldType.AGE, FieldType.TIME, FieldType.MAP


def _text(
    name: str, code: str, help_: str, *, repeats: bool = True, needs: str = "", nullable: bool = False
) -> QueryField:
    return QueryField(
        name=name, type=_TEXT, code=code, help=help_, repeats=repeats, needs=_words(needs), nullable=nullable
    )  # fmt: skip


def _texts(name: str, code: str, help_: str, item: str = "k", *, repeats: bool = True, needs: str = "") -> QueryField:
    return QueryField(name=name, type=_TEXTS, code=code, help=help_, item=item, repeats=repeats, needs=_words(needs))


def _number(name: str, code: str, help_: str, *, needs: str = "", nullable: bool = False) -> QueryField:
    return QueryField(name=name, type=_NUMBER, code=code, help=help_, needs=_words(needs), nullable=nullable)


def _flag(name: str, code: str, help_: str, *, needs: str = "") -> QueryField:
    return QueryField(name=name, type=_BOOL, code=code, help=help_, needs=_words(needs))


def _of_cluster(name: str, help_: str) -> QueryField:
    return QueryField(
        name=name, type=_TEXT, code=f"{name}_of[row.cluster]", help=help_, needs=(f"{name}_of",), repeats=True,
        of_cluster=True,
    )  # fmt: skip


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_OF_CLUSTER = (
    QueryField(
        name="cluster", type=_MAP, code="metadata_of[row.cluster]", alone="row.cluster", needs=("metadata_of",),
        of_cluster=True, repeats=True,
        help="name of its cluster; cluster.KEY is metadata from the edge (cluster.version, cluster.environment)",
    ),
    _of_cluster("region", "region of its cluster"),
    _of_cluster("freshness", "state of its cluster's data: initializing, healthy, stale, disconnected"),
)  # fmt: skip

_COMMON = (
    *_OF_CLUSTER,
    _text("namespace", "row.namespace", "empty for cluster-scoped objects"),
    _text("name", "row.name", "name of the object", repeats=False),
    QueryField(
        name="labels",
        type=_MAP,
        code="s.labels",
        help="labels.KEY, or labels['a/b']; alone: whether the label exists",
        repeats=True,
    ),
    QueryField(name="age", type=_AGE, code="s.created_at", stamp=True, help="time since it was created: age > 5m"),
    QueryField(name="created", type=_TIME, code="s.created_at", stamp=True, help="created > '2026-01-31T12:00:00Z'"),
    QueryField(name="changed", type=_AGE, code="row.changed_at_s", help="time since its last change: changed < 1h"),
    _text("app", "app_of(s.labels)", "its app, from the fleet or from its labels", needs="app_of", nullable=True),
    _text(
        "deployment", f"s.labels.get({DEPLOYMENT_LABEL!r})", "id of the fleet's deployment", nullable=True, repeats=True
    ),
    _number(
        "revision",
        f"revision_of.get(s.labels.get({DEPLOYMENT_LABEL!r}))",
        "of its app, by the fleet",
        needs="revision_of",
        nullable=True,
    ),
    _text(
        "project",
        f"project_of.get(s.labels.get({DEPLOYMENT_LABEL!r}))",
        "of its app, by the fleet",
        needs="project_of",
        nullable=True,
    ),
    _text(
        "environment",
        f"environment_of.get(s.labels.get({DEPLOYMENT_LABEL!r}))",
        "of its app, by the fleet; the cluster's own is cluster.environment",
        needs="environment_of",
        nullable=True,
    ),
)

_SELECTOR = QueryField(name="selector", type=_MAP, code="s.selector", help="selector.KEY")

_REPLICAS = (
    _flag("ready", "s.ready >= s.replicas", "whether all wanted replicas are ready"),
    _number("replicas", "s.replicas", "number of wanted replicas"),
    _number("ready_replicas", "s.ready", "number of ready replicas"),
    _number("updated_replicas", "s.updated", "number of replicas of the newest template"),
    _texts("image", "s.images", "images of its containers"),
)

_ROUTE = (
    _text("kind", "kind_of(row)", "SentinelRoute, Ingress, HTTPRoute", needs="kind_of"),
    _texts("host", "s.hosts", "hosts of the requests; * for all"),
    _texts("path", "s.paths", "paths of the requests"),
    _texts("backend", "s.backends", "services that take the requests: shop/web"),
    _texts("gateway", "s.gateways", "gateways of an HTTPRoute, or the class of an Ingress"),
    _flag("tls", "s.tls", "whether it has a certificate"),
)

_OWN: Mapping[str, tuple[QueryField, ...]] = {
    "pods": (
        _text("status", "status_of(s)", "status as kubectl shows it: Running, CrashLoopBackOff, Terminating",
              needs="status_of"),
        _text("phase", "s.phase", "Pending, Running, Succeeded, Failed, Unknown"),
        _text("reason", "s.reason", "reason of the whole pod: Evicted, Unschedulable"),
        _flag("ready", "s.ready", "whether it takes traffic"),
        _flag("deleting", "s.deleting", "whether it is being deleted"),
        _text("node", "s.node", "node it runs on"),
        _text("zone", "zone_of.get((row.cluster, s.node))", "zone of its node", needs="zone_of", nullable=True),
        _text("ip", "s.ip", "its address", repeats=False),
        _text("owner", "s.owner", "ReplicaSet/web-6f7"),
        _text("workload", "workload_of(s)", "Deployment/web, StatefulSet/db", needs="workload_of"),
        _text("service_account", "s.service_account", "service account it runs as"),
        _texts("image", "s.containers", "images of its containers", "k.image"),
        _texts("container", "s.containers", "names of its containers", "k.name"),
        _number("restarts", "sum([k.restarts for k in s.containers])", "restarts of all its containers"),
        _text("proxy", "s.proxy", "none, sidecar, router, ztunnel"),
        _texts("service", "services_of(row)", "services that have it as an endpoint", needs="services_of"),
        _flag("exposed", "services_of(row)", "whether any service has it as an endpoint", needs="services_of"),
    ),
    "services": (
        _text("type", "s.type", "ClusterIP, NodePort, LoadBalancer, ExternalName"),
        _text("cluster_ip", "s.cluster_ip", "None for a headless service", repeats=False),
        _texts("external_ip", "s.external_ips", "addresses outside the cluster", repeats=False),
        _text("external_name", "s.external_name", "host name of an ExternalName"),
        _SELECTOR,
        QueryField(name="port", type=_NUMBERS, code="s.ports", item="k.port", help="the ports it listens on"),
        _number("endpoints", "endpoints_of(row)[0]", "endpoints, ready or not", needs="endpoints_of"),
        _number("ready_endpoints", "endpoints_of(row)[1]", "endpoints that take traffic", needs="endpoints_of"),
    ),
    "endpointslices": (
        _text("service", "s.service", "service of the endpoints"),
        _texts("address", "s.endpoints", "addresses of its endpoints", "k.address", repeats=False),
        _number("endpoints", "len(s.endpoints)", "endpoints, ready or not"),
        _number("ready_endpoints", "sum([k.ready for k in s.endpoints])", "endpoints that take traffic"),
    ),
    "nodes": (
        _flag("ready", "s.ready", "whether it takes pods"),
        _flag("unschedulable", "s.unschedulable", "whether it is cordoned"),
        QueryField(name="version", type=FieldType.VERSION, code="s.version", help="of the kubelet: version < v1.30",
              repeats=True),
        _text("address", "s.address", "address inside the cluster", repeats=False),
        _text("zone", "s.zone", "zone of the provider"),
        _number("cpu", "s.cpu", "capacity in cores: cpu >= 8"),
        _number("memory", "s.memory", "capacity in GiB: memory < 16"),
        _number("pods", "s.pods", "capacity in pods"),
        _number("allocatable_cpu", "s.allocatable_cpu", "cores for pods"),
        _number("allocatable_memory", "s.allocatable_memory", "GiB for pods"),
        _number("allocatable_pods", "s.allocatable_pods", "number of pods it takes"),
    ),
    "deployments": _REPLICAS,
    APPS: (*_REPLICAS, _number("revisions", "s.revisions", "revisions with replicas; 2 while a new one takes over")),
    **dict.fromkeys((ROUTES, *ROUTE_KINDS), _ROUTE),
    "sentinelpolicies": (
        _text("type", "s.type", "keyAuth, jwt, rateLimit, firewall, requestSize, cors"),
        _number("precedence", "s.order", "smaller numbers apply first"),
        _flag("enabled", "s.enabled", "whether it applies"),
        _texts("route", "s.routes", "routes that it applies to; none: all of its environment"),
    ),
    "events": (
        _text("type", "s.type", "Normal, Warning"),
        _text("reason", "s.reason", "BackOff, FailedScheduling, Unhealthy"),
        _text("message", "s.message", "the first 256 characters of its message", repeats=False),
        _text("object", "s.object", "what it is about: Pod/web-6f7-x", repeats=False),
        _text("object_kind", "s.object.partition('/')[0]", "kind of that object"),
        _text("object_name", "s.object.partition('/')[2]", "name of that object", repeats=False),
        _number("times", "s.count", "how often it was seen"),
        QueryField(name="seen", type=_AGE, code="s.seen_at", stamp=True, help="time since it was last seen: seen < 5m"),
        _text("source", "s.source", "component that reported it"),
    ),
    "horizontalpodautoscalers": (
        _text("target", "s.target", "what it scales: Deployment/web"),
        _number("min", "s.least", "least number of replicas"),
        _number("max", "s.most", "largest number of replicas"),
        _number("replicas", "s.replicas", "number of replicas now"),
        _number("desired", "s.wanted", "number of replicas that it wants"),
        _flag("at_max", "s.most and s.wanted >= s.most", "whether it wants all it may have"),
    ),
    "shardinstances": (
        _text("config", "s.config", "its ShardConfig"),
        _text("phase", "s.phase", "Pending, Running, Draining, Failed, Terminated"),
        _text("state", "s.state", "state of its Lease: Ready, Expired, Dead"),
        _text("reason", "s.reason", "why it is in that phase"),
        _number("slots", "s.slots", "slots that it owns"),
        _number("objects", "s.objects", "objects that it owns"),
    ),
    "shardconfigs": (
        _text("strategy", "s.strategy", "how objects get their slots and slots their shards"),
        _number("min", "s.least", "least number of shards"),
        _number("max", "s.most", "largest number of shards"),
        _number("shards", "s.shards", "number of shards now"),
        _number("healthy", "s.healthy", "number of healthy shards"),
        _number("desired", "s.wanted", "number of shards that are wanted"),
        _number("moving", "s.moving", "slots on their way to another shard"),
        _number("objects", "s.objects", "objects that have a slot"),
    ),
    "shardslots": (
        _text("config", "s.config", "its ShardConfig"),
        _number("slots", "s.slots", "slots in this part of the table"),
        _number("moving", "s.moving", "slots on their way to another shard"),
    ),
}  # fmt: skip

_ISTIO = (
    _texts("host", "s.hosts", "hosts that it applies to"),
    _texts("gateway", "s.gateways", "gateways that it is bound to"),
    _SELECTOR,
)

_CLUSTERS = (
    _text("name", "row.name", "name of the cluster"),
    *_OF_CLUSTER,
    QueryField(
        name="environment", type=_TEXT, code="s.metadata.get('environment', '')", of_cluster=True, repeats=True,
        help="environment of the cluster, from its edge",
    ),
    _text("edge", "s.edge", "edge that reports it, or did last"),
    _number("epoch", "s.epoch", "epoch of the edge's claim"),
    _flag("connected", "bool(s.connected_at_s)", "whether an edge is connected"),
    QueryField(name="heard", type=_AGE, code="s.heard_at_s", help="time since the last message: heard > 1m"),
    _texts("failing", "s.kinds", "kinds that the edge cannot read",
           "k.kind if k.state in ('forbidden', 'failing') else ''"),
    _texts("missing", "s.kinds", "kinds that the cluster does not have", "k.kind if k.state == 'missing' else ''"),
)  # fmt: skip

_COLUMNS: Mapping[str, str] = {
    "pods": "cluster namespace name status ready restarts node image age",
    "services": "cluster namespace name type cluster_ip port endpoints ready_endpoints age",
    "endpointslices": "cluster namespace name service endpoints ready_endpoints age",
    "nodes": "cluster name ready version zone address cpu memory age",
    "namespaces": "cluster name age",
    "deployments": "cluster namespace name replicas ready_replicas updated_replicas image age",
    "horizontalpodautoscalers": "cluster namespace name target min max replicas desired age",
    "shardconfigs": "cluster namespace name strategy min max shards healthy desired moving objects age",
    "shardinstances": "cluster namespace name config phase state slots objects reason age",
    "shardslots": "cluster namespace name config slots moving age",
    "events": "cluster namespace seen type reason object times message",
    APPS: "cluster project environment name revision replicas ready_replicas image age",
    ROUTES: "cluster namespace kind name host path backend age",
    **dict.fromkeys(ROUTE_KINDS, "cluster namespace name host path backend age"),
    "sentinelpolicies": "cluster namespace name type precedence enabled route age",
    "clusters": "name region environment freshness edge heard failing",
}
_WORDS: Mapping[str, str] = {
    "pods": "pod po", "services": "service svc", "endpointslices": "endpointslice slice slices", "nodes": "node no",
    "namespaces": "namespace ns", "deployments": "deployment deploy", "shardinstances": "shardinstance shi",
    "shardconfigs": "shardconfig shc", "shardslots": "shardslot",
    "horizontalpodautoscalers": "horizontalpodautoscaler hpa hpas", "virtualservices": "virtualservice vs",
    "destinationrules": "destinationrule dr", "gateways": "gateway gw", "serviceentries": "serviceentry se",
    "sidecars": "sidecar", "envoyfilters": "envoyfilter", "peerauthentications": "peerauthentication pa",
    "requestauthentications": "requestauthentication ra", "authorizationpolicies": "authorizationpolicy ap",
    "wasmplugins": "wasmplugin", "istiocontrolplaneconfigs": "istiocontrolplaneconfig", "clusters": "cluster",
    "events": "event ev", APPS: "app", ROUTES: "route", "ingresses": "ingress ing", "httproutes": "httproute",
    "sentinelroutes": "sentinelroute", "sentinelpolicies": "sentinelpolicy policies policy",
}  # fmt: skip


def _kind(name: str, fields: Iterable[QueryField]) -> QueryKind:
    columns = _COLUMNS.get(name, "cluster namespace name host gateway age")
    by_name = {field.name: field for field in fields}
    shown = tuple(column for column in columns.split() if column in by_name)
    reported = ROUTE_KINDS if name == ROUTES else (name,) if name in KINDS else ()
    return QueryKind(
        name=name, reported=reported, fields=by_name, columns=shown, words=_words(_WORDS.get(name, ""))
    )  # fmt: skip


def _fields_of(name: str) -> tuple[QueryField, ...]:
    if name in _OWN:
        return (*_COMMON, *_OWN[name])
    return (*_COMMON, *_ISTIO) if KINDS[name].istio and name != "istiocontrolplaneconfigs" else _COMMON


QUERY_KINDS: Mapping[str, QueryKind] = {
    **{name: _kind(name, _fields_of(name)) for name in (*KINDS, APPS, ROUTES)},
    CLUSTERS: _kind(CLUSTERS, _CLUSTERS),
}
BY_WORD: Mapping[str, QueryKind] = {
    word: kind for kind in QUERY_KINDS.values() for word in (kind.name, *kind.words)
}  # fmt: skip
