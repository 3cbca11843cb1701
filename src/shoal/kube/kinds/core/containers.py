"""Containers of a pod: regular ones, init containers (sidecars among them) and ephemeral ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from shoal.base.bounded_cache import bounded_cache
from shoal.errors import duplicate, forbidden, invalid, not_found, not_supported, required, too_many
from shoal.kube.kinds.checks import PROTOCOLS, Errors, check_enum, check_port_number, check_required_enum
from shoal.kube.kinds.core.env import check_env, check_env_from
from shoal.kube.kinds.core.paths import check_descending, has_backsteps
from shoal.kube.kinds.core.probes import check_lifecycle, check_probes
from shoal.kube.kinds.core.resources import check_requirements
from shoal.kube.kinds.core.security import check_container_security
from shoal.kube.names import is_dns1123_label, is_port_name
from shoal.kube.objects import Obj

PULL_POLICIES = frozenset({"Always", "IfNotPresent", "Never"})
_MESSAGE_POLICIES = frozenset({"File", "FallbackToLogsOnError"})
_RESTART_POLICIES = frozenset({"Always", "Never", "OnFailure"})
_RESTART_ACTIONS = frozenset({"Restart", "RestartAllContainers"})
_RESTART_OPERATORS = frozenset({"In", "NotIn"})
_RESIZE_RESOURCES = frozenset({"cpu", "memory"})
_RESIZE_POLICIES = frozenset({"NotRequired", "RestartContainer"})
_PROPAGATIONS = frozenset({"Bidirectional", "HostToContainer", "None"})
_RECURSIVE = frozenset({"Disabled", "IfPossible", "Enabled"})
_MOUNT_OPTIONS = frozenset({"noexec", "nodev", "nosuid"})
_NOT_FOR_INIT = ("lifecycle", "livenessProbe", "readinessProbe", "startupProbe")
_NOT_FOR_EPHEMERAL = (
    "ports", "resources", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle", "resizePolicy",
    "restartPolicy", "restartPolicyRules",
)  # fmt: skip


@dataclass(slots=True)
class PodContext:
    """The data of a pod that the checks of its containers need."""

    volumes: Mapping[str, Obj]  # the valid ones, by name
    claim_names: frozenset[str]
    restart_policy: str
    host_users: bool
    grace_s: int | None
    os_name: str | None


# Most containers of a cluster have one of a few names.
container_name_faults = bounded_cache(4096)(is_dns1123_label)


def check_containers(containers: list[Obj], context: PodContext, path: str, errors: Errors) -> None:
    if not containers:
        errors.append(required(path))
        return
    names: set[str] = set()
    for index, container in enumerate(containers):
        where = f"{path}[{index}]"
        _check_common(container, context, where, errors)
        name = container.get("name", "")
        if name in names:
            errors.append(duplicate(f"{where}.name", name))
        names.add(name)
        _check_running(container, context, where, errors)
        if container.get("restartPolicy") is not None or container.get("restartPolicyRules"):
            _check_restart_policy(container, where, errors)
    _check_host_ports(containers, path, errors)


def check_init_containers(
    containers: list[Obj], regular: list[Obj], context: PodContext, path: str, errors: Errors
) -> None:
    names = {container.get("name", "") for container in regular}
    for index, container in enumerate(containers):
        where = f"{path}[{index}]"
        _check_common(container, context, where, errors)
        if container.get("restartPolicy") is not None or container.get("restartPolicyRules"):
            _check_restart_policy(container, where, errors)
        name = container.get("name", "")
        if name in names:
            errors.append(duplicate(f"{where}.name", name))
        elif name:
            names.add(name)
        _check_host_ports([container], path, errors)
        if container.get("restartPolicy") == "Always":
            _check_running(container, context, where, errors)
        else:
            _check_not_sidecar(container, where, errors)


def _check_not_sidecar(container: Obj, path: str, errors: Errors) -> None:
    for field in _NOT_FOR_INIT:
        if container.get(field) is not None:
            detail = "may not be set for init containers without restartPolicy=Always"
            errors.append(forbidden(f"{path}.{field}", detail))
    for index, policy in enumerate(container.get("resizePolicy") or ()):
        if policy.get("restartPolicy") == "RestartContainer":
            detail = "must not be set to 'RestartContainer' for non-sidecar initContainers"
            errors.append(invalid(f"{path}.resizePolicy[{index}].restartPolicy", "RestartContainer", detail))


def check_ephemeral_containers(
    containers: list[Obj], others: set[str], context: PodContext, path: str, errors: Errors
) -> None:
    """``others``: names of the pod's regular and init containers."""
    names = set(others)
    detail = "cannot be set for an Ephemeral Container"
    for index, container in enumerate(containers):
        where = f"{path}[{index}]"
        _check_common(container, context, where, errors)
        check_image_spaces(container, where, errors)
        name = container.get("name", "")
        if name in names:
            errors.append(duplicate(f"{where}.name", name))
        names.add(name)
        target = container.get("targetContainerName")
        if target and target not in others:
            errors.append(not_found(f"{where}.targetContainerName", target))
        for field in _NOT_FOR_EPHEMERAL:
            if container.get(field):
                errors.append(forbidden(f"{where}.{field}", detail))
        for position, mount in enumerate(container.get("volumeMounts") or ()):
            for field in ("subPath", "subPathExpr"):
                if mount.get(field):
                    errors.append(forbidden(f"{where}.volumeMounts[{position}].{field}", detail))


