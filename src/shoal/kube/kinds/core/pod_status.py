"""The status of a pod: its initial status, its quality of service, and validation of updates."""

from __future__ import annotations

from typing import Any

from shoal.errors import duplicate, forbidden, invalid
from shoal.kube.kinds.checks import Errors, check_syntax, parse_quantity, quantity_of
from shoal.kube.names import is_dns1123_subdomain, is_ip_legacy, is_qualified_name, parse_ip
from shoal.kube.objects import Obj
from shoal.kube.quantity import Quantity

_SYSTEM_CONDITIONS = frozenset({"PodScheduled", "Ready", "Initialized"})
_NOTHING: dict[str, str] = {}
_KEPT_IF_ABSENT = (
    "qosClass", "resourceClaimStatuses", "extendedResourceClaimStatus", "nodeAllocatableResourceClaimStatuses",
    "observedGeneration",
)  # fmt: skip


def qos_class(pod: Obj) -> str:
    """``Guaranteed`` if the requests of every container equal its limits, ``BestEffort`` if no container has any."""
    spec = pod.get("spec") or {}
    own = spec.get("resources")
    if own and (own.get("requests") or own.get("limits")):
        requirements = [own]
    else:
        requirements = [container.get("resources") or _NOTHING for container in spec.get("containers") or ()]
        for container in spec.get("initContainers") or ():
            requirements.append(container.get("resources") or _NOTHING)
    guaranteed, anything = True, False
    for requirement in requirements:
        requests, limits = requirement.get("requests") or _NOTHING, requirement.get("limits") or _NOTHING
        for name in ("cpu", "memory"):
            limit, request = limits.get(name), requests.get(name)
            limited = limit is not None and _amount(limit).mantissa > 0
            if limited or (request is not None and _amount(request).mantissa > 0):
                anything = True
            if not limited or request is None or (request != limit and _amount(request) != _amount(limit)):
                guaranteed = False
    if not anything:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def _amount(text: Any) -> Quantity:
    try:
        return parse_quantity(text)
    except (ValueError, TypeError):
        return quantity_of(text)


def initial_status(pod: Obj) -> Obj:
    """The status of a pod that has just been created."""
    status: Obj = {"phase": "Pending", "qosClass": qos_class(pod)}
    if (pod.get("spec") or {}).get("schedulingGates"):
        status["conditions"] = [
            {
                "type": "PodScheduled",
                "status": "False",
                "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
            }
        ]
    return status


def prepare_status(new: Obj, old: Obj) -> None:
    """Keep fields that old clients drop because they do not know them, and the owners, which a status write cannot
    change."""
    status = new.setdefault("status", {})
    before = old.get("status") or {}
    for field in _KEPT_IF_ABSENT:
        if not status.get(field) and status.get(field) != [] and field in before:
            status[field] = before[field]
    metadata, old_metadata = new.setdefault("metadata", {}), old.get("metadata") or {}
    if "ownerReferences" in old_metadata:
        metadata["ownerReferences"] = old_metadata["ownerReferences"]
    else:
        metadata.pop("ownerReferences", None)
    _keep_observed_generations(status.get("conditions") or [], before.get("conditions") or [])


def _keep_observed_generations(conditions: list[Obj], before: list[Obj]) -> None:
    known: dict[str, list[int]] = {}
    for condition in before:
        known.setdefault(condition.get("type", ""), []).append(condition.get("observedGeneration", 0))
    for condition in conditions:
        generations = known.get(condition.get("type", ""))
        generation = generations.pop(0) if generations else 0
        if generation and not condition.get("observedGeneration"):
            condition["observedGeneration"] = generation


def validate_status_update(new: Obj, old: Obj) -> Errors:
    """The errors of a new status; the spec is unchanged."""
    errors: Errors = []
    status, before = new.get("status") or {}, old.get("status") or {}
    _check_conditions(status.get("conditions") or (), errors)
    nominated = status.get("nominatedNodeName")
    if nominated and nominated != before.get("nominatedNodeName"):
        check_syntax(nominated, is_dns1123_subdomain, "status.nominatedNodeName", errors)
        if (old.get("spec") or {}).get("nodeName"):
            detail = "may not be set on pods that are already bound to a node"
            errors.append(forbidden("status.nominatedNodeName", detail))
    if status.get("observedGeneration", 0) < 0:
        detail = "must be a non-negative integer"
        errors.append(invalid("status.observedGeneration", status["observedGeneration"], detail))
    if status.get("qosClass") != before.get("qosClass"):
        errors.append(invalid("status.qosClass", status.get("qosClass"), "field is immutable"))
    spec = old.get("spec") or {}
    for field, containers in (
        ("containerStatuses", "containers"),
        ("initContainerStatuses", "initContainers"),
        ("ephemeralContainerStatuses", ""),
    ):
        if before.get(field):
            _check_transitions(status.get(field) or [], before[field], spec, containers, f"status.{field}", errors)
    _check_claim_statuses(status.get("resourceClaimStatuses") or (), spec, errors)
    _check_ips(status, before, errors)
    _check_host_ips(status, before, errors)
    return errors


