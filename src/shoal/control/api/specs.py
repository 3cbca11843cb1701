"""The spec of every kind as a type, for the description of the API. ``shoal.control.domain.kinds`` reads and checks."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar, Union

from msgspec import UNSET, Meta, Struct, UnsetType, field

from shoal.control.api.parameters import Name
from shoal.control.domain.kinds.app import MAX_REPLICAS, MAX_RESTARTS, MAX_USER, SECCOMP, SIGNALS
from shoal.control.domain.kinds.places import SERVICES
from shoal.control.domain.kinds.rollout import ON_FAILURE
from shoal.control.domain.kinds.rollout_checks import CHECKS, FORMATS, MAX_CHECKS, MOST_REQUESTS, OCCASIONS
from shoal.control.domain.kinds.rollout_steps import DAYS, MAX_COUNT, MAX_STEPS, MAX_WAVES
from shoal.control.domain.kinds.scopes import GATEWAY, MAX_GATEWAYS
from shoal.control.rollout.strategy import STRATEGIES

T = TypeVar("T")
Maybe = Union[T, UnsetType]  # noqa: UP007  # a generic alias

Text = Maybe[str]
Texts = Maybe[list[str]]
Texted = Maybe[dict[str, str]]
Flag = Maybe[bool]
MaybeName = Maybe[Name]
Names = Maybe[list[Name]]
Port = Maybe[Annotated[int, Meta(ge=1, le=65535)]]
Percentage = Maybe[Annotated[int, Meta(ge=1, le=1000)]]
Replicas = Maybe[Annotated[int, Meta(ge=1, le=MAX_REPLICAS)]]
Gateways = Maybe[Annotated[int, Meta(ge=1, le=MAX_GATEWAYS)]]
Hour = Maybe[Annotated[int, Meta(ge=1, le=3600)]]
HourOrNone = Maybe[Annotated[int, Meta(ge=0, le=3600)]]
Day = Maybe[Annotated[int, Meta(ge=1, le=86400)]]
Million = Maybe[Annotated[int, Meta(ge=0, le=1_000_000)]]
Quantity = Maybe[Annotated[str | float, Meta(description="A quantity, such as 500m or 128Mi")]]
Desired = Maybe[Literal["running", "stopped"]]
DURATION = Meta(description="A duration, such as 30s, 2m or 1h30m; at most 30d")
Duration = Maybe[Annotated[str, DURATION]]
Percent = Maybe[Annotated[int, Meta(ge=0, le=100)]]
Count = Maybe[Annotated[int, Meta(ge=0, le=MAX_COUNT)]]


class Part(Struct, forbid_unknown_fields=True):
    """An object without other fields."""


class Nothing(Part):
    pass


class Sizes(Part):
    cpu: Quantity = UNSET
    memory: Quantity = UNSET


class Resources(Sizes):
    ephemeralStorage: Quantity = UNSET


class RegionGateways(Part):
    service: Maybe[Literal[SERVICES]] = UNSET  # type: ignore[valid-type]
    entries: Texts = UNSET


class RegionSpec(Part):
    platform: Text = UNSET
    canSchedule: Flag = UNSET
    distances: Maybe[dict[str, Annotated[int, Meta(ge=0, le=1_000_000)]]] = UNSET
    gateways: Maybe[RegionGateways] = UNSET


class ClusterTaint(Part):
    key: str
    value: Text = UNSET
    effect: Maybe[Literal["NoSchedule", "PreferNoSchedule"]] = UNSET


class ClusterCapacity(Sizes):
    deployments: Maybe[Annotated[int, Meta(ge=0, le=10**9)]] = UNSET


class ClusterSpec(Part):
    region: Name
    shards: Names = UNSET
    taints: Maybe[list[ClusterTaint]] = UNSET
    capacity: Maybe[ClusterCapacity] = UNSET
    canSchedule: Flag = UNSET
    agentImage: Text = UNSET


class ProjectSpec(Part):
    description: Text = UNSET


class AnalysisStep(Part):
    for_: Annotated[str, DURATION] = field(name="for")
    checks: Names = UNSET


class PauseStep(Part):
    """Without a time it waits for approval."""

    for_: Duration = field(name="for", default=UNSET)


class TesterStep(Part):
    name: Text = UNSET
    value: Text = UNSET


class RolloutStep(Part):
    """Exactly one of its fields."""

    weight: Percent = UNSET
    replicas: Maybe[Annotated[int, Meta(ge=1, le=MAX_COUNT)] | str] = UNSET
    pause: Maybe[PauseStep | str] = UNSET
    analysis: Maybe[AnalysisStep | str] = UNSET
    header: Maybe[TesterStep] = UNSET
    cookie: Maybe[TesterStep] = UNSET
    mirror: Percent = UNSET


class RolloutWave(Part):
    """Either regions or a percentage of the app's."""

    name: MaybeName = UNSET
    regions: Names = UNSET
    percent: Maybe[Annotated[int, Meta(ge=1, le=100)]] = UNSET
    soak: Duration = UNSET
    concurrency: Count = UNSET
    maxFailures: Count = UNSET


