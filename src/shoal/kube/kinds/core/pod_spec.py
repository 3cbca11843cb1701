"""Validation of pod specs, in pods and templates."""

from __future__ import annotations

from typing import Final

from shoal.errors import FieldError, duplicate, forbidden, invalid, not_found, required, too_long
from shoal.kube.kinds.checks import (
    Errors,
    check_enum,
    check_ip,
    check_labels,
    check_range,
    check_required_enum,
    check_syntax,
    quantity_of,
    size_bytes,
)
from shoal.kube.kinds.core.containers import (
    PodContext,
    check_containers,
    check_ephemeral_containers,
    check_init_containers,
    container_name_faults,
)
from shoal.kube.kinds.core.resources import (
    aggregate,
    check_requirements,
    is_huge_page,
    is_pod_level,
    resource_name_faults,
)
from shoal.kube.kinds.core.scheduling import (
    check_affinity,
    check_scheduling_gates,
    check_spread_constraints,
    check_tolerations,
)
from shoal.kube.kinds.core.security import (
    CONTAINER_LISTS,
    check_host_process,
    check_os_fields,
    check_pod_security,
)
from shoal.kube.kinds.core.volumes import check_volumes
from shoal.kube.names import (
    is_dns1123_label,
    is_dns1123_subdomain,
    is_dns1123_subdomain_with_underscore,
    is_qualified_name,
)
from shoal.kube.objects import Obj

RESTART_POLICIES: Final = frozenset({"Always", "OnFailure", "Never"})
_DNS_POLICIES = frozenset({"ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"})
_PREEMPTION = frozenset({"PreemptLowerPriority", "Never"})
_SYSTEMS = frozenset({"linux", "windows"})
_MAX_INT32 = 2**31 - 1
_NO_VOLUMES: dict[str, Obj] = {}
_NO_CLAIMS: frozenset[str] = frozenset()
# Fields that most pods do not have; one set operation shows whether any of their checks is needed.
_RARE = frozenset({
    "activeDeadlineSeconds", "affinity", "dnsConfig", "hostAliases", "hostIPC", "hostNetwork", "hostPID", "hostUsers",
    "hostname", "hostnameOverride", "imagePullSecrets", "nodeSelector", "os", "overhead", "preemptionPolicy",
    "priorityClassName", "readinessGates", "resourceClaims", "resources", "runtimeClassName", "schedulingGates",
    "schedulingGroup", "shareProcessNamespace", "subdomain", "topologySpreadConstraints",
})  # fmt: skip


def validate_pod_spec(
    spec: Obj, path: str, errors: list[FieldError], *, pod_name: str = "", is_pod: bool = False
) -> None:
    """Append the errors of a spec that has its defaults. ``is_pod`` is False for templates."""
    get = spec.get
    grace_s = get("terminationGracePeriodSeconds")
    if grace_s is None:
        errors.append(required(f"{path}.terminationGracePeriodSeconds"))
    listed = get("volumes")
    volumes = check_volumes(listed, pod_name, f"{path}.volumes", errors) if listed else _NO_VOLUMES
    claims = get("resourceClaims")
    context = PodContext(
        volumes,
        frozenset(claim.get("name", "") for claim in claims) - {""} if claims else _NO_CLAIMS,
        get("restartPolicy", ""),
        get("hostUsers") is not False,
        grace_s,
        (get("os") or {}).get("name", "") if get("os") is not None else None,
    )
    _check_all_containers(spec, context, path, errors)
    if get("restartPolicy") not in RESTART_POLICIES:
        check_required_enum(get("restartPolicy"), RESTART_POLICIES, f"{path}.restartPolicy", errors)
    if get("dnsPolicy") not in _DNS_POLICIES:
        check_required_enum(get("dnsPolicy"), _DNS_POLICIES, f"{path}.dnsPolicy", errors)
    if get("securityContext"):
        check_pod_security(spec["securityContext"], spec, f"{path}.securityContext", errors)
    if _names_windows_options(spec):
        check_host_process(spec, path, errors)
    account = get("serviceAccountName")
    if account:
        for text in _account_faults(account):
            errors.append(invalid(f"{path}.serviceAccountName", account, text))
    if get("tolerations"):
        check_tolerations(spec["tolerations"], f"{path}.tolerations", errors)
    if get("nodeName"):
        check_syntax(spec["nodeName"], is_dns1123_subdomain, f"{path}.nodeName", errors)
    if get("dnsPolicy") == "None" or not _RARE.isdisjoint(spec):
        _check_rare(spec, path, errors, is_pod)


