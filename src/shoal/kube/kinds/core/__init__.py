"""The rules of the core/v1 kinds."""

from __future__ import annotations

from typing import Final

from shoal.kube.kinds.core.config import CONFIG_MAP, SECRET, SERVICE_ACCOUNT
from shoal.kube.kinds.core.endpoints import ENDPOINTS
from shoal.kube.kinds.core.event import EVENT
from shoal.kube.kinds.core.namespace import NAMESPACE
from shoal.kube.kinds.core.node import NODE
from shoal.kube.kinds.core.pod import POD
from shoal.kube.kinds.core.quota import LIMIT_RANGE, RESOURCE_QUOTA
from shoal.kube.kinds.core.service import SERVICE
from shoal.kube.kinds.core.storage import PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM
from shoal.kube.kinds.core.workloads import BINDING, POD_TEMPLATE, REPLICATION_CONTROLLER
from shoal.kube.rules import GENERIC, KindRules

RULES: Final[dict[tuple[str, str, str], KindRules]] = {
    ("", "v1", "Binding"): BINDING,
    ("", "v1", "ComponentStatus"): GENERIC,
    ("", "v1", "ConfigMap"): CONFIG_MAP,
    ("", "v1", "Endpoints"): ENDPOINTS,
    ("", "v1", "Event"): EVENT,
    ("", "v1", "LimitRange"): LIMIT_RANGE,
    ("", "v1", "Namespace"): NAMESPACE,
    ("", "v1", "Node"): NODE,
    ("", "v1", "PersistentVolume"): PERSISTENT_VOLUME,
    ("", "v1", "PersistentVolumeClaim"): PERSISTENT_VOLUME_CLAIM,
    ("", "v1", "Pod"): POD,
    ("", "v1", "PodTemplate"): POD_TEMPLATE,
    ("", "v1", "ReplicationController"): REPLICATION_CONTROLLER,
    ("", "v1", "ResourceQuota"): RESOURCE_QUOTA,
    ("", "v1", "Secret"): SECRET,
    ("", "v1", "Service"): SERVICE,
    ("", "v1", "ServiceAccount"): SERVICE_ACCOUNT,
}
