"""The settings of an agent, and the join file that `shoal token create --kind agent` prints."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from shoal.base.settings import load, setting
from shoal.errors import ConfigError

OWN_IMAGE = "SHOAL_KRANE_OWN_IMAGE"  # the variable of the setting `own_image`, by which an agent knows what it runs


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinFile:
    """Where the control plane is and who this agent is there. Keep it secret: it has the token."""

    url: str = setting("", doc="address of the control plane, https://HOST:PORT; the first of several")
    urls: tuple[str, ...] = setting(
        (), doc="addresses of control planes or relays of the fleet, the preferred one first"
    )
    token: str = setting(doc="bearer token of the agent")
    cluster: str = setting(doc="name of the cluster")
    region: str = setting(doc="region of the cluster")
    shard: str = setting("default", doc="name of the agent's shard of the cluster")
    ca: str = setting("", doc="CA certificates of all control planes and relays, PEM; needed for https")

    def __post_init__(self) -> None:
        if not self.addresses:
            raise ConfigError("url is not set: use https://HOST:PORT, or urls for several")
        for name, url in (("url" if url == self.url else "urls", url) for url in self.addresses):
            if not url.startswith(("https://", "http://")):
                raise ConfigError(f"{name} is {url!r}: use https://HOST:PORT")
            if url.startswith("https://") and not self.ca:
                raise ConfigError(
                    f"ca is not set: {name} has {url}, and https needs the control plane's CA certificates"
                )
        for name in ("token", "cluster", "region", "shard"):
            if not getattr(self, name):
                raise ConfigError(f"{name} is empty in the join file: create a new one with shoal token create")

    @property
    def addresses(self) -> tuple[str, ...]:
        """All URLs, each once: ``url``, then ``urls``."""
        return tuple(dict.fromkeys((*((self.url,) if self.url else ()), *self.urls)))


def read_join_file(path: Path) -> JoinFile:
    """JSON or YAML; ``ConfigError`` says what is wrong with it."""
    return load(JoinFile, file=path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Times, numbers and sizes of one controller."""

    buffer: int = setting(1000, doc="keys received but not applied before reading pauses")
    apply_parallel: int = setting(10, doc="keys applied at the same time")
    apply_timeout_s: float = setting(60.0, doc="longest time one key may take to apply")
    retry_base_s: float = setting(5.0, doc="wait after a key failed for the first time; doubles")
    retry_cap_s: float = setting(300.0, doc="longest wait of a failing key")
    reconnect_base_s: float = setting(0.5, doc="bound of the wait before the first reconnect; doubles, full jitter")
    reconnect_cap_s: float = setting(30.0, doc="longest wait before a reconnect")
    report_parallel: int = setting(10, doc="reports sent at the same time")
    report_batch: int = setting(50, doc="objects in one report")
    report_gather_s: float = setting(0.015, doc="how long a report waits so that later changes join it; 0: not at all")
    resync_s: float = setting(600.0, doc="how often every object is compared with the control plane")
    breaker_threshold: int = setting(5, doc="failed calls in a row that open the circuit breaker")
    breaker_open_s: float = setting(10.0, doc="how long the circuit breaker stays open")
    drift_base_s: float = setting(1.0, doc="wait before drift of the same object is corrected again; doubles")
    drift_cap_s: float = setting(300.0, doc="longest wait before drift of the same object is corrected again")

    def __post_init__(self) -> None:
        for name in ("buffer", "apply_parallel", "report_parallel", "report_batch", "breaker_threshold"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}: use 1 or more")
        for field in dataclasses.fields(self):
            if field.name.endswith("_s") and field.name != "report_gather_s" and getattr(self, field.name) <= 0:
                raise ConfigError(f"{field.name} is {getattr(self, field.name)}: use more than 0")
        if not 0 <= self.report_gather_s < 1:
            raise ConfigError(f"report_gather_s is {self.report_gather_s}: use 0 or more, and less than 1")
        if self.retry_cap_s < self.retry_base_s or self.reconnect_cap_s < self.reconnect_base_s:
            raise ConfigError("the longest wait of retries and reconnects cannot be shorter than the first")


@dataclass(frozen=True, slots=True, kw_only=True)
class KraneConfig:
    """One agent. Durations are in seconds."""

    join: Path = setting(doc="the join file")
    dir: Path = setting(doc="directory of the agent's private key and last known state; keep it private")
    kubeconfig: Path | None = setting(None, doc="kubeconfig of the cluster; empty: the agent's service account")
    context: str = setting("", doc="context of the kubeconfig; empty: the current one")
    agent: str = setting("", doc="name of this process, unique among the standbys; empty: derived from the host name")
    host: str = setting("127.0.0.1", doc="address for health and metrics")
    port: int = setting(8070, doc="port for health and metrics; 0: any")
    elect: bool = setting(True, doc="take part in an election, so that a standby can be started beside this agent")
    namespaces: tuple[str, ...] = setting(
        (), doc="the only namespaces in which apps may run, which must exist; empty: any, made by the agent"
    )
    lease_namespace: str = setting("shoal-system", doc="namespace of the Lease of the election")
    heartbeat_s: float = setting(10.0, doc="time between heartbeats, unless the control plane sets another")
    rpc_timeout_s: float = setting(10.0, doc="longest time a call to the control plane may take")
    idle_s: float = setting(100.0, doc="a stream without any message for this long is closed")
    return_s: float = setting(300.0, doc="time between tries of the join file's first URL while another one is in use")
    gateway_image: str = setting(
        "",
        doc="image of gateways whose environment names none; empty: nodes whose containers are processes use their "
        "table, elsewhere no gateway is installed",
    )
    gateway_pull_secret: str = setting(
        "", doc="name of a Secret in namespace sentinel with credentials of the registry that the image comes from"
    )
    gateway_traces_url: str = setting(
        "",
        doc="http://HOST:PORT of the collector of gateways' traces; empty: that of this process, if it exports traces",
    )
    gateway_traces_percent: float = setting(
        1.0,
        doc="percentage of the requests through gateways to trace; 0: no traces of gateways",
    )
    deployment: str = setting(
        "",
        doc="NAMESPACE/NAME of the Deployment that this agent is, which `shoal agents upgrade` may change; empty: none",
    )
    beside: tuple[str, ...] = setting((), doc="names of other Deployments in that namespace that are upgraded after it")
    own_image: str = setting("", doc="image that this agent runs, as its Deployment names it")
    limits: Limits = setting(Limits(), doc="of each of the two controllers")

    def __post_init__(self) -> None:
        namespace, slash, name = self.deployment.partition("/")
        if self.deployment and (not namespace or not slash or not name or "/" in name):
            raise ConfigError(f"deployment is {self.deployment!r}: use NAMESPACE/NAME")
        if self.deployment and not self.own_image:
            raise ConfigError("own_image is missing: a deployment needs it, to know whether it runs the wanted one")
        if not 0 <= self.gateway_traces_percent <= 100:
            raise ConfigError(f"gateway_traces_percent is {self.gateway_traces_percent:g}: use 0 to 100")
        if any(each.isspace() for each in self.gateway_image):
            raise ConfigError(f"gateway_image is {self.gateway_image!r}: use REGISTRY/NAME:TAG, without spaces")
        url = self.gateway_traces_url
        if url and not url.startswith(("http://", "https://")):
            raise ConfigError(f"gateway_traces_url is {url!r}: use http://HOST:PORT or https://HOST:PORT")
        for name in ("heartbeat_s", "rpc_timeout_s", "idle_s", "return_s"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name} is {getattr(self, name)}: use more than 0")