def _names_windows_options(spec: Obj) -> bool:
    if spec.get("securityContext") and "windowsOptions" in spec["securityContext"]:
        return True
    for field in CONTAINER_LISTS:
        for container in spec.get(field) or ():
            security = container.get("securityContext")
            if security and "windowsOptions" in security:
                return True
    return False


def _account_faults(name: str) -> tuple[str, ...]:
    """Errors of the name of a service account. Most names are DNS labels, so this is checked first."""
    return container_name_faults(name) and is_dns1123_subdomain(name)


def _check_all_containers(spec: Obj, context: PodContext, path: str, errors: Errors) -> None:
    containers = spec.get("containers") or []
    check_containers(containers, context, f"{path}.containers", errors)
    init = spec.get("initContainers") or []
    if init:
        check_init_containers(init, containers, context, f"{path}.initContainers", errors)
    ephemeral = spec.get("ephemeralContainers")
    if ephemeral:
        names = {container.get("name", "") for container in (*containers, *init)}
        check_ephemeral_containers(ephemeral, names, context, f"{path}.ephemeralContainers", errors)
    _check_file_volumes(spec, path, errors)


def _check_file_volumes(spec: Obj, path: str, errors: Errors) -> None:
    """Variables read from a file need a volume that containers can write."""
    for field in CONTAINER_LISTS:
        for index, container in enumerate(spec.get(field) or ()):
            for position, variable in enumerate(container.get("env") or ()):
                source = variable.get("valueFrom")
                reference = source.get("fileKeyRef") if source else None
                if reference is None:
                    continue
                where = f"{path}.{field}[{index}].env[{position}].valueFrom.fileKeyRef.volumeName"
                name = reference.get("volumeName", "")
                volume = next((v for v in spec.get("volumes") or () if v.get("name") == name), None)
                if volume is None:
                    errors.append(not_found(where, name))
                elif volume.get("emptyDir") is None:
                    errors.append(invalid(where, name, "referenced volume must be of type emptyDir"))


def _check_rare(spec: Obj, path: str, errors: Errors, is_pod: bool) -> None:
    get = spec.get
    if get("resourceClaims"):
        _check_resource_claims(spec["resourceClaims"], f"{path}.resourceClaims", errors)
    if get("resources") is not None:
        _check_pod_resources(spec, f"{path}.resources", errors)
    if get("hostNetwork"):
        _check_host_network_ports(spec, path, errors, is_pod)
    check_labels(get("nodeSelector"), f"{path}.nodeSelector", errors)
    if get("affinity"):
        check_affinity(spec["affinity"], f"{path}.affinity", errors)
    _check_dns_config(get("dnsConfig"), get("dnsPolicy"), f"{path}.dnsConfig", errors)
    for index, gate in enumerate(get("readinessGates") or ()):
        kind = gate.get("conditionType", "")
        check_syntax(kind, is_qualified_name, f"{path}.readinessGates[{index}].conditionType", errors)
    if get("schedulingGates"):
        check_scheduling_gates(spec["schedulingGates"], f"{path}.schedulingGates", errors)
    if get("topologySpreadConstraints"):
        check_spread_constraints(spec["topologySpreadConstraints"], f"{path}.topologySpreadConstraints", errors)
    _check_host_namespaces(spec, path, errors)
    _check_names(spec, path, errors)
    _check_group(get("schedulingGroup"), f"{path}.schedulingGroup", errors)
    if get("activeDeadlineSeconds") is not None:
        check_range(spec["activeDeadlineSeconds"], 1, _MAX_INT32, f"{path}.activeDeadlineSeconds", errors)
    for index, alias in enumerate(get("hostAliases") or ()):
        check_ip(alias.get("ip", ""), f"{path}.hostAliases[{index}].ip", errors)
        for position, name in enumerate(alias.get("hostnames") or ()):
            check_syntax(name, is_dns1123_subdomain, f"{path}.hostAliases[{index}].hostnames[{position}]", errors)
    if get("preemptionPolicy") is not None:
        check_required_enum(spec["preemptionPolicy"], _PREEMPTION, f"{path}.preemptionPolicy", errors)
    if get("overhead"):
        check_requirements({"limits": spec["overhead"]}, f"{path}.overhead", errors)
    if get("os") is not None:
        _check_os(spec, path, errors)