class RolloutWindow(Part):
    days: Annotated[list[Literal[DAYS]], Meta(min_length=1)]  # type: ignore[valid-type]
    from_: Annotated[Text, Meta(description="A time of the day in UTC; 00:00 if left out")] = field(
        name="from", default=UNSET
    )
    until: Annotated[Text, Meta(description="24:00 if left out")] = UNSET


class AbortRules(Part):
    errors: Maybe[Annotated[str, Meta(description="A percentage, such as 1%")]] = UNSET
    p50: Duration = UNSET
    p75: Duration = UNSET
    p90: Duration = UNSET
    p95: Duration = UNSET
    p99: Duration = UNSET
    p99_9: Duration = field(name="p99.9", default=UNSET)
    minRequests: Maybe[
        Annotated[
            int,
            Meta(
                ge=1,
                le=MOST_REQUESTS,
                description="Requests to the new revision that an analysis waits for; at most 600 if left "
                "out. With fewer it ends sooner and misses more",
            ),
        ]
    ] = UNSET


class CheckResources(Part):
    """What a job may use."""

    cpu: Quantity = UNSET
    memory: Quantity = UNSET


class RolloutCheck(Part):
    name: Name
    kind: Literal[tuple(CHECKS)]  # type: ignore[valid-type]
    url: Text = UNSET
    query: Annotated[Text, Meta(description="{{app}}, {{revision}} and others stand for what is rolled out")] = UNSET
    condition: Annotated[Text, Meta(description="Of each value of the result, such as < 0.01")] = UNSET
    secret: Annotated[MaybeName, Meta(description="A Credential of the environment, sent as headers")] = UNSET
    ca: Annotated[Text, Meta(description="Certificates that it trusts, PEM; else those of the system")] = UNSET
    image: Annotated[Text, Meta(description="Of a job")] = UNSET
    command: Maybe[list[str]] = UNSET
    args: Maybe[list[str]] = UNSET
    region: Annotated[MaybeName, Meta(description="Where a job runs; the first of the wave if left out")] = UNSET
    resources: Maybe[CheckResources] = UNSET
    timeout: Annotated[Duration, Meta(description="How long a job may take; 5m if left out")] = UNSET
    interval: Duration = UNSET
    failures: Maybe[Annotated[int, Meta(ge=1, le=100)]] = UNSET


class RolloutNotification(Part):
    url: str
    format: Maybe[Literal[FORMATS]] = UNSET  # type: ignore[valid-type]
    secret: Annotated[MaybeName, Meta(description="A Credential of the environment, sent as headers")] = UNSET
    on: Maybe[list[Literal[OCCASIONS]]] = UNSET  # type: ignore[valid-type]