def check_image_spaces(container: Obj, path: str, errors: Errors) -> None:
    """In a pod, unlike in a template, the name of an image may not begin or end with a space."""
    image = container.get("image", "")
    if image and (image[0].isspace() or image[-1].isspace()):
        errors.append(invalid(f"{path}.image", image, "must not have leading or trailing whitespace"))


def _check_common(container: Obj, context: PodContext, path: str, errors: Errors) -> None:
    """Checks for regular, init and ephemeral containers."""
    get = container.get
    name = get("name")
    if not name:
        errors.append(required(f"{path}.name"))
    else:
        for text in container_name_faults(name):
            errors.append(invalid(f"{path}.name", name, text))
    if not get("image"):
        errors.append(required(f"{path}.image"))
    if get("terminationMessagePolicy") not in _MESSAGE_POLICIES:
        where = f"{path}.terminationMessagePolicy"
        check_required_enum(get("terminationMessagePolicy"), _MESSAGE_POLICIES, where, errors)
    if ports := get("ports"):
        _check_ports(ports, f"{path}.ports", errors)
    if env := get("env"):
        check_env(env, f"{path}.env", errors)
    if sources := get("envFrom"):
        check_env_from(sources, f"{path}.envFrom", errors)
    if get("volumeMounts") or get("volumeDevices"):
        _check_mounts(container, context.volumes, f"{path}.volumeMounts", errors)
        _check_devices(container, context.volumes, f"{path}.volumeDevices", errors)
    if get("imagePullPolicy") not in PULL_POLICIES:
        check_required_enum(get("imagePullPolicy"), PULL_POLICIES, f"{path}.imagePullPolicy", errors)
    if resources := get("resources"):
        check_requirements(resources, f"{path}.resources", errors, claim_names=context.claim_names)
    if policies := get("resizePolicy"):
        _check_resize_policy(policies, context.restart_policy, f"{path}.resizePolicy", errors)
    if security := get("securityContext"):
        check_container_security(security, context.host_users, f"{path}.securityContext", errors)


def _check_running(container: Obj, context: PodContext, path: str, errors: Errors) -> None:
    """Hooks and probes of containers that keep running."""
    lifecycle = container.get("lifecycle")
    if lifecycle is not None:
        check_lifecycle(lifecycle, context.grace_s, context.os_name, f"{path}.lifecycle", errors)
    check_probes(container, context.grace_s, path, errors)