def _check_names(spec: Obj, path: str, errors: Errors) -> None:
    get = spec.get
    for field in ("hostname", "subdomain"):
        if get(field):
            check_syntax(spec[field], is_dns1123_label, f"{path}.{field}", errors)
    for field in ("priorityClassName", "runtimeClassName"):
        if get(field):
            check_syntax(spec[field], is_dns1123_subdomain, f"{path}.{field}", errors)
    name, where = get("hostnameOverride"), f"{path}.hostnameOverride"
    if name is None:
        return
    if get("setHostnameAsFQDN"):
        errors.append(forbidden(where, "may not be specified when setHostnameAsFQDN is true"))
    if get("hostNetwork"):
        errors.append(forbidden(where, "may not be specified when hostNetwork is true"))
    if size_bytes(name) > 64:
        errors.append(too_long(where, 64))
    check_syntax(name, is_dns1123_subdomain, where, errors)


def _check_group(group: Obj | None, path: str, errors: Errors) -> None:
    if group is None:
        return
    name = group.get("podGroupName")
    if name is None:
        errors.append(invalid(f"{path}.podGroupName", None, "must specify one of: `podGroupName`"))
    else:
        check_syntax(name, is_dns1123_subdomain, f"{path}.podGroupName", errors)


def _check_resource_claims(claims: list[Obj], path: str, errors: Errors) -> None:
    seen: set[str] = set()
    for index, claim in enumerate(claims):
        where, name = f"{path}[{index}]", claim.get("name", "")
        if not name:
            errors.append(required(f"{where}.name"))
        elif name in seen:
            errors.append(duplicate(f"{where}.name", name))
        else:
            check_syntax(name, is_dns1123_label, f"{where}.name", errors)
            seen.add(name)
        fields = [f for f in ("resourceClaimName", "resourceClaimTemplateName") if claim.get(f) is not None]
        if len(fields) > 1:
            detail = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            errors.append(invalid(where, claim, detail))
        if not fields:
            detail = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
            errors.append(invalid(where, claim, detail))
        for field in fields:
            check_syntax(claim[field], is_dns1123_subdomain, f"{where}.{field}", errors)