class RolloutFields(Part):
    strategy: Maybe[Literal[STRATEGIES]] = UNSET  # type: ignore[valid-type]
    steps: Maybe[Annotated[list[RolloutStep | int], Meta(max_length=MAX_STEPS)]] = UNSET
    every: Duration = UNSET
    waves: Maybe[Annotated[list[RolloutWave], Meta(max_length=MAX_WAVES)]] = UNSET
    regions: Maybe[list[Name | Annotated[list[Name], Meta(min_length=1)]]] = UNSET
    windows: Maybe[list[RolloutWindow]] = UNSET
    abort: Maybe[AbortRules] = UNSET
    judge: Flag = UNSET
    interval: Duration = UNSET
    keep: Duration = UNSET
    holdLimit: Duration = UNSET
    deadline: Duration = UNSET
    onFailure: Maybe[Literal[ON_FAILURE]] = UNSET  # type: ignore[valid-type]
    previewHost: Text = UNSET
    checks: Maybe[Annotated[list[RolloutCheck], Meta(max_length=MAX_CHECKS)]] = UNSET
    notify: Maybe[Annotated[list[RolloutNotification], Meta(max_length=MAX_CHECKS)]] = UNSET


class EnvironmentGateways(Part):
    image: Text = UNSET
    replicas: Gateways = UNSET
    resources: Maybe[Sizes] = UNSET
    shared: Flag = UNSET
    rollout: Annotated[Maybe[RolloutFields], Meta(description="Of its gateways")] = UNSET


class EnvironmentSpec(Part):
    description: Text = UNSET
    sentinel: Maybe[EnvironmentGateways] = UNSET
    rollout: Annotated[Maybe[RolloutFields], Meta(description="The defaults of its apps")] = UNSET
    imagePullSecrets: Names = UNSET
    gateway: Maybe[bool | Literal[GATEWAY]] = UNSET  # type: ignore[valid-type]
    namespace: Text = UNSET


class SecretSpec(Part):
    values: Annotated[
        Texted, Meta(description="Sealed at once; never shown again", extra_json_schema={"writeOnly": True})
    ] = UNSET  # fmt: skip
    variables: Annotated[Texts, Meta(description="The names of the values")] = UNSET


class CredentialSpec(Part):
    values: Annotated[
        Texted,
        Meta(
            description="Headers of checks and notifications, such as Authorization. Sealed at once; never shown again",
            extra_json_schema={"writeOnly": True},
        ),
    ] = UNSET
    headers: Annotated[Texts, Meta(description="The names of the headers")] = UNSET


class HttpProbe(Part):
    path: Text = UNSET
    port: Port = UNSET


class PortProbe(Part):
    port: Port = UNSET


class ExecProbe(Part):
    command: list[str]


class Healthcheck(Part):
    http: Maybe[HttpProbe] = UNSET
    tcp: Maybe[PortProbe] = UNSET
    grpc: Maybe[PortProbe] = UNSET
    exec: Maybe[ExecProbe] = UNSET
    initialDelay: HourOrNone = UNSET
    period: Hour = UNSET
    timeout: Hour = UNSET
    failures: Maybe[Annotated[int, Meta(ge=1, le=100)]] = UNSET


class Autoscaling(Part):
    min: Replicas = UNSET
    max: Replicas = UNSET
    cpu: Percentage = UNSET
    memory: Percentage = UNSET


class Toleration(Part):
    key: Text = UNSET
    operator: Maybe[Literal["Equal", "Exists"]] = UNSET
    value: Text = UNSET
    effect: Maybe[Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]] = UNSET


class RegionOverrides(Part):
    env: Texted = UNSET
    resources: Maybe[Resources] = UNSET
    image: Text = UNSET


class AdoptedDeployment(Part):
    cluster: Name
    namespace: Name
    deployment: str
    uid: str
    selector: dict[str, str]
    autoscaler: Text = UNSET


class RegionOfApp(Part):
    region: Name
    replicas: Maybe[Annotated[int, Meta(ge=0, le=MAX_REPLICAS)]] = UNSET
    autoscaling: Maybe[Autoscaling] = UNSET
    overrides: Maybe[RegionOverrides] = UNSET
    surge: Maybe[int | str] = UNSET
    adopt: Maybe[AdoptedDeployment] = UNSET


