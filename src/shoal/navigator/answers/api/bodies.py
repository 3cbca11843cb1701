"""Types of the API's request and response bodies."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

Json = dict[str, Any]
Severity = Literal["error", "warning"]


class Page(Struct, kw_only=True):
    """``at`` is the moment of the answer; ``notFresh`` are clusters whose state may be outdated."""

    total: int
    position: str = field(name="continue", default="")
    at: str | None
    not_fresh: list[Json] = field(name="notFresh")


class KindStatus(Struct):
    kind: str
    state: str
    error: str
    rows: Annotated[int | None, Meta(description="null when the token may read only a part of the cluster")]
    since: str | None


class Cluster(Struct, rename="camel"):
    name: str
    region: str
    environment: str
    metadata: dict[str, str]
    freshness: Literal["initializing", "healthy", "stale", "disconnected"]
    edge: str
    epoch: int
    connected_at: str | None
    heard_at: str | None
    heard_seconds_ago: float | None
    kinds: list[KindStatus]


class Clusters(Struct):
    items: list[Cluster]
    at: str | None


class QueryKind(Struct):
    name: str
    words: list[str]
    columns: list[str]
    fields: list[Json]


class QueryKinds(Struct):
    items: list[QueryKind]


class Column(Struct):
    name: str
    type: str


class ForbiddenKind(Struct):
    """A kind that the answer needed and that the edge of a cluster may not read."""

    cluster: str
    kind: str
    error: str


class QueryResult(Page, kw_only=True):
    """``forbidden`` kinds were not, or not all, read: that nothing was found of them says nothing."""

    kind: str
    columns: list[Column]
    items: list[Json]
    plan: str
    forbidden: list[ForbiddenKind]


class Service(Struct, rename="camel"):
    namespace: str
    name: str
    types: list[str]
    ports: list[int]
    endpoints: int
    ready_endpoints: int
    clusters: list[Json]


class Services(Page, kw_only=True):
    items: list[Service]


class Workload(Struct):
    namespace: str
    kind: str
    name: str
    app: str | None
    pods: int
    ready: int
    images: list[str]
    proxies: list[str]
    revisions: list[int]
    clusters: list[Json]


class Workloads(Page, kw_only=True):
    items: list[Workload]


class Items(Struct):
    items: list[Json]


class Effective(Struct):
    """An Istio resource that acts on a pod."""

    kind: str
    namespace: str
    name: str
    reason: str


class Acting(Struct, rename="camel"):
    cluster: str
    namespace: str
    pod: str
    proxy: str
    root_namespace: str
    items: list[Effective]


class Mistake(Struct):
    cluster: str
    code: str
    severity: Severity
    kind: str
    namespace: str
    name: str
    path: str
    message: str
    fix: str
    related: list[str]


class Mistakes(Struct):
    items: list[Mistake]
    total: int


class ServicePair(Struct, rename="camel"):
    """Calls from one service to another."""

    source: Json
    destination: Json
    requests_per_second: float
    errors_per_second: float
    success_rate: Annotated[float, Meta(ge=0, le=1)] | None
    p99_ms: float | None
    between: list[Json]


class ClusterFailure(Struct):
    cluster: str
    code: str
    message: str


class Shards(Struct, kw_only=True):
    """What shares out the objects of controllers: ``configs``, their shards in ``instances``, and in ``slots`` who owns
    each slot, as ranges of neighbours with the same owner, with the slots that move."""

    configs: list[Json]
    instances: list[Json]
    slots: list[Json]
    at: str | None
    not_fresh: list[Json] = field(name="notFresh")


class Graph(Struct):
    connections: list[ServicePair]
    clusters: list[str]
    failed: list[ClusterFailure]
    warnings: list[Json]


class ClusterEventsBody(Struct):
    items: list[Json]
    failed: list[ClusterFailure]


class Hit(Struct):
    kind: str
    cluster: str
    namespace: str
    name: str
    score: float


class Hits(Struct):
    items: list[Hit]
    total: int


class ObjectRef(Struct):
    kind: str
    cluster: str
    namespace: str
    name: str


class ChangedField(Struct):
    path: str
    before: Any
    after: Any


class ChangedObject(ObjectRef, kw_only=True):
    fields: list[ChangedField]


class Diff(Struct, kw_only=True):
    """``historyBegins`` is set when ``from`` is before the first data, so that everything counts as added."""

    history_begins: str | None = field(name="historyBegins", default=None)
    added: list[ObjectRef]
    removed: list[ObjectRef]
    changed: list[ChangedObject]
    totals: dict[str, int]
    complete: bool


class CheckWritten(Struct, forbid_unknown_fields=True):
    """A query that must find nothing, or something."""

    query: str
    expect: Literal["empty", "some"] = "empty"
    description: str = ""
    name: Annotated[str, Meta(description="As in the path")] = ""


class SavedCheck(Struct):
    name: str
    query: str
    expect: Literal["empty", "some"]
    description: str


class SavedChecks(Struct):
    items: list[SavedCheck]


class CheckResult(SavedCheck, kw_only=True):
    """``examples`` are objects that the check must not find. ``ok`` is null when the result is unknown, because a kind
    may not be read; ``error`` is why, or why the query cannot run any more."""

    ok: bool | None
    total: int | None
    examples: list[Json]
    error: str


class CheckResults(Struct):
    items: list[CheckResult]
    ok: bool


class Edge(Struct, frozen=True, kw_only=True):
    cluster: str
    edge: str
    connected: bool
    options: Annotated[dict[str, str], Meta(description="Stored for this cluster")]
    taken: Annotated[bool, Meta(description="The edge uses them, and those of all edges")]
    error: Annotated[str, Meta(description="Why the edge has refused its options; empty: it has not")]
    settings: Annotated[dict[str, str], Meta(description="The values that the edge uses now, if it is connected")]


class Edges(Struct, frozen=True, kw_only=True):
    options: Annotated[dict[str, str], Meta(description="Options of all edges; those of one cluster win over them")]
    items: list[Edge]


class EdgeToken(Struct, frozen=True, kw_only=True):
    cluster: str
    token: Annotated[str, Meta(description="Shown only once: the manager stores its digest")]


class OptionsWritten(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    set: Annotated[dict[str, str], Meta(description="Options to set: `sync.interval_s`: `10`")] = {}
    unset: Annotated[list[str], Meta(description="Names of options to remove")] = []
