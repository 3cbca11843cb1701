"""The settings of a manager."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from shoal.base.settings import setting
from shoal.errors import ConfigError
from shoal.reconcile import ElectionConfig
from shoal.sharding.rbac import NAMESPACE
from shoal.sharding.worker.webhook import read_networks


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerConfig:
    """One manager. Durations are in seconds."""

    kubeconfig: Path | None = setting(None, doc="kubeconfig of the cluster; empty: the manager's service account")
    context: str = setting("", doc="context of the kubeconfig; empty: the current one")
    namespace: str = setting(NAMESPACE, doc="namespace of the election's Lease")
    name: str = setting("", doc="name of this process, unique among the replicas; empty: derived from the host name")
    host: str = setting("127.0.0.1", doc="address for health and metrics")
    port: int = setting(8060, doc="port for health and metrics; 0: any")
    elect: bool = setting(True, doc="take part in an election, so that replicas can be started")
    install: bool = setting(False, doc="apply the CustomResourceDefinitions at start; needs permission to do so")
    worker_image: str = setting("", doc="image of built-in workers; empty: the one that Shoal's own nodes know")
    webhook_networks: tuple[str, ...] = setting(
        (), doc="networks of loopback and link-local addresses that webhooks of ShardConfigs may have, as CIDR"
    )
    webhook_port: int = setting(0, doc="port of the webhook that assigns slots at admission; 0: off")
    webhook_certificate: Path | None = setting(None, doc="certificate of the webhook, PEM")
    webhook_key: Path | None = setting(None, doc="private key of the webhook's certificate, PEM")
    lease_s: int = setting(15, doc="election: how long a leader's Lease is valid without renewal")
    renew_deadline_s: float = setting(10.0, doc="election: how long a leader tries to renew before it stops")
    retry_s: float = setting(2.0, doc="election: how often the leader renews and the others try")

    def __post_init__(self) -> None:
        read_networks(self.webhook_networks)
        self.election()
        if not self.namespace:
            raise ConfigError("namespace is empty: the Lease of the election needs one")
        if self.webhook_port and (self.webhook_certificate is None or self.webhook_key is None):
            raise ConfigError("webhook_port is set: webhook_certificate and webhook_key are needed too")
        if not 0 <= self.port < 65536:
            raise ConfigError(f"port is {self.port}: use a number from 0 to 65535")

    def election(self) -> ElectionConfig:
        return ElectionConfig(lease_s=self.lease_s, renew_deadline_s=self.renew_deadline_s, retry_s=self.retry_s)