class GitSource(Part):
    sha: Text = UNSET
    branch: Text = UNSET
    repository: Text = UNSET
    message: Text = UNSET


class AppPlacement(Part):
    labels: Texted = UNSET
    cel: Text = UNSET
    tolerations: Maybe[list[Toleration]] = UNSET
    spread: Maybe[Literal["together", "apart"]] = UNSET


class AppReadiness(Part):
    regions: Maybe[int | str] = UNSET
    deadline: Day = UNSET


class AppSecurity(Part):
    runAsNonRoot: Flag = UNSET
    runAsUser: Maybe[Annotated[int, Meta(ge=1, le=MAX_USER)]] = UNSET
    capabilities: Texts = UNSET
    privilegeEscalation: Flag = UNSET
    seccomp: Maybe[Literal[SECCOMP]] = UNSET  # type: ignore[valid-type]


class AppSpec(Part):
    image: str
    topology: list[RegionOfApp]
    command: Texts = UNSET
    args: Texts = UNSET
    env: Texted = UNSET
    secrets: Annotated[
        Names, Meta(description="Secrets of the environment whose values become variables")
    ] = UNSET  # fmt: skip
    resources: Maybe[Resources] = UNSET
    port: Port = UNSET
    protocol: Maybe[Literal["http1", "h2c"]] = UNSET
    healthcheck: Maybe[Healthcheck] = UNSET
    autoscaling: Maybe[Autoscaling] = UNSET
    shutdownSignal: Maybe[Literal[SIGNALS]] = UNSET  # type: ignore[valid-type]
    terminationSeconds: HourOrNone = UNSET
    git: Maybe[GitSource] = UNSET
    drift: Maybe[Literal["correct", "report"]] = UNSET
    desired: Desired = UNSET
    placement: Maybe[AppPlacement] = UNSET
    nodeSelector: Texted = UNSET
    security: Maybe[AppSecurity] = UNSET
    imagePullSecrets: Names = UNSET
    podLabels: Texted = UNSET
    readiness: Maybe[AppReadiness] = UNSET
    rollout: Maybe[RolloutFields] = UNSET
    restarts: Maybe[Annotated[int, Meta(ge=0, le=MAX_RESTARTS)]] = UNSET


class PathMatch(Part):
    exact: Text = UNSET
    prefix: Text = UNSET
    regex: Text = UNSET
    ignoreCase: Flag = UNSET


class NamedMatch(PathMatch, kw_only=True):
    name: str
    present: Flag = UNSET


class RequestMatch(Part):
    path: Maybe[PathMatch] = UNSET
    method: Texts = UNSET
    header: Maybe[NamedMatch] = UNSET
    query: Maybe[NamedMatch] = UNSET


class KeyLocation(Part):
    bearer: Maybe[Nothing] = UNSET
    header: Text = UNSET
    query: Text = UNSET
    stripPrefix: Text = UNSET


class KeyAuth(Part):
    locations: Maybe[list[KeyLocation]] = UNSET
    permissions: Texts = UNSET


class JwtAuth(Part):
    jwksUri: Text = UNSET
    oidcIssuer: Text = UNSET
    pem: Text = UNSET
    issuer: Text = UNSET
    subjectClaim: Text = UNSET
    audiences: Texts = UNSET
    algorithms: Texts = UNSET
    anonymous: Flag = UNSET
    clockSkew: HourOrNone = UNSET
    cache: Day = UNSET


class RateIdentifier(Part):
    remoteIp: Maybe[Nothing] = UNSET
    header: Text = UNSET
    path: Maybe[Nothing] = UNSET
    subject: Maybe[Nothing] = UNSET
    principal: Text = UNSET


class RateLimit(Part):
    limit: Annotated[int, Meta(ge=1, le=10**9)]
    window: Maybe[Annotated[int, Meta(ge=1, le=31 * 86400)]] = UNSET
    scope: Maybe[Literal["local", "cluster", "strict"]] = UNSET
    identifier: Maybe[RateIdentifier] = UNSET
    cost: Maybe[Annotated[int, Meta(ge=1, le=10**6)]] = UNSET