def _check_ports(ports: list[Obj], path: str, errors: Errors) -> None:
    names: set[str] = set()
    for index, port in enumerate(ports):
        name = port.get("name")
        if name:
            if faults := is_port_name(name):
                errors += [invalid(f"{path}[{index}].name", name, text) for text in faults]
            elif name in names:
                errors.append(duplicate(f"{path}[{index}].name", name))
            else:
                names.add(name)
        number = port.get("containerPort", 0)
        if not 1 <= number <= 65535:
            if number == 0:
                errors.append(required(f"{path}[{index}].containerPort"))
            else:
                check_port_number(number, f"{path}[{index}].containerPort", errors)
        host_port = port.get("hostPort")
        if host_port:
            check_port_number(host_port, f"{path}[{index}].hostPort", errors)
        protocol = port.get("protocol")
        if protocol not in PROTOCOLS:
            check_required_enum(protocol, PROTOCOLS, f"{path}[{index}].protocol", errors)


def _check_host_ports(containers: list[Obj], path: str, errors: Errors) -> None:
    """No two ports of containers may use the same port of the node."""
    taken: set[str] = set()
    for index, container in enumerate(containers):
        for position, port in enumerate(container.get("ports") or ()):
            number = port.get("hostPort")
            if not number:
                continue
            key = f"{port.get('protocol', '')}/{port.get('hostIP', '')}/{number}"
            if key in taken:
                errors.append(duplicate(f"{path}[{index}].ports[{position}].hostPort", key))
            taken.add(key)


def _check_mounts(container: Obj, volumes: Mapping[str, Obj], path: str, errors: Errors) -> None:
    devices = {device.get("name"): device.get("devicePath") for device in container.get("volumeDevices") or ()}
    mount_paths: set[str] = set()
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        where = f"{path}[{index}]"
        name, mount_path = mount.get("name", ""), mount.get("mountPath", "")
        if not name:
            errors.append(required(f"{where}.name"))
        if name not in volumes:
            errors.append(not_found(f"{where}.name", name))
        if not mount_path:
            errors.append(required(f"{where}.mountPath"))
        if mount_path in mount_paths:
            errors.append(invalid(f"{where}.mountPath", mount_path, "must be unique"))
        mount_paths.add(mount_path)
        if devices and name in devices:
            errors.append(invalid(f"{where}.name", name, "must not already exist in volumeDevices"))
        if devices and mount_path in devices.values():
            detail = "must not already exist as a path in volumeDevices"
            errors.append(invalid(f"{where}.mountPath", mount_path, detail))
        if len(mount) > 2:
            _check_mount_options(mount, container, volumes, path, where, errors)


def _check_mount_options(
    mount: Obj, container: Obj, volumes: Mapping[str, Obj], path: str, where: str, errors: Errors
) -> None:
    # As in Kubernetes, some of these are reported with the path of the list instead of the item.
    sub_path, expression = mount.get("subPath"), mount.get("subPathExpr")
    if sub_path:
        check_descending(sub_path, f"{path}.subPath", errors)
    if expression:
        if sub_path:
            detail = "subPathExpr and subPath are mutually exclusive"
            errors.append(invalid(f"{where}.subPathExpr", expression, detail))
        check_descending(expression, f"{path}.subPathExpr", errors)
    propagation = mount.get("mountPropagation")
    if propagation is not None:
        check_enum(propagation, _PROPAGATIONS, f"{path}.mountPropagation", errors)
        if propagation == "Bidirectional" and not (container.get("securityContext") or {}).get("privileged"):
            detail = "Bidirectional mount propagation is available only to privileged containers"
            errors.append(forbidden(f"{path}.mountPropagation", detail))
    recursive = mount.get("recursiveReadOnly")
    if recursive is not None:
        _check_recursive_read_only(recursive, mount, f"{path}.recursiveReadOnly", errors)
    options = mount.get("bindMountOptions")
    if options:
        _check_bind_options(options, volumes.get(mount.get("name", "")), f"{where}.bindMountOptions", errors)


def _check_recursive_read_only(value: str, mount: Obj, path: str, errors: Errors) -> None:
    if value not in _RECURSIVE:
        errors.append(not_supported(path, value, _RECURSIVE))
    elif value != "Disabled":
        if not mount.get("readOnly"):
            errors.append(forbidden(path, "may only be specified when readOnly is true"))
        if mount.get("mountPropagation") not in (None, "None"):
            errors.append(forbidden(path, "may only be specified when mountPropagation is None or not specified"))


