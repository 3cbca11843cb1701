"""Defaults of pods and pod templates.

All functions change their argument in place and are idempotent.
"""

from __future__ import annotations

import re
from typing import Any, Final

from shoal.base.bounded_cache import bounded_cache
from shoal.kube.kinds.core.resources import (
    aggregate,
    is_huge_page,
    is_overcommittable,
    is_pod_level,
    round_up_to_milli,
)
from shoal.kube.objects import Obj

FILE_MODE: Final = 0o644
_DOMAIN = r"(?:[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?)(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?)*(?::[0-9]+)?"
_COMPONENT = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_IMAGE = re.compile(
    rf"(?:(?:{_DOMAIN}|\[[a-fA-F0-9:]+\](?::[0-9]+)?)/)?{_COMPONENT}(?:/{_COMPONENT})*"
    r"(?::(\w[\w.-]{0,127}))?(?:@([A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}))?",
    re.ASCII,
)
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_HOOKS = ("postStart", "preStop")
_WITH_MODE = ("secret", "configMap", "downwardAPI", "projected")
_SOURCE_DEFAULTS: Final[dict[str, dict[str, Any]]] = {
    "hostPath": {"type": ""},
    "secret": {"defaultMode": FILE_MODE},
    "configMap": {"defaultMode": FILE_MODE},
    "downwardAPI": {"defaultMode": FILE_MODE},
    "projected": {"defaultMode": FILE_MODE},
    "iscsi": {"iscsiInterface": "default"},
    "rbd": {"pool": "rbd", "user": "admin", "keyring": "/etc/ceph/keyring"},
    "azureDisk": {"cachingMode": "ReadWrite", "fsType": "ext4", "readOnly": False, "kind": "Shared"},
    "scaleIO": {"storageMode": "ThinProvisioned", "fsType": "xfs"},
}
# Fields that are pointers in Go keep an empty value; for other fields empty means absent.
_KEPT_WHEN_EMPTY = frozenset({"type", "defaultMode", "cachingMode", "fsType", "readOnly", "kind"})


@bounded_cache(8192)
def pull_policy_of(image: str) -> str:
    """``Always`` for images without a fixed version, ``IfNotPresent`` for others and for invalid names."""
    matched = _IMAGE.fullmatch(image)
    if matched is None:
        return "IfNotPresent"
    tag, digest = matched.groups()
    return "Always" if tag == "latest" or not (tag or digest) else "IfNotPresent"


def default_pod_template(template: Obj) -> None:
    """Set the defaults of a template. Pods have more defaults, which are set when they are created."""
    default_pod_spec(template.setdefault("spec", {}))


def default_pod_spec(spec: Obj) -> None:
    """Set the defaults that pods and templates share."""
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if account:
        spec["serviceAccountName"] = spec["serviceAccount"] = account
    if not spec.get("dnsPolicy"):
        spec["dnsPolicy"] = "ClusterFirst"
    if not spec.get("restartPolicy"):
        spec["restartPolicy"] = "Always"
    if spec.get("securityContext") is None:
        spec["securityContext"] = {}
    if spec.get("terminationGracePeriodSeconds") is None:
        spec["terminationGracePeriodSeconds"] = 30
    if not spec.get("schedulerName"):
        spec["schedulerName"] = "default-scheduler"
    for container in spec.get("containers") or ():
        default_container(container)
    for container in spec.get("initContainers") or ():
        default_container(container)
    for container in spec.get("ephemeralContainers") or ():
        default_container(container)
    for volume in spec.get("volumes") or ():
        default_volume(volume)
    round_up_to_milli(spec.get("overhead"))
    resources = spec.get("resources")
    if resources:
        round_up_to_milli(resources.get("limits"))
        round_up_to_milli(resources.get("requests"))


def default_pod(pod: Obj) -> None:
    """Set the defaults of a pod."""
    spec = pod.setdefault("spec", {})
    grace = spec.get("terminationGracePeriodSeconds")
    if grace is not None and grace < 0:
        spec["terminationGracePeriodSeconds"] = 1
    for container in spec.get("containers") or ():
        _requests_from_limits(container)
    for container in spec.get("initContainers") or ():
        _requests_from_limits(container)
    if spec.get("enableServiceLinks") is None:
        spec["enableServiceLinks"] = True
    default_pod_spec(spec)
    if spec.get("hostNetwork"):
        _ports_on_host(spec.get("containers"))
        _ports_on_host(spec.get("initContainers"))
    status = pod.get("status")
    if status:
        _sync_pod_ips(status)


def default_container(container: Obj) -> None:
    if not container.get("imagePullPolicy"):
        container["imagePullPolicy"] = pull_policy_of(container.get("image", ""))
    if not container.get("terminationMessagePath"):
        container["terminationMessagePath"] = "/dev/termination-log"
    if not container.get("terminationMessagePolicy"):
        container["terminationMessagePolicy"] = "File"
    resources = container.get("resources")
    if resources is None:
        container["resources"] = {}
    elif resources:
        round_up_to_milli(resources.get("limits"))
        round_up_to_milli(resources.get("requests"))
    for port in container.get("ports") or ():
        if not port.get("protocol"):
            port["protocol"] = "TCP"
    for variable in container.get("env") or ():
        source = variable.get("valueFrom")
        if source:
            _default_env_source(source)
    for name in _PROBES:
        probe = container.get(name)
        if probe is not None:
            _default_probe(probe)
    lifecycle = container.get("lifecycle")
    if lifecycle:
        for name in _HOOKS:
            hook = lifecycle.get(name)
            if hook and hook.get("httpGet") is not None:
                _default_http_get(hook["httpGet"])


