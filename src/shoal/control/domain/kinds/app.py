"""App: what to run, with which resources, where, and how many."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from shoal.control.domain.fields import Reader
from shoal.control.domain.kinds.checks import (
    is_capability,
    is_image,
    is_name,
    is_path,
    is_plain,
    is_sha,
    is_variable,
)
from shoal.control.domain.kinds.rollout import read_fields
from shoal.control.domain.placement.expressions import expression_faults
from shoal.errors import duplicate, forbidden, invalid, required
from shoal.kube.names import is_dns1123_subdomain, is_label_value, is_qualified_name

MAX_REPLICAS = 10_000
MAX_RESTARTS = 1_000_000
MAX_REGIONS = 2000
SIGNALS = ("SIGTERM", "SIGINT", "SIGQUIT", "SIGKILL")
SECCOMP = ("RuntimeDefault", "Unconfined")
MAX_USER = 2**31 - 1
MIB = 1024 * 1024
DEFAULT_SURGE = "25%"
OWN_POD_LABELS = ("app.kubernetes.io/component", "app.kubernetes.io/managed-by")  # besides all of shoal.dev


@dataclass(frozen=True, slots=True)
class Resources:
    """Whole thousandths of a core and whole MiB; None where nothing was said."""

    cpu_millicores: int | None = None
    memory_mib: int | None = None
    ephemeral_mib: int | None = None

    def as_json(self) -> dict[str, Any]:
        named = {"cpu": self.cpu_millicores, "memory": self.memory_mib, "ephemeralStorage": self.ephemeral_mib}
        units = {"cpu": "m", "memory": "Mi", "ephemeralStorage": "Mi"}
        return {name: f"{amount}{units[name]}" for name, amount in named.items() if amount is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthCheck:
    kind: str  # http, tcp, grpc or exec
    path: str = ""
    command: tuple[str, ...] = ()
    port: int = 0  # 0: the app's
    initial_delay: int = 0
    period: int = 10
    timeout: int = 1
    failures: int = 3

    def as_json(self) -> dict[str, Any]:
        probe: dict[str, Any] = {}
        if self.path:
            probe["path"] = self.path
        if self.command:
            probe["command"] = list(self.command)
        if self.port:
            probe["port"] = self.port
        return {
            self.kind: probe,
            "initialDelay": self.initial_delay,
            "period": self.period,
            "timeout": self.timeout,
            "failures": self.failures,
        }


@dataclass(frozen=True, slots=True)
class Autoscaling:
    min: int
    max: int
    cpu: int = 0  # percent of what is requested; 0: not looked at
    memory: int = 0

    def as_json(self) -> dict[str, int]:
        found = {"min": self.min, "max": self.max, "cpu": self.cpu, "memory": self.memory}
        return {name: value for name, value in found.items() if value or name in ("min", "max")}


@dataclass(frozen=True, slots=True)
class Toleration:
    key: str = ""  # empty with Exists: everything
    operator: str = "Equal"
    value: str = ""
    effect: str = ""  # empty: every effect

    def as_json(self) -> dict[str, str]:
        found = {"key": self.key, "operator": self.operator, "value": self.value, "effect": self.effect}
        return {name: value for name, value in found.items() if value}


@dataclass(frozen=True, slots=True)
class Security:
    """What the containers may do besides what all may: as few as possible by default."""

    run_as_non_root: bool = False
    run_as_user: int = 0  # 0: the image's
    capabilities: tuple[str, ...] = ()  # kept of those that are dropped
    privilege_escalation: bool = False
    seccomp: str = SECCOMP[0]

    def as_json(self) -> dict[str, Any]:
        """Only what differs from the default."""
        found: dict[str, Any] = {
            "runAsNonRoot": self.run_as_non_root,
            "runAsUser": self.run_as_user,
            "capabilities": sorted(self.capabilities),
            "privilegeEscalation": self.privilege_escalation,
            "seccomp": self.seccomp if self.seccomp != SECCOMP[0] else "",
        }
        return {name: value for name, value in found.items() if value}


@dataclass(frozen=True, slots=True)
class PlacementRules:
    """``spread`` is together (stay in the cluster where the environment's gateway of the region is) or apart."""

    labels: dict[str, str] = field(default_factory=dict)
    cel: str = ""
    tolerations: tuple[Toleration, ...] = ()
    spread: str = "together"


@dataclass(frozen=True, slots=True)
class Overrides:
    """What differs in one region. ``image`` is empty where it does not."""

    env: dict[str, str] = field(default_factory=dict)
    resources: Resources = Resources()
    image: str = ""

    def as_json(self) -> dict[str, Any] | None:
        found: dict[str, Any] = {"env": self.env, "resources": self.resources.as_json(), "image": self.image}
        return {name: value for name, value in found.items() if value} or None


@dataclass(frozen=True, slots=True, kw_only=True)
class Adoption:
    """A Deployment that already runs in a cluster, which the first revision in the region is."""

    cluster: str
    namespace: str
    deployment: str
    uid: str
    selector: dict[str, str]
    autoscaler: str = ""

    def as_json(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value}


@dataclass(frozen=True, slots=True)
class RegionSpec:
    region: str
    replicas: int = 1
    autoscaling: Autoscaling | None = None
    overrides: Overrides = Overrides()
    surge: int | str = DEFAULT_SURGE  # how many more instances there may be while revisions are exchanged; at least one
    adopt: Adoption | None = None

    @property
    def needed(self) -> int:
        """How many instances must be ready for the region to be."""
        return self.autoscaling.min if self.autoscaling else self.replicas


@dataclass(frozen=True, slots=True)
class Readiness:
    """How many regions make a revision ready: a number, or all, or all but one. Past the deadline it has failed."""

    regions: int | str = "allButOne"
    deadline: int = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class AppSpec:
    image: str
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    secrets: tuple[str, ...] = ()
    resources: Resources = Resources()
    port: int = 8080
    protocol: str = "http1"
    healthcheck: HealthCheck | None = None
    autoscaling: Autoscaling | None = None
    shutdown_signal: str = "SIGTERM"
    termination_seconds: int = 30
    git: dict[str, str] = field(default_factory=dict)
    drift: str = "correct"
    desired: str = "running"
    placement: PlacementRules = PlacementRules()
    node_selector: dict[str, str] = field(default_factory=dict)
    security: Security = Security()
    image_pull_secrets: tuple[str, ...] = ()  # those of the environment where it names none
    pod_labels: dict[str, str] = field(default_factory=dict)
    topology: tuple[RegionSpec, ...] = ()
    readiness: Readiness = Readiness()
    rollout: dict[str, Any] = field(default_factory=dict)  # as written; ``strategy_of`` reads it with the environment's
    restarts: int = 0


def read_app(spec: Reader) -> AppSpec:
    """The spec as written; ``spec.errors`` has what is wrong with it."""
    autoscaling = _autoscaling(spec)
    topology = _topology(spec, autoscaling)
    made = AppSpec(
        image=spec.text("image", need=True, check=is_image),
        command=spec.texts("command", check=is_plain),
        args=spec.texts("args", check=is_plain),
        env=spec.mapping("env", keys=is_variable, values=is_plain),
        secrets=spec.texts("secrets", check=is_name, unique=True),
        resources=_resources(spec.part("resources")),
        port=spec.integer("port", 8080, 1, 65535),
        protocol=spec.choice("protocol", ("http1", "h2c"), "http1"),
        healthcheck=_healthcheck(spec.part("healthcheck")),
        autoscaling=autoscaling,
        shutdown_signal=spec.choice("shutdownSignal", SIGNALS, "SIGTERM"),
        termination_seconds=spec.integer("terminationSeconds", 30, 0, 3600),
        git=_git(spec.part("git")),
        drift=spec.choice("drift", ("correct", "report"), "correct"),
        desired=spec.choice("desired", ("running", "stopped"), "running"),
        placement=_placement(spec.part("placement")),
        node_selector=spec.mapping("nodeSelector", keys=is_qualified_name, values=is_label_value),
        security=_security(spec.part("security")),
        image_pull_secrets=spec.texts("imagePullSecrets", check=is_name, unique=True),
        pod_labels=_pod_labels(spec),
        topology=topology,
        readiness=_readiness(spec.part("readiness")),
        rollout=_rollout(spec, [row.region for row in topology]),
        restarts=spec.integer("restarts", 0, 0, MAX_RESTARTS),
    )
    spec.close()
    return made


def _resources(part: Reader | None) -> Resources:
    if part is None:
        return Resources()
    cpu, memory, ephemeral = part.quantity("cpu"), part.quantity("memory"), part.quantity("ephemeralStorage")
    for name, found in (("cpu", cpu), ("memory", memory), ("ephemeralStorage", ephemeral)):
        if found is not None and not found:
            part.note(invalid(part.at(name), str(found), "must be greater than 0"))
    part.close()
    return Resources(
        None if cpu is None else cpu.milli(),
        None if memory is None else -(-memory.value() // MIB),
        None if ephemeral is None else -(-ephemeral.value() // MIB),
    )


def _healthcheck(part: Reader | None) -> HealthCheck | None:
    if part is None:
        return None
    kind = part.one_of(("http", "tcp", "grpc", "exec"))
    probes = {name: part.part(name) for name in ("http", "tcp", "grpc", "exec")}
    path, command, port = "", tuple[str, ...](), 0
    probe = probes.get(kind)
    if probe is not None:
        path = probe.text("path", "/", check=is_path) if kind == "http" else ""
        command = probe.texts("command", check=is_plain) if kind == "exec" else ()
        if kind == "exec" and not command:
            probe.note(required(probe.at("command")))
        port = 0 if kind == "exec" else probe.integer("port", 0, 1, 65535)
        probe.close()
    made = HealthCheck(
        kind=kind,
        path=path,
        command=command,
        port=port,
        initial_delay=part.integer("initialDelay", 0, 0, 3600),
        period=part.integer("period", 10, 1, 3600),
        timeout=part.integer("timeout", 1, 1, 3600),
        failures=part.integer("failures", 3, 1, 100),
    )
    part.close()
    return made if kind else None


def _autoscaling(owner: Reader) -> Autoscaling | None:
    part = owner.part("autoscaling")
    if part is None:
        return None
    least = part.integer("min", 1, 1, MAX_REPLICAS)
    most = part.integer("max", least, 1, MAX_REPLICAS)
    if most < least:
        part.note(invalid(part.at("max"), most, "must be greater than or equal to min"))
    cpu, memory = part.integer("cpu", 0, 1, 1000), part.integer("memory", 0, 1, 1000)
    part.close()
    return Autoscaling(least, max(most, least), cpu if cpu or memory else 80, memory)


def _git(part: Reader | None) -> dict[str, str]:
    if part is None:
        return {}
    found = {
        "sha": part.text("sha", check=is_sha),
        "branch": part.text("branch", check=is_plain),
        "repository": part.text("repository", check=is_plain),
        "message": part.text("message", check=is_plain),
    }
    part.close()
    return {name: value for name, value in found.items() if value}


def _security(part: Reader | None) -> Security:
    if part is None:
        return Security()
    made = Security(
        run_as_non_root=part.flag("runAsNonRoot"),
        run_as_user=part.integer("runAsUser", 0, 1, MAX_USER),
        capabilities=part.texts("capabilities", check=is_capability, unique=True),
        privilege_escalation=part.flag("privilegeEscalation"),
        seccomp=part.choice("seccomp", SECCOMP, SECCOMP[0]),
    )
    part.close()
    return made


def _placement(part: Reader | None) -> PlacementRules:
    if part is None:
        return PlacementRules()
    cel = part.text("cel")
    for fault in expression_faults(cel) if cel else ():
        part.note(invalid(part.at("cel"), cel, fault))
    made = PlacementRules(
        labels=part.mapping("labels", keys=is_qualified_name, values=is_label_value),
        cel=cel,
        tolerations=tuple(_toleration(each) for each in part.parts("tolerations", 100)),
        spread=part.choice("spread", ("together", "apart"), "together"),
    )
    part.close()
    return made


def _toleration(part: Reader) -> Toleration:
    operator = part.choice("operator", ("Equal", "Exists"), "Equal")
    made = Toleration(
        key=part.text("key", check=is_qualified_name),
        operator=operator,
        value=part.text("value", check=is_label_value),
        effect=part.choice("effect", ("NoSchedule", "PreferNoSchedule", "NoExecute")),
    )
    if not made.key and operator != "Exists":
        part.note(required(part.at("key"), "or use operator Exists, which tolerates every taint"))
    if made.value and operator == "Exists":
        part.note(forbidden(part.at("value"), "may not be set when operator is Exists"))
    part.close()
    return made


def _topology(spec: Reader, common: Autoscaling | None) -> tuple[RegionSpec, ...]:
    rows: list[RegionSpec] = []
    for part in spec.parts("topology", MAX_REGIONS):
        region = part.text("region", need=True, check=is_name)
        if region and any(row.region == region for row in rows):
            part.note(duplicate(part.at("region"), region))
        own = _autoscaling(part)
        overrides = part.part("overrides")
        rows.append(
            RegionSpec(
                region=region,
                replicas=part.integer("replicas", 1, 0, MAX_REPLICAS),
                autoscaling=own or common,
                overrides=_overrides(overrides) if overrides is not None else Overrides(),
                surge=_surge(part),
                adopt=_adoption(part.part("adopt")),
            )
        )
        part.close()
    if not rows and not spec.has("topology"):
        spec.note(required(spec.at("topology"), "name at least one region"))
    return tuple(rows)


def _adoption(part: Reader | None) -> Adoption | None:
    if part is None:
        return None
    made = Adoption(
        cluster=part.text("cluster", need=True, check=is_name),
        namespace=part.text("namespace", need=True, check=is_name),
        deployment=part.text("deployment", need=True, check=is_dns1123_subdomain),
        uid=part.text("uid", need=True, check=is_plain),
        selector=part.mapping("selector", keys=is_qualified_name, values=is_label_value),
        autoscaler=part.text("autoscaler", check=is_dns1123_subdomain),
    )
    if not made.selector:
        part.note(required(part.at("selector"), "the labels by which the Deployment selects its pods"))
    part.close()
    return made


def _pod_labels(spec: Reader) -> dict[str, str]:
    found = spec.mapping("podLabels", keys=is_qualified_name, values=is_label_value)
    for name in found:
        if name.startswith("shoal.dev/") or name in OWN_POD_LABELS:
            spec.note(forbidden(f"{spec.at('podLabels')}[{name}]", "the agent sets it: use another label"))
    return found


def _surge(part: Reader) -> int | str:
    if not isinstance(part.raw("surge"), str):
        return part.integer("surge", 0, 1, MAX_REPLICAS) or DEFAULT_SURGE
    text = part.text("surge")
    digits = text.removesuffix("%")
    if not text.endswith("%") or not digits.isascii() or not digits.isdigit() or not 1 <= int(digits) <= 100:
        part.note(invalid(part.at("surge"), text, "must be a whole number, or a percentage between 1% and 100%"))
        return DEFAULT_SURGE
    return text


def _overrides(part: Reader) -> Overrides:
    made = Overrides(
        env=part.mapping("env", keys=is_variable, values=is_plain),
        resources=_resources(part.part("resources")),
        image=part.text("image", check=is_image),
    )
    part.close()
    return made


def _readiness(part: Reader | None) -> Readiness:
    if part is None:
        return Readiness()
    regions: int | str
    if isinstance(part.raw("regions"), str):
        regions = part.choice("regions", ("all", "allButOne"), "allButOne")
    else:
        regions = part.integer("regions", 0, 1, MAX_REGIONS) or "allButOne"
    made = Readiness(regions, part.integer("deadline", 600, 1, 24 * 3600))
    part.close()
    return made


def _rollout(spec: Reader, regions: list[str]) -> dict[str, Any]:
    part, written = spec.part("rollout"), spec.raw("rollout")
    if part is not None:
        read_fields(part, regions)
    return dict(written) if isinstance(written, dict) else {}