def _check_conditions(conditions: Any, errors: Errors) -> None:
    for index, condition in enumerate(conditions):
        if condition.get("observedGeneration", 0) < 0:
            where = f"status.conditions[{index}].observedGeneration"
            errors.append(invalid(where, condition["observedGeneration"], "must be a non-negative integer"))
        kind = condition.get("type", "")
        if kind not in _SYSTEM_CONDITIONS:
            check_syntax(kind, is_qualified_name, f"status.conditions[{index}].Type", errors)


def _check_transitions(new: list[Obj], old: list[Obj], spec: Obj, containers: str, path: str, errors: Errors) -> None:
    """A container that has terminated and is not restarted stays terminated."""
    if containers and _any_restarts_all(spec):
        return
    by_name = {status.get("name"): status for status in reversed(new)}
    for index, before in enumerate(old):
        ended = (before.get("state") or {}).get("terminated")
        after = by_name.get(before.get("name"))
        if ended is None or after is None or (after.get("state") or {}).get("terminated") is not None:
            continue
        if not containers or not _may_restart(before.get("name", ""), ended.get("exitCode", 0), spec, containers):
            errors.append(forbidden(f"{path}[{index}].state", "may not be transitioned to non-terminated state"))


def _any_restarts_all(spec: Obj) -> bool:
    return any(
        rule.get("action") == "RestartAllContainers"
        for field in ("initContainers", "containers")
        for container in spec.get(field) or ()
        for rule in container.get("restartPolicyRules") or ()
    )


def _may_restart(name: str, exit_code: int, spec: Obj, field: str) -> bool:
    container = next((c for c in spec.get(field) or () if c.get("name") == name), None)
    if container is None:
        return False
    policy = container.get("restartPolicy")
    if policy is not None:
        for rule in container.get("restartPolicyRules") or ():
            codes = rule.get("exitCodes") or {}
            if (exit_code in (codes.get("values") or ())) == (codes.get("operator") == "In"):
                return True
    policy = policy or spec.get("restartPolicy", "Always")
    return policy == "Always" or (policy == "OnFailure" and exit_code != 0)


def _check_claim_statuses(statuses: Any, spec: Obj, errors: Errors) -> None:
    claims = {claim.get("name") for claim in spec.get("resourceClaims") or ()}
    seen: set[str] = set()
    for index, status in enumerate(statuses):
        where, name = f"status.resourceClaimStatuses[{index}]", status.get("name", "")
        if name not in claims:
            detail = "must match the name of an entry in `spec.resourceClaims`"
            errors.append(invalid(f"{where}.name", name, detail))
        if name in seen:
            errors.append(duplicate(f"{where}.name", name))
        seen.add(name)
        if status.get("resourceClaimName") is not None:
            check_syntax(status["resourceClaimName"], is_dns1123_subdomain, f"{where}.resourceClaimName", errors)


def _check_ips(status: Obj, before: Obj, errors: Errors) -> None:
    addresses = status.get("podIPs") or []
    _check_addresses(addresses, before.get("podIPs") or [], "status.podIPs", errors)
    first = status.get("podIP") or ""
    if bool(first) != bool(addresses):
        detail = "podIP and podIPs must either both be set or both be unset"
        errors.append(invalid("status.podIPs", addresses, detail))
    elif addresses and addresses[0].get("ip", "") != first:
        errors.append(invalid("status.podIPs[0].ip", addresses[0].get("ip", ""), "must be equal to `podIP`"))


def _check_host_ips(status: Obj, before: Obj, errors: Errors) -> None:
    addresses = status.get("hostIPs") or []
    if not addresses:
        return
    if addresses[0].get("ip", "") != (status.get("hostIP") or ""):
        errors.append(invalid("status.hostIPs[0].ip", addresses[0].get("ip", ""), "must be equal to `hostIP`"))
    _check_addresses(addresses, before.get("hostIPs") or [], "status.hostIPs", errors)


def _check_addresses(addresses: list[Obj], before: list[Obj], path: str, errors: Errors) -> None:
    """Addresses must be valid, at most one of each family; unchanged ones are not checked."""
    known = {entry.get("ip") for entry in before}
    for index, entry in enumerate(addresses):
        address = entry.get("ip", "")
        if address not in known:
            check_syntax(address, is_ip_legacy, f"{path}[{index}]", errors)
    if len(addresses) > 1:
        parsed = [parse_ip(entry.get("ip", "")) for entry in addresses]
        versions = {address.version for address in parsed if address is not None}
        if len(addresses) > 2 or len(versions) != 2:
            errors.append(invalid(path, addresses, "may specify no more than one IP for each IP family"))