def _default_env_source(source: Obj) -> None:
    _default_field_ref(source.get("fieldRef"))
    file = source.get("fileKeyRef")
    if file is not None and file.get("optional") is None:
        file["optional"] = False


def _default_field_ref(reference: Obj | None) -> None:
    if reference is not None and not reference.get("apiVersion"):
        reference["apiVersion"] = "v1"


def _default_probe(probe: Obj) -> None:
    if not probe.get("timeoutSeconds"):
        probe["timeoutSeconds"] = 1
    if not probe.get("periodSeconds"):
        probe["periodSeconds"] = 10
    if not probe.get("successThreshold"):
        probe["successThreshold"] = 1
    if not probe.get("failureThreshold"):
        probe["failureThreshold"] = 3
    http = probe.get("httpGet")
    if http is not None:
        _default_http_get(http)
    grpc = probe.get("grpc")
    if grpc is not None and grpc.get("service") is None:
        grpc["service"] = ""


def _default_http_get(http: Obj) -> None:
    if not http.get("path"):
        http["path"] = "/"
    if not http.get("scheme"):
        http["scheme"] = "HTTP"


def default_volume(volume: Obj) -> None:
    sources = [field for field in volume if field != "name"]
    if not sources:
        volume["emptyDir"] = {}
        return
    for field in sources:
        source = volume[field]
        defaults = _SOURCE_DEFAULTS.get(field)
        if defaults is not None:
            fill(source, defaults)
        if field == "projected":
            _default_projected(source)
        elif field == "downwardAPI":
            for item in source.get("items") or ():
                _default_field_ref(item.get("fieldRef"))
        elif field == "image" and not source.get("pullPolicy"):
            source["pullPolicy"] = pull_policy_of(source.get("reference", ""))
        elif field == "ephemeral" and source.get("volumeClaimTemplate") is not None:
            default_claim_spec(source["volumeClaimTemplate"].setdefault("spec", {}))


def fill(source: Obj, defaults: dict[str, Any]) -> None:
    """Defaults of one volume source."""
    for field, value in defaults.items():
        present = source.get(field)
        if present is None or (not present and field not in _KEPT_WHEN_EMPTY):
            source[field] = value


def default_persistent_source(spec: Obj) -> None:
    """Defaults of the volume source in a persistent volume."""
    for field in ("hostPath", "iscsi", "rbd", "azureDisk", "scaleIO"):
        source = spec.get(field)
        if source is not None:
            fill(source, _SOURCE_DEFAULTS[field])


def default_claim_spec(spec: Obj) -> None:
    """Defaults of the spec of a persistent volume claim."""
    if spec.get("volumeMode") is None:
        spec["volumeMode"] = "Filesystem"
    resources = spec.get("resources")
    if resources:
        round_up_to_milli(resources.get("limits"))
        round_up_to_milli(resources.get("requests"))


def _default_projected(projected: Obj) -> None:
    for source in projected.get("sources") or ():
        token = source.get("serviceAccountToken")
        if token is not None and token.get("expirationSeconds") is None:
            token["expirationSeconds"] = 3600
        for item in (source.get("downwardAPI") or {}).get("items") or ():
            _default_field_ref(item.get("fieldRef"))


def _requests_from_limits(container: Obj) -> None:
    """A limit without a request also sets the request."""
    resources = container.get("resources")
    limits = resources.get("limits") if resources else None
    if not resources or not limits:
        return
    requests = resources.get("requests")
    if requests is None:
        resources["requests"] = dict(limits)
        return
    for name, amount in limits.items():
        if name not in requests:
            requests[name] = amount


def default_pod_level_resources(spec: Obj) -> None:
    """Set requests (and huge page limits) of the whole pod from those of its containers and from its limits."""
    resources = spec.get("resources")
    if not resources or not (resources.get("limits") or resources.get("requests")):
        return
    limits, requests = dict(resources.get("limits") or {}), dict(resources.get("requests") or {})
    for name, amount in aggregate(spec, "limits").items():
        if is_huge_page(name) and name not in requests and name not in limits:
            limits[name] = str(amount)
    if limits:
        resources["limits"] = limits
        for name, amount in aggregate(spec, "requests").items():
            if name not in requests and is_pod_level(name) and is_overcommittable(name):
                requests[name] = str(amount)
        for name, text in limits.items():
            if name not in requests and is_pod_level(name):
                requests[name] = text
    if requests:
        resources["requests"] = requests


def _ports_on_host(containers: list[Obj] | None) -> None:
    """In the host network, the host port of a container is its container port."""
    for container in containers or ():
        for port in container.get("ports") or ():
            if not port.get("hostPort") and port.get("containerPort"):
                port["hostPort"] = port["containerPort"]


def _sync_pod_ips(status: Obj) -> None:
    """``podIP`` and the first of ``podIPs`` are the same; ``podIP`` wins."""
    address, addresses = status.get("podIP"), status.get("podIPs")
    if address:
        if not addresses or addresses[0].get("ip") != address:
            status["podIPs"] = [{"ip": address}]
    elif addresses:
        first = addresses[0].get("ip")
        if first:
            status["podIP"] = first