def _check_bind_options(options: list[str], volume: Obj | None, path: str, errors: Errors) -> None:
    seen: set[str] = set()
    for index, option in enumerate(options):
        check_enum(option, _MOUNT_OPTIONS, f"{path}[{index}]", errors)
        if option in seen:
            errors.append(duplicate(f"{path}[{index}]", option))
        seen.add(option)
    if volume and volume.get("image") is not None:
        errors.append(invalid(path, options, "bindMountOptions may not be used with image volumes"))


def _check_devices(container: Obj, volumes: Mapping[str, Obj], path: str, errors: Errors) -> None:
    mounts = {mount.get("name"): mount.get("mountPath") for mount in container.get("volumeMounts") or ()}
    names: set[str] = set()
    device_paths: set[str] = set()
    for index, device in enumerate(container.get("volumeDevices") or ()):
        name, device_path = device.get("name", ""), device.get("devicePath", "")
        at_name, at_path = f"{path}[{index}].name", f"{path}[{index}].devicePath"
        volume = volumes.get(name)
        if not name:
            errors.append(required(at_name))
        if name in names:
            errors.append(invalid(at_name, name, "must be unique"))
        if volume is None:
            errors.append(not_found(at_name, name))
        elif volume.get("persistentVolumeClaim") is None and volume.get("ephemeral") is None:
            detail = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"
            errors.append(invalid(at_name, name, detail))
        if not device_path:
            errors.append(required(at_path))
        if device_path in device_paths:
            errors.append(invalid(at_path, device_path, "must be unique"))
        if has_backsteps(device_path):
            errors.append(invalid(at_path, device_path, "can not contain backsteps ('..')"))
        else:
            device_paths.add(device_path)
        if name in mounts:
            errors.append(invalid(at_name, name, "must not already exist in volumeMounts"))
        if device_path in mounts.values():
            errors.append(invalid(at_path, device_path, "must not already exist as a path in volumeMounts"))
        if name:
            names.add(name)


def _check_resize_policy(policies: list[Obj], pod_restart_policy: str, path: str, errors: Errors) -> None:
    seen: set[str] = set()
    for index, policy in enumerate(policies):
        resource, restart = policy.get("resourceName", ""), policy.get("restartPolicy", "")
        if resource in seen:
            errors.append(duplicate(f"{path}[{index}]", resource))
        seen.add(resource)
        check_required_enum(resource, _RESIZE_RESOURCES, path, errors)
        check_required_enum(restart, _RESIZE_POLICIES, path, errors)
        if pod_restart_policy == "Never" and restart != "NotRequired":
            detail = "must be 'NotRequired' when pod `restartPolicy` is 'Never'"
            errors.append(invalid(path, restart, detail))


def _check_restart_policy(container: Obj, path: str, errors: Errors) -> None:
    """Restart rules of one container, which take precedence over those of the pod."""
    policy, rules = container.get("restartPolicy"), container.get("restartPolicyRules") or ()
    if policy is None:
        detail = "must specify restartPolicy when restart rules are used"
        errors.append(required(f"{path}.restartPolicy", detail))
    else:
        check_enum(policy, _RESTART_POLICIES, f"{path}.restartPolicy", errors)
    if len(rules) > 20:
        errors.append(too_many(f"{path}.restartPolicyRules", len(rules), 20))
    for index, rule in enumerate(rules):
        where = f"{path}.restartPolicyRules[{index}]"
        check_enum(rule.get("action", ""), _RESTART_ACTIONS, f"{where}.action", errors)
        codes = rule.get("exitCodes")
        if codes is None:
            errors.append(required(f"{where}.exitCodes", "must be specified"))
            continue
        check_enum(codes.get("operator", ""), _RESTART_OPERATORS, f"{where}.exitCodes.operator", errors)
        values = codes.get("values") or ()
        if len(values) > 255:
            errors.append(too_many(f"{where}.exitCodes.values", len(values), 255))