class Firewall(Part):
    action: Maybe[Literal["deny", "allow"]] = UNSET
    cidrs: Texts = UNSET
    headers: Texts = UNSET
    paths: Texts = UNSET


class RequestSize(Part):
    maxBytes: Annotated[str | float, Meta(description="A quantity, such as 10Mi")]


class Cors(Part):
    origins: list[str]
    methods: Texts = UNSET
    headers: Texts = UNSET
    exposeHeaders: Texts = UNSET
    credentials: Flag = UNSET
    maxAge: Maybe[Annotated[int, Meta(ge=0, le=86400)]] = UNSET


class PolicySpec(Part):
    """Of the first six exactly one."""

    keyAuth: Maybe[KeyAuth] = UNSET
    jwt: Maybe[JwtAuth] = UNSET
    rateLimit: Maybe[RateLimit] = UNSET
    firewall: Maybe[Firewall] = UNSET
    requestSize: Maybe[RequestSize] = UNSET
    cors: Maybe[Cors] = UNSET
    match: Maybe[list[RequestMatch]] = UNSET
    enabled: Flag = UNSET
    order: Million = UNSET
    failOpen: Flag = UNSET
    routes: Names = UNSET


class RouteBackend(Part):
    app: Name
    weight: Million = UNSET
    deployment: Text = UNSET


class StickyRoute(Part):
    cookie: Text = UNSET
    header: Text = UNSET
    ttl: Maybe[Annotated[int, Meta(ge=0, le=2**31)]] = UNSET


class MirrorRoute(Part):
    app: Name
    percent: Maybe[float] = UNSET


class RouteRedirect(Part):
    scheme: Maybe[Literal["http", "https"]] = UNSET
    host: Text = UNSET
    path: Text = UNSET
    prefix: Text = UNSET
    code: Maybe[Literal[301, 302, 303, 307, 308]] = UNSET


class RouteRewrite(Part):
    prefix: Text = UNSET
    host: Text = UNSET


class RouteTimeouts(Part):
    total: Maybe[Annotated[float, Meta(ge=0)]] = UNSET
    idle: Maybe[Annotated[float, Meta(ge=0)]] = UNSET
    header: Maybe[Annotated[float, Meta(ge=0)]] = UNSET


class RouteTls(Part):
    secret: Name


class RouteSpec(Part):
    host: str
    path: Text = UNSET
    headers: Maybe[list[NamedMatch]] = UNSET
    app: MaybeName = UNSET
    backends: Maybe[list[RouteBackend]] = UNSET
    sticky: Maybe[StickyRoute] = UNSET
    mirror: Maybe[MirrorRoute] = UNSET
    redirect: Maybe[RouteRedirect] = UNSET
    rewrite: Maybe[RouteRewrite] = UNSET
    timeouts: Maybe[RouteTimeouts] = UNSET
    retries: Maybe[Annotated[int, Meta(ge=0, le=10)]] = UNSET
    tls: Maybe[RouteTls] = UNSET
    policies: Names = UNSET


class ApiKeySpec(Part):
    permissions: Texts = UNSET
    identity: Text = UNSET
    meta: Maybe[dict[str, Any]] = UNSET
    expiresAt: Maybe[Annotated[str, Meta(extra_json_schema={"format": "date-time"})]] = UNSET
    enabled: Flag = UNSET


class SentinelSpec(Part):
    region: Name
    image: Text = UNSET
    replicas: Gateways = UNSET
    resources: Maybe[Sizes] = UNSET
    cluster: MaybeName = UNSET
    desired: Desired = UNSET


SPECS: dict[str, type[Part]] = {
    "Region": RegionSpec,
    "Cluster": ClusterSpec,
    "Project": ProjectSpec,
    "Environment": EnvironmentSpec,
    "Secret": SecretSpec,
    "Credential": CredentialSpec,
    "App": AppSpec,
    "Policy": PolicySpec,
    "Route": RouteSpec,
    "ApiKey": ApiKeySpec,
    "Sentinel": SentinelSpec,
}