def _check_pod_resources(spec: Obj, path: str, errors: Errors) -> None:
    """Requests and limits of the whole pod, which may not be below those of its containers."""
    resources = spec["resources"]
    if (spec.get("os") or {}).get("name") == "windows":
        errors.append(forbidden(path, "may not be set for a windows pod"))
        return
    if resources.get("claims") is not None:
        errors.append(forbidden(f"{path}.claims", "claims may not be set for Resources at pod-level"))
    lists = {field: resources.get(field) or {} for field in ("limits", "requests")}
    check_requirements(lists, path, errors, faults=resource_name_faults)
    for field, amounts in lists.items():
        for name in amounts:
            if not is_pod_level(name):
                check_enum(name, ("cpu", "hugepages-", "memory"), f"{path}.{field}[{name}]", errors)
    for field, check_all in (("requests", True), ("limits", False)):
        for name, needed in aggregate(spec, field).items():
            own = lists[field].get(name)
            if own is not None and (check_all or is_huge_page(name)) and needed > quantity_of(own):
                detail = f"must be greater than or equal to aggregate container {field} of {needed}"
                errors.append(invalid(f"{path}.{field}[{name}]", str(quantity_of(own)), detail))
    for index, container in enumerate(spec.get("containers") or ()):
        for name, text in ((container.get("resources") or {}).get("limits") or {}).items():
            own = lists["limits"].get(name)
            if own is not None and quantity_of(text) > quantity_of(own):
                where = f"{path}.containers[{index}][{name}].limits"
                detail = f"must be less than or equal to pod limits of {quantity_of(own)}"
                errors.append(invalid(where, str(quantity_of(text)), detail))


def _check_host_network_ports(spec: Obj, path: str, errors: Errors, is_pod: bool) -> None:
    for index, container in enumerate(spec.get("containers") or ()):
        for position, port in enumerate(container.get("ports") or ()):
            host_port = port.get("hostPort", 0)
            if (is_pod or host_port) and host_port != port.get("containerPort", 0):
                where = f"{path}.containers[{index}].ports[{position}].hostPort"
                errors.append(invalid(where, host_port, "must match `containerPort` when `hostNetwork` is true"))


def _check_host_namespaces(spec: Obj, path: str, errors: Errors) -> None:
    get = spec.get
    if get("shareProcessNamespace") and get("hostPID"):
        detail = "ShareProcessNamespace and HostPID cannot both be enabled"
        errors.append(invalid(f"{path}.shareProcessNamespace", True, detail))
    if get("hostUsers") is not False:
        return
    detail = "when `hostUsers` is false"
    for field, shown in (("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")):
        if get(field):
            errors.append(forbidden(f"{path}.{shown}", detail))
    for field in CONTAINER_LISTS:
        for index, container in enumerate(get(field) or ()):
            if container.get("volumeDevices"):
                errors.append(forbidden(f"{path}.{field}[{index}].volumeDevices", detail))


def _check_dns_config(config: Obj | None, policy: str | None, path: str, errors: Errors) -> None:
    if policy == "None":
        if config is None:
            errors.append(required(path, "must provide `dnsConfig` when `dnsPolicy` is None"))
            return
        if not config.get("nameservers"):
            detail = "must provide at least one DNS nameserver when `dnsPolicy` is None"
            errors.append(required(f"{path}.nameservers", detail))
            return
    if not config:
        return
    servers, searches = config.get("nameservers") or [], config.get("searches") or []
    if len(servers) > 3:
        errors.append(invalid(f"{path}.nameservers", servers, "must not have more than 3 nameservers"))
    for index, server in enumerate(servers):
        check_ip(server, f"{path}.nameservers[{index}]", errors)
    if len(searches) > 32:
        errors.append(invalid(f"{path}.searches", searches, "must not have more than 32 search paths"))
    if size_bytes(" ".join(searches)) > 2048:
        detail = "must not have more than 2048 characters (including spaces) in the search list"
        errors.append(invalid(f"{path}.searches", searches, detail))
    for index, search in enumerate(searches):
        if search != ".":
            name = search.removesuffix(".")
            check_syntax(name, is_dns1123_subdomain_with_underscore, f"{path}.searches[{index}]", errors)
    for index, option in enumerate(config.get("options") or ()):
        if not option.get("name"):
            errors.append(required(f"{path}.options[{index}]", "must not be empty"))


def _check_os(spec: Obj, path: str, errors: Errors) -> None:
    name = spec["os"].get("name", "")
    if not name:
        errors.append(required(f"{path}.os.name"))
    elif name not in _SYSTEMS:
        check_enum(name, _SYSTEMS, f"{path}.os", errors)
    else:
        check_os_fields(spec, name, path, errors)
