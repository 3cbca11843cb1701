"""The settings of a manager."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from shoal.base.settings import setting
from shoal.errors import ConfigError
from shoal.sharding.rbac import NAMESPACE


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerConfig:
    """One manager. Durations are in seconds."""

    kubeconfig: Path | None = setting(None, doc="kubeconfig of the cluster; empty: the manager's service account")
    context: str = setting("", doc="context of the kubeconfig; empty: the current one")
    namespace: str = setting(NAMESPACE, doc="where the Lease of the election stands")
    name: str = setting("", doc="of this process among its replicas; empty: derived from the host name")
    host: str = setting("127.0.0.1", doc="address of health and metrics")
    port: int = setting(8060, doc="of health and metrics; 0 for any free one")
    elect: bool = setting(True, doc="take part in an election, so that replicas can be started")
    install: bool = setting(False, doc="apply the definitions of the kinds at start; needs the right to do so")
    webhook_port: int = setting(0, doc="where slots are given at admission; 0: they are not")
    webhook_certificate: Path | None = setting(None, doc="of the webhook, PEM")
    webhook_key: Path | None = setting(None, doc="of the webhook's certificate, PEM")
    lease_s: int = setting(15, doc="of the election: how long a leader that says nothing is believed to live")
    renew_deadline_s: float = setting(10.0, doc="of the election: when a leader that cannot renew stops")
    retry_s: float = setting(2.0, doc="of the election: how often a leader renews and others try")

    def __post_init__(self) -> None:
        if not self.namespace:
            raise ConfigError("namespace is empty: the Lease of the election needs one")
        if self.webhook_port and (self.webhook_certificate is None or self.webhook_key is None):
            raise ConfigError("webhook_port is set: webhook_certificate and webhook_key are needed too")
        if not 0 <= self.port < 65536:
            raise ConfigError(f"port is {self.port}: use a number from 0 to 65535")
