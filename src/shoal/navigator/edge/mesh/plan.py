"""Reads the mesh's settings from istiod's Deployment and ConfigMap. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import orjson
import yaml

from shoal.kube.objects import Obj
from shoal.navigator.edge.rows import key_of
from shoal.navigator.model import CONTROL_PLANE_CONFIG

_REVISION = "istio.io/rev"
_CONTAINER = "discovery"


@dataclass(frozen=True, slots=True, kw_only=True)
class Istiod:
    """One control plane."""

    namespace: str
    name: str
    revision: str  # "default" where none is named
    version: str
    cluster_id: str
    network: str
    scope_gateway_to_namespace: bool

    @property
    def config_map(self) -> str:
        return "istio" if self.revision == "default" else f"istio-{self.revision}"


def istiod_of(deployment: Obj) -> Istiod | None:
    """None when the Deployment is not istiod's."""
    metadata = deployment["metadata"]
    template = (deployment.get("spec") or {}).get("template") or {}
    labels = (metadata.get("labels") or {}) | ((template.get("metadata") or {}).get("labels") or {})
    if labels.get("app") != "istiod":
        return None
    containers = (template.get("spec") or {}).get("containers") or [{}]
    container = next((each for each in containers if each.get("name") == _CONTAINER), containers[0])
    env = {each["name"]: each.get("value", "") for each in container.get("env") or ()}
    return Istiod(
        namespace=metadata.get("namespace") or "",
        name=metadata["name"],
        revision=labels.get(_REVISION) or env.get("REVISION") or "default",
        version=version_of(container.get("image") or "", labels),
        cluster_id=env.get("CLUSTER_ID", ""),
        network=env.get("ISTIO_META_NETWORK", ""),
        scope_gateway_to_namespace=env.get("PILOT_SCOPE_GATEWAY_TO_NAMESPACE", "").lower() == "true",
    )


def version_of(image: str, labels: Obj) -> str:
    """The version in the image's tag, without ``-distroless`` or ``-debug``; else that of the labels."""
    tail = image.partition("@")[0].rpartition("/")[2]
    tag = tail.partition(":")[2]
    if tag and tag[0].isdigit():
        return tag.removesuffix("-distroless").removesuffix("-debug")
    found: str = labels.get("app.kubernetes.io/version") or labels.get("operator.istio.io/version") or tag
    return found


def mesh_config(config_map: Obj) -> Obj:
    """The mesh configuration of a ConfigMap; ``ValueError`` when it cannot be read."""
    text = (config_map.get("data") or {}).get("mesh") or ""
    try:
        found = yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        raise ValueError(f"the mesh configuration is not YAML: {error}") from None
    if not isinstance(found, dict):
        raise ValueError("the mesh configuration is not a mapping")
    return found


def root_namespace(istiod: Istiod, mesh: Obj) -> str:
    return str(mesh.get("rootNamespace") or istiod.namespace)


def control_plane(istiod: Istiod, mesh: Obj) -> tuple[str, bytes]:
    """Key and data of the row."""
    root = root_namespace(istiod, mesh)
    obj = {
        "apiVersion": "navigator.shoal.dev/v1",
        "kind": CONTROL_PLANE_CONFIG.kind,
        "metadata": {"name": istiod.name, "namespace": istiod.namespace},
        "spec": {
            "version": istiod.version,
            "revision": istiod.revision,
            "clusterId": istiod.cluster_id,
            "network": istiod.network,
            "rootNamespace": root,
            "trustDomain": str(mesh.get("trustDomain") or "cluster.local"),
            "scopeGatewayToNamespace": istiod.scope_gateway_to_namespace,
            "meshConfig": mesh,
        },
    }
    return key_of(istiod.namespace, istiod.name), orjson.dumps(
        obj, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS, default=str
    )
