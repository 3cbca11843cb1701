"""Warnings about pods that are valid but probably a mistake."""

from __future__ import annotations

from collections.abc import Iterator

from shoal.kube.kinds.checks import quantity_of
from shoal.kube.names import is_dns1123_label
from shoal.kube.objects import Obj

_OLD_LABELS = {
    "beta.kubernetes.io/arch": 'deprecated since v1.14; use "kubernetes.io/arch" instead',
    "beta.kubernetes.io/os": 'deprecated since v1.14; use "kubernetes.io/os" instead',
    "failure-domain.beta.kubernetes.io/region": 'deprecated since v1.17; use "topology.kubernetes.io/region" instead',
    "failure-domain.beta.kubernetes.io/zone": 'deprecated since v1.17; use "topology.kubernetes.io/zone" instead',
    "beta.kubernetes.io/instance-type": 'deprecated since v1.17; use "node.kubernetes.io/instance-type" instead',
    "app.kubernetes.io/created-by": "deprecated since v1.9",
    "scheduler.alpha.kubernetes.io/preferAvoidPods": "deprecated since v1.22; use Taints and Tolerations instead",
    "node-role.kubernetes.io/master": 'use "node-role.kubernetes.io/control-plane" instead',
}
_OLD_ANNOTATIONS = {
    "scheduler.alpha.kubernetes.io/critical-pod": (
        'non-functional in v1.16+; use the "priorityClassName" field instead'
    ),
    "security.alpha.kubernetes.io/sysctls": 'non-functional in v1.11+; use the "sysctls" field instead',
    "security.alpha.kubernetes.io/unsafe-sysctls": 'non-functional in v1.11+; use the "sysctls" field instead',
}
_OLD_VOLUMES = {
    "photonPersistentDisk": "deprecated in v1.11, non-functional in v1.16+",
    "gitRepo": "deprecated in v1.11, and disabled by default in v1.33+",
    "scaleIO": "deprecated in v1.16, non-functional in v1.22+",
    "flocker": "deprecated in v1.22, non-functional in v1.25+",
    "storageos": "deprecated in v1.22, non-functional in v1.25+",
    "quobyte": "deprecated in v1.22, non-functional in v1.25+",
    "glusterfs": "deprecated in v1.25, non-functional in v1.26+",
    "cephfs": "deprecated in v1.28, non-functional in v1.31+",
    "rbd": "deprecated in v1.28, non-functional in v1.31+",
}
_BYTES = ("memory", "ephemeral-storage")


def pod_warnings(pod: Obj) -> list[str]:
    """Warnings about a pod to be created."""
    return [*_name_warnings(pod), *template_warnings(pod, "")]


def metadata_warnings(pod: Obj) -> list[str]:
    """The warnings about a pod that do not depend on its spec."""
    annotations = (pod.get("metadata") or {}).get("annotations") or {}
    return [*_name_warnings(pod), *_annotation_warnings(annotations, "")]


def _name_warnings(pod: Obj) -> Iterator[str]:
    name = (pod.get("metadata") or {}).get("name", "")
    if name and (faults := is_dns1123_label(name)):
        listed = " ".join(faults)
        yield (
            "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; "
            f"a DNS label is recommended: [{listed}]"
        )


def _annotation_warnings(annotations: dict[str, str], prefix: str) -> Iterator[str]:
    for key in annotations:
        if key in _OLD_ANNOTATIONS:
            yield f"{prefix}metadata.annotations[{key}]: {_OLD_ANNOTATIONS[key]}"


