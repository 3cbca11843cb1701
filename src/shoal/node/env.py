"""The environment of a container, from its spec, config maps, secrets, its pod, and services; pure.

Later variables win: service links, then ``envFrom`` in order, then ``env`` in order. ``$(NAME)`` refers to an earlier
variable.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from shoal.kube import quantity
from shoal.kube.objects import Obj
from shoal.kube.quantity import Quantity
from shoal.node.containers import find
from shoal.node.errors import ConfigFault
from shoal.node.proxy.plan import served_ports

Objects = Mapping[str, Obj | None]  # by name; None: not found


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentSources:
    """Objects that an environment may refer to, besides the pod itself."""

    config_maps: Objects = field(default_factory=dict)
    secrets: Objects = field(default_factory=dict)
    services: tuple[Obj, ...] = ()  # services with links in the pod, see ``linked_services``
    pod_addresses: tuple[str, ...] = ()
    host_addresses: tuple[str, ...] = ()
    allocatable: Mapping[str, Quantity] = field(default_factory=dict)  # of the node: used for missing limits


@dataclass(frozen=True, slots=True)
class EnvironmentReference:
    """A config map or secret that a container's environment needs."""

    resource: str  # configmaps, secrets
    name: str


def references(container: Obj) -> set[EnvironmentReference]:
    """The objects to read before calling ``environment``."""
    found: set[EnvironmentReference] = set()
    for each in container.get("envFrom") or ():
        for key, resource in (("configMapRef", "configmaps"), ("secretRef", "secrets")):
            if each.get(key):
                found.add(EnvironmentReference(resource, each[key].get("name", "")))
    for each in container.get("env") or ():
        source = each.get("valueFrom") or {}
        for key, resource in (("configMapKeyRef", "configmaps"), ("secretKeyRef", "secrets")):
            if source.get(key):
                found.add(EnvironmentReference(resource, source[key].get("name", "")))
    return found


def environment(pod: Obj, container: Obj, sources: EnvironmentSources) -> tuple[tuple[str, str], ...]:
    """The variables, in order. Raise ConfigFault for a missing source."""
    links = service_links(sources.services)
    own: dict[str, str] = {}
    for each in container.get("envFrom") or ():
        own |= _from_all(each, pod, sources)

    def lookup(name: str) -> str | None:
        return own.get(name, links.get(name))

    for each in container.get("env") or ():
        if each.get("value"):
            own[each["name"]] = expand(each["value"], lookup)
        elif each.get("valueFrom"):
            value = _from_one(each["valueFrom"], pod, container, sources)
            if value is not None:
                own[each["name"]] = value
        else:
            own[each["name"]] = ""
    return tuple((links | own).items())


def expand(text: str, lookup: Callable[[str], str | None]) -> str:
    """Replace ``$(NAME)`` by values; unknown names stay as they are, ``$$`` is a dollar sign."""
    if "$" not in text:
        return text
    parts: list[str] = []
    at = 0
    while True:
        dollar = text.find("$", at)
        if dollar < 0 or dollar + 1 == len(text):
            parts.append(text[at:])
            return "".join(parts)
        parts.append(text[at:dollar])
        following = text[dollar + 1]
        end = text.find(")", dollar) if following == "(" else -1
        if following == "$":
            parts.append("$")
            at = dollar + 2
        elif end >= 0:
            name = text[dollar + 2 : end]
            value = lookup(name)
            parts.append(f"$({name})" if value is None else value)
            at = end + 1
        else:
            parts.append("$" + following)
            at = dollar + 2


# config maps and secrets


def _missing(resource: str, name: str) -> ConfigFault:
    return ConfigFault(f'{resource} "{name}" not found')


def _data(resource: str, obj: Obj) -> dict[str, str]:
    if resource == "configmap":
        return obj.get("data") or {}
    return {key: base64.b64decode(value).decode(errors="replace") for key, value in (obj.get("data") or {}).items()}


def _from_all(each: Obj, pod: Obj, sources: EnvironmentSources) -> dict[str, str]:
    for key, resource, objects in (
        ("configMapRef", "configmap", sources.config_maps),
        ("secretRef", "secret", sources.secrets),
    ):
        reference = each.get(key)
        if reference:
            obj = objects.get(reference.get("name", ""))
            if obj is None:
                if reference.get("optional"):
                    return {}
                raise _missing(resource, reference.get("name", ""))
            prefix = each.get("prefix") or ""
            return {prefix + name: value for name, value in sorted(_data(resource, obj).items())}
    return {}


def _from_one(source: Obj, pod: Obj, container: Obj, sources: EnvironmentSources) -> str | None:
    """The value, or None if an optional source is missing."""
    if reference := source.get("fieldRef"):
        return pod_field(pod, reference["fieldPath"], sources)
    if reference := source.get("resourceFieldRef"):
        return resource_field(pod, container, reference, sources.allocatable)
    if reference := source.get("configMapKeyRef"):
        return _key(pod, reference, "configmap", "ConfigMap", sources.config_maps)
    if reference := source.get("secretKeyRef"):
        return _key(pod, reference, "secret", "Secret", sources.secrets)
    raise ConfigFault("an environment variable has a source that this node does not support")


