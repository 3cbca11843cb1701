"""Decisions about APIServices: which exist automatically, and whether one is available. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from shoal.kube.discovery import default_priority
from shoal.kube.objects import Obj
from shoal.kube.resources import Resource

API_SERVICES: Final = "apiservices.apiregistration.k8s.io"
AUTOMANAGED: Final = "kube-aggregator.kubernetes.io/automanaged"
ON_START, ALWAYS = "onstart", "true"  # when the server restores an automatic APIService
AVAILABLE: Final = "Available"

_OWN_GROUP: Final = "apiregistration.k8s.io"  # registers the others
_METRICS: Final = "metrics.k8s.io"
_METRICS_PRIORITY: Final = 100, 100

GroupVersion = tuple[str, str]


# -- conditions --------------------------------------------------------------------------------------------------------


class Verdict(NamedTuple):
    """The condition ``Available`` of an APIService, without its time."""

    status: str
    reason: str
    message: str


LOCAL: Final = Verdict("True", "Local", "Local APIServices are always available")
PASSED: Final = Verdict("True", "Passed", "all checks passed")


def failed_discovery(message: str) -> Verdict:
    return Verdict("False", "FailedDiscoveryCheck", message)


def condition_of(api_service: Mapping[str, Any]) -> Mapping[str, Any]:
    conditions = (api_service.get("status") or {}).get("conditions") or ()
    return next((each for each in conditions if each.get("type") == AVAILABLE), {})


def is_available(api_service: Mapping[str, Any]) -> bool:
    return condition_of(api_service).get("status") == "True"


def status_with(api_service: Mapping[str, Any], verdict: Verdict, now: str) -> Obj | None:
    """The status with this condition; None when it says the same already."""
    known = condition_of(api_service)
    if (known.get("status"), known.get("reason"), known.get("message")) == verdict:
        return None
    status = dict(api_service.get("status") or {})
    since = known.get("lastTransitionTime") if known.get("status") == verdict.status else None
    made = {"lastTransitionTime": since or now, "message": verdict.message, "reason": verdict.reason}
    others = [each for each in status.get("conditions") or () if each.get("type") != AVAILABLE]
    status["conditions"] = [*others, {**made, "status": verdict.status, "type": AVAILABLE}]
    return status


# -- the service behind an APIService ----------------------------------------------------------------------------------


def check_service(
    reference: Mapping[str, Any], service: Mapping[str, Any] | None, slices: Iterable[Mapping[str, Any]]
) -> Verdict | None:
    """What is missing between an APIService and endpoints that can be asked; None when nothing is."""
    name, namespace, port = reference["name"], reference["namespace"], reference.get("port") or 443
    where = f'service/{name} in "{namespace}"'
    if service is None:
        return Verdict("False", "ServiceNotFound", f"{where} is not present")
    spec = service.get("spec") or {}
    if spec.get("type", "ClusterIP") != "ClusterIP":
        return None  # as in Kubernetes, only these are checked further
    ports = [each for each in spec.get("ports") or () if each.get("port") == port]
    if not ports:
        return Verdict("False", "ServicePortError", f"{where} is not listening on port {port}")
    slices = list(slices)
    if not slices:
        return Verdict("False", "EndpointsNotFound", f"cannot find endpointslices for {where}")
    port_name = ports[0].get("name") or ""
    if not any(_leads_on(each, port_name) for each in slices):
        text = f'endpointslices for {where} have no addresses with port name "{port_name}"'
        return Verdict("False", "MissingEndpoints", text)
    return None


def _leads_on(piece: Mapping[str, Any], port_name: str) -> bool:
    ready = any((each.get("conditions") or {}).get("ready") is not False for each in piece.get("endpoints") or ())
    return ready and any(
        (each.get("name") or "") == port_name and each.get("port") for each in piece.get("ports") or ()
    )


# -- automatic APIServices ---------------------------------------------------------------------------------------------


def automatic(resources: Iterable[Resource]) -> dict[str, Obj]:
    """The APIServices of the group versions that this server serves itself, by name."""
    made: dict[str, Obj] = {}
    for resource in resources:
        group, version = resource.group, resource.version
        name = f"{version}.{group}"
        if name in made or group == _OWN_GROUP:
            continue
        of_group, of_version = _METRICS_PRIORITY if group == _METRICS else default_priority(group, version)
        made[name] = {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": name, "labels": {AUTOMANAGED: ALWAYS if resource.custom else ON_START}},
            "spec": {
                **({"group": group} if group else {}),
                "groupPriorityMinimum": of_group,
                "version": version,
                "versionPriority": of_version,
            },
        }
    return made


def is_wrong(stored: Mapping[str, Any], wanted: Mapping[str, Any], *, starting: bool) -> bool:
    """Whether a stored APIService must be changed to ``wanted``. One without the label belongs to a user."""
    label = managed(stored)
    if not label or label != managed(wanted) or (label == ON_START and not starting):
        return False
    return bool(stored.get("spec") != wanted["spec"])


def is_left_over(stored: Mapping[str, Any], *, starting: bool) -> bool:
    """Whether an APIService whose group version this server does not serve is removed."""
    label = managed(stored)
    return label == ALWAYS or (label == ON_START and starting)


def managed(api_service: Mapping[str, Any]) -> str:
    """When the server restores it. One with a service has been taken over: ``kubectl apply`` keeps our label."""
    if (api_service.get("spec") or {}).get("service") is not None:
        return ""
    return str((api_service["metadata"].get("labels") or {}).get(AUTOMANAGED) or "")


def group_version(api_service: Mapping[str, Any]) -> GroupVersion:
    spec = api_service.get("spec") or {}
    return spec.get("group") or "", spec.get("version") or ""