def template_warnings(template: Obj, path: str) -> Iterator[str]:
    """Warnings about a template at ``path``, or about a pod when the path is empty."""
    prefix = f"{path}." if path else ""
    spec, annotations = template.get("spec") or {}, (template.get("metadata") or {}).get("annotations") or {}
    at = f"{prefix}spec"
    for key in spec.get("nodeSelector") or ():
        if key in _OLD_LABELS:
            yield f"{at}.nodeSelector[{key}]: {_OLD_LABELS[key]}"
    for index, constraint in enumerate(spec.get("topologySpreadConstraints") or ()):
        where, key = f"{at}.topologySpreadConstraints[{index}]", constraint.get("topologyKey", "")
        if key in _OLD_LABELS:
            yield f"{where}.topologyKey: {key} is {_OLD_LABELS[key]}"
        if constraint.get("labelSelector") is None:
            yield f"{where}.labelSelector: a null labelSelector results in matching no pod"
    yield from _annotation_warnings(annotations, prefix)
    for index, volume in enumerate(spec.get("volumes") or ()):
        for kind in volume:
            if kind in _OLD_VOLUMES:
                yield f"{at}.volumes[{index}].{kind}: {_OLD_VOLUMES[kind]}"
    yield from _duplicates(spec.get("hostAliases") or [], "ip", f"{at}.hostAliases")
    secrets = spec.get("imagePullSecrets") or []
    yield from _duplicates(secrets, "name", f"{at}.imagePullSecrets")
    for index, secret in enumerate(secrets):
        if not secret.get("name"):
            yield f'{at}.imagePullSecrets[{index}].name: invalid empty name ""'
    yield from _fractions(spec.get("overhead"), f"{at}.overhead")
    yield from _container_warnings(spec, at)
    if (spec.get("terminationGracePeriodSeconds") or 0) < 0:
        yield f"{at}.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1"


def _duplicates(items: list[Obj], field: str, path: str) -> Iterator[str]:
    seen: set[str] = set()
    for index, item in enumerate(items):
        value = item.get(field, "")
        if value in seen:
            yield f'{path}[{index}].{field}: duplicate {field} "{value}"'
        seen.add(value)


def _fractions(resources: dict[str, str] | None, path: str) -> Iterator[str]:
    for name in _BYTES:
        text = resources.get(name) if resources else None
        if text is not None and text[-1:] == "m" and quantity_of(text).milli() % 1000:
            yield f'{path}[{name}]: fractional byte value "{text}" is invalid, must be an integer'


def _container_warnings(spec: Obj, path: str) -> Iterator[str]:
    ports: dict[str, list[tuple[str, Obj]]] = {}
    names: dict[str, str] = {}
    for field in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(field) or ()):
            at = f"{path}.{field}[{index}]"
            resources = container.get("resources")
            if resources:
                yield from _fractions(resources.get("limits"), f"{at}.resources.limits")
                yield from _fractions(resources.get("requests"), f"{at}.resources.requests")
            yield from _hidden_variables(container.get("env") or [], f"{at}.env")
            for position, port in enumerate(container.get("ports") or ()):
                where = f"{at}.ports[{position}]"
                key = f"{port.get('containerPort', 0)}/{port.get('protocol', '')}"
                for other_path, other in ports.setdefault(key, []):
                    yield from _port_overlap(port, other, where, other_path)
                ports[key].append((where, port))
                name = port.get("name")
                if name and name in names:
                    first = names[name]
                    yield (
                        f'{where}: duplicate port name "{name}" with {first}, services and probes that select ports '
                        f"by name will use {first}"
                    )
                elif name:
                    names[name] = where


def _port_overlap(port: Obj, other: Obj, where: str, other_path: str) -> Iterator[str]:
    ip, other_ip = port.get("hostIP", ""), other.get("hostIP", "")
    number, other_number = port.get("hostPort", 0), other.get("hostPort", 0)
    if ip == other_ip and number == other_number:
        yield f"{where}: duplicate port definition with {other_path}"
    elif not number or not other_number:
        yield f"{where}: overlapping port definition with {other_path}"
    elif number == other_number and bool(ip) != bool(other_ip):
        yield f"{where}: dangerously ambiguous port definition with {other_path}"


def _hidden_variables(variables: list[Obj], path: str) -> Iterator[str]:
    if len(variables) < 2:
        return
    seen: set[str] = set()
    for index, variable in enumerate(variables):
        name, value = variable.get("name", ""), variable.get("value", "")
        reference = f"$({name})"
        extends = reference in value and value != reference and variable.get("valueFrom") is None
        if name in seen and not extends:
            yield f'{path}[{index}]: hides previous definition of "{name}", which may be dropped when using apply'
        seen.add(name)