def _key(pod: Obj, reference: Obj, resource: str, kind: str, objects: Objects) -> str | None:
    name, key, optional = reference.get("name", ""), reference["key"], bool(reference.get("optional"))
    obj = objects.get(name)
    if obj is None:
        if optional:
            return None
        raise _missing(resource, name)
    value = _data(resource, obj).get(key)
    if value is None and not optional:
        raise ConfigFault(f"couldn't find key {key} in {kind} {pod['metadata']['namespace']}/{name}")
    return value


# the downward API


def pod_field(pod: Obj, path: str, sources: EnvironmentSources) -> str:
    """A field of the pod as text, for ``fieldRef``."""
    about, spec = pod["metadata"], pod["spec"]
    group, bracket, rest = path.partition("['")
    if bracket and group in ("metadata.labels", "metadata.annotations"):
        values = about.get(group.removeprefix("metadata.")) or {}
        return str(values.get(rest.removesuffix("']"), ""))
    if path in ("metadata.labels", "metadata.annotations"):
        values = about.get(path.removeprefix("metadata.")) or {}
        return "\n".join(f"{key}={_quoted(value)}" for key, value in sorted(values.items()))
    simple = {
        "metadata.name": about["name"],
        "metadata.namespace": about["namespace"],
        "metadata.uid": about["uid"],
        "spec.nodeName": spec.get("nodeName", ""),
        "spec.serviceAccountName": spec.get("serviceAccountName", ""),
        "status.hostIP": next(iter(sources.host_addresses), ""),
        "status.hostIPs": ",".join(sources.host_addresses),
        "status.podIP": next(iter(sources.pod_addresses), ""),
        "status.podIPs": ",".join(sources.pod_addresses),
    }
    if path not in simple:
        raise ConfigFault(f"unsupported fieldPath: {path}")
    return str(simple[path])


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return f'"{escaped}"'


def resource_field(pod: Obj, container: Obj, reference: Obj, allocatable: Mapping[str, Quantity]) -> str:
    """A limit or request of a container in units of the divisor, rounded up. A missing limit is the node's capacity."""
    name = reference.get("containerName")
    if name:
        found = find(pod, name)
        if found is None:
            raise ConfigFault(f"container {name} not found")
        container = found[0]
    kind, _, resource = reference["resource"].partition(".")
    resources = container.get("resources") or {}
    text = (resources.get(kind) or {}).get(resource)
    if text is not None:
        amount = quantity.parse(text)
    elif kind == "limits":
        amount = allocatable.get(resource, Quantity(0))
    else:
        amount = Quantity(0)
    divisor = quantity.parse(str(reference.get("divisor") or "0"))
    unit = divisor.nano() or 1_000_000_000
    return str(-(-amount.nano() // unit))


# services


def linked_services(services: Iterable[Obj], namespace: str, *, all_links: bool) -> tuple[Obj, ...]:
    """The services with variables in a pod of this namespace: always the API server's, others with ``all_links``."""
    found: dict[str, Obj] = {}
    for each in services:
        about = each["metadata"]
        if each["spec"].get("clusterIP") in (None, "", "None") or not each["spec"].get("ports"):
            continue
        if about["namespace"] == "default" and about["name"] == "kubernetes":
            found.setdefault("kubernetes", each)
        elif about["namespace"] == namespace and all_links:
            found[about["name"]] = each
    return tuple(each for _, each in sorted(found.items()))


def service_links(services: Iterable[Obj]) -> dict[str, str]:
    """``REDIS_SERVICE_HOST``, ``REDIS_PORT_6379_TCP_ADDR`` and so on. Names contain the port of the service, values the
    port at which the proxy serves it, which differs for ports that only root may listen on."""
    found: dict[str, str] = {}
    for each in services:
        prefix, address = _variable(each["metadata"]["name"]), each["spec"]["clusterIP"]
        ports, elsewhere = each["spec"]["ports"], served_ports(each)
        shown = f"[{address}]" if ":" in address else address
        found[f"{prefix}_SERVICE_HOST"] = address
        for number, port in enumerate(ports):
            at, protocol = str(elsewhere.get(port["port"], port["port"])), port.get("protocol") or "TCP"
            url = f"{protocol.lower()}://{shown}:{at}"
            if number == 0:
                found |= {f"{prefix}_SERVICE_PORT": at, f"{prefix}_PORT": url}
            if port.get("name"):
                found[f"{prefix}_SERVICE_PORT_{_variable(port['name'])}"] = at
            name = f"{prefix}_PORT_{port['port']}_{protocol.upper()}"
            found |= {name: url, f"{name}_PROTO": protocol.lower(), f"{name}_PORT": at, f"{name}_ADDR": address}
    return found


def _variable(name: str) -> str:
    return name.upper().replace("-", "_")
