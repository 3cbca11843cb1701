"""Discovery: the documents under ``/api`` and ``/apis`` that list the resources of this server and of aggregated ones.

There are two forms: one document per group version, and the aggregated form (``apidiscovery.k8s.io/v2``) with all
resources in two documents. Documents are built on first use, cached as bytes, and dropped when the resources change.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256, sha512
from typing import Any, Final

import orjson

from shoal.kube.resources import BUILTIN, Resource, Subresource

JSON: Final = "application/json"
AGGREGATED_JSON: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

# The order in which kubectl prefers groups when two have a resource of the same name; the highest comes first.
_GROUP_PRIORITY: Final = {
    "": 18000,
    "apiregistration.k8s.io": 20001,
    "apps": 17800,
    "events.k8s.io": 17750,
    "authentication.k8s.io": 17700,
    "authorization.k8s.io": 17600,
    "autoscaling": 17500,
    "batch": 17400,
    "certificates.k8s.io": 17300,
    "networking.k8s.io": 17200,
    "policy": 17100,
    "rbac.authorization.k8s.io": 17000,
    "storage.k8s.io": 16800,
    "admissionregistration.k8s.io": 16700,
    "apiextensions.k8s.io": 16700,
    "scheduling.k8s.io": 16600,
    "coordination.k8s.io": 16500,
    "node.k8s.io": 16300,
    "discovery.k8s.io": 16200,
    "resource.k8s.io": 16200,
    "flowcontrol.apiserver.k8s.io": 16100,
    "storagemigration.k8s.io": 15800,
}
_CUSTOM_PRIORITY: Final = 1000, 100
_VERSION_PRIORITY: Final = {("", "v1"): 1, ("autoscaling", "v2"): 30, ("flowcontrol.apiserver.k8s.io", "v1"): 21}

# of a group, and of a version in its group; the highest comes first
Priorities = Mapping[tuple[str, str], tuple[int, int]]

_KUBE_VERSION = re.compile(r"v(\d+)(?:(alpha|beta)(\d+))?", re.ASCII)
_STAGE: Final = {None: 0, "beta": 1, "alpha": 2}


def version_order(version: str) -> tuple[int, int, int, int, str]:
    """Sorts versions as Kubernetes prefers them: v2, v1, v1beta2, v1beta1, v1alpha1, then any other by name."""
    matched = _KUBE_VERSION.fullmatch(version)
    if matched is None:
        return 1, 0, 0, 0, version
    major, stage, minor = matched.groups()
    return 0, _STAGE[stage], -int(major), -int(minor or 0), ""


def default_priority(group: str, version: str) -> tuple[int, int]:
    """The priorities of a group and of its version where no APIService sets them."""
    of_group = _GROUP_PRIORITY.get(group)
    return _CUSTOM_PRIORITY if of_group is None else (of_group, _VERSION_PRIORITY.get((group, version), 15))


def storage_version_hash(group: str, version: str, kind: str) -> str:
    """A hash by which clients detect a change of a kind's stored form."""
    return b64encode(sha256(f"{group}/{version}/{kind}".encode()).digest()[:8]).decode()


def etag(body: bytes) -> str:
    """The quoted entity tag of a document."""
    return f'"{sha512(body).hexdigest().upper()}"'


def wants_aggregated(accept: str) -> bool:
    """Whether the first acceptable of the media types in an ``Accept`` header is aggregated discovery in JSON.

    Parameters may be in any order. Types that this server does not support are skipped.
    """
    clauses = []
    for clause in accept.split(","):
        name, *parameters = (part.strip() for part in clause.split(";"))
        pairs = dict(_parameter(part) for part in parameters)
        clauses.append((_quality(pairs.get("q", "1")), name.lower(), pairs))
    for quality, name, pairs in sorted(clauses, key=lambda clause: -clause[0]):
        if quality <= 0 or name not in (JSON, "application/*", "*/*"):
            continue
        converted = pairs.get("g"), pairs.get("v"), pairs.get("as")
        if converted == ("apidiscovery.k8s.io", "v2", "APIGroupDiscoveryList"):
            return True
        if converted == (None, None, None):
            return False
    return False


def _parameter(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name.strip().lower(), value.strip().strip('"')


def _quality(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


@dataclass(frozen=True, slots=True)
class DiscoveryDocument:
    """A response that is ready to send; without ``etag`` it must not be cached."""

    body: bytes
    content_type: str = JSON
    etag: str = ""


@dataclass(frozen=True, slots=True)
class AggregatedVersion:
    """A group version that another server serves. ``resources`` are the entries of its APIResourceList; ``stale``: that
    server does not answer now."""

    group: str
    version: str
    resources: tuple[Mapping[str, Any], ...] = ()
    stale: bool = False


class DiscoveryDocuments:
    """The discovery documents of a set of resources. ``server_address`` is the host and port in ``/api``."""

    def __init__(self, resources: Iterable[Resource] = BUILTIN, *, server_address: str = "") -> None:
        self._server_address = server_address
        self._resources: tuple[Resource, ...] = ()
        # group → version → resources, all in listing order
        self._groups: dict[str, dict[str, list[Resource] | AggregatedVersion]] = {}
        self._priorities: Priorities = {}
        self._elsewhere: tuple[AggregatedVersion, ...] = ()
        self._stored_as: dict[str, Resource] = {}  # storage key → the stored version
        self._documents: dict[tuple[str, bool], DiscoveryDocument] = {}
        self.set_resources(resources)

    def set_resources(self, resources: Iterable[Resource]) -> None:
        """Replace the served resources. Objects of a kind are stored in its first version."""
        self.update(tuple(resources), self._priorities, self._elsewhere)

    def update(
        self, resources: tuple[Resource, ...], priorities: Priorities, elsewhere: Sequence[AggregatedVersion]
    ) -> None:
        """Replace the served resources, the priorities that differ from the defaults, and what other servers serve."""
        known = self._resources, self._priorities, self._elsewhere
        if known == (resources, priorities, tuple(elsewhere)):
            return
        self._resources, self._priorities, self._elsewhere = resources, dict(priorities), tuple(elsewhere)
        self._groups = _grouped(resources, self._priorities, self._elsewhere)
        self._stored_as = {}
        for resource in resources:
            self._stored_as.setdefault(resource.storage_key, resource)
        self._documents.clear()

    def group_versions(self) -> list[tuple[str, str]]:
        """Every served group and version: the core group first, and the preferred version of a group first."""
        return [(group, version) for group, versions in self._groups.items() for version in versions]

    def get(self, path: str, *, aggregated: bool = False) -> DiscoveryDocument | None:
        """The document at ``/api``, ``/apis``, ``/api/v1``, ``/apis/<group>`` or ``/apis/<group>/<version>``; None if
        there is none. Only the first two have an aggregated form; for others ``aggregated`` is ignored."""
        path = path.rstrip("/")
        key = path, aggregated and path in ("/api", "/apis")
        document = self._documents.get(key)
        if document is None:
            document = self._build(*key)
            if document is not None:
                self._documents[key] = document
        return document

    def _build(self, path: str, aggregated: bool) -> DiscoveryDocument | None:
        if aggregated:
            body = orjson.dumps(self._aggregated(core=path == "/api"))
            return DiscoveryDocument(body, AGGREGATED_JSON, etag(body))
        content = self._legacy(path)
        return None if content is None else DiscoveryDocument(orjson.dumps(content))

    def _legacy(self, path: str) -> dict[str, Any] | None:
        match path.split("/"):
            case ["", "api"]:
                return self._core_versions()
            case ["", "apis"]:
                return {"kind": "APIGroupList", "apiVersion": "v1", "groups": self._group_list()}
            case ["", "api", version] if version in self._groups.get("", ()):
                return self._resource_list("", version)
            case ["", "apis", group] if group and group in self._groups:
                return {"kind": "APIGroup", "apiVersion": "v1", **self._group(group)}
            case ["", "apis", group, version] if group and version in self._groups.get(group, ()):
                return self._resource_list(group, version)
        return None

    def _core_versions(self) -> dict[str, Any]:
        return {
            "kind": "APIVersions",
            "versions": list(self._groups.get("", ())),
            "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": self._server_address}],
        }

    def _group_list(self) -> list[dict[str, Any]]:
        return [self._group(group) for group in self._groups if group]

    def _group(self, group: str) -> dict[str, Any]:
        versions = [{"groupVersion": f"{group}/{version}", "version": version} for version in self._groups[group]]
        return {"name": group, "versions": versions, "preferredVersion": versions[0]}

    def _resource_list(self, group: str, version: str) -> dict[str, Any] | None:
        entries: list[dict[str, Any]] = []
        resources = self._groups[group][version]
        if isinstance(resources, AggregatedVersion):
            return None  # its server answers
        for resource in resources:
            entries.append(self._resource_entry(resource))
            entries += [_subresource_entry(resource, sub) for sub in _by_name(resource.subresources)]
        group_version = f"{group}/{version}" if group else version
        return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": entries}

    def _resource_entry(self, resource: Resource) -> dict[str, Any]:
        entry: dict[str, Any] = {
            "name": resource.plural,
            "singularName": resource.singular,
            "namespaced": resource.namespaced,
            "kind": resource.kind,
            "verbs": sorted(resource.verbs),
        }
        _add_names(entry, resource)
        if resource.stored and "watch" in resource.verbs:
            stored = self._stored_as[resource.storage_key]
            entry["storageVersionHash"] = storage_version_hash(stored.group, stored.version, stored.kind)
        return entry

    def _aggregated(self, *, core: bool) -> dict[str, Any]:
        items = [
            {
                "metadata": {"name": group} if group else {},
                "versions": [_aggregated_version(version, resources) for version, resources in versions.items()],
            }
            for group, versions in self._groups.items()
            if core == (group == "")
        ]
        return {
            "kind": "APIGroupDiscoveryList",
            "apiVersion": "apidiscovery.k8s.io/v2",
            "metadata": {},
            "items": items,
        }


def _grouped(
    resources: tuple[Resource, ...], priorities: Priorities, elsewhere: tuple[AggregatedVersion, ...]
) -> dict[str, dict[str, list[Resource] | AggregatedVersion]]:
    here: dict[tuple[str, str], list[Resource]] = {}
    for resource in resources:
        here.setdefault((resource.group, resource.version), []).append(resource)
    for served in here.values():
        served.sort(key=lambda resource: resource.plural)
    found: dict[tuple[str, str], list[Resource] | AggregatedVersion] = {**here}
    for each in elsewhere:
        found[each.group, each.version] = each
    of_group: dict[str, int] = {}
    of_version: dict[tuple[str, str], int] = {}
    for group, version in found:
        wanted, of_version[group, version] = priorities.get((group, version)) or default_priority(group, version)
        of_group[group] = max(wanted, of_group.get(group, 0))

    def order(place: tuple[str, str]) -> tuple[Any, ...]:
        group, version = place
        return group != "", -of_group[group], group, -of_version[place], version_order(version)

    made: dict[str, dict[str, list[Resource] | AggregatedVersion]] = {}
    for group, version in sorted(found, key=order):
        made.setdefault(group, {})[version] = found[group, version]
    return made


def _by_name(subresources: tuple[Subresource, ...]) -> list[Subresource]:
    return sorted(subresources, key=lambda sub: sub.name)


def _add_names(entry: dict[str, Any], resource: Resource) -> None:
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)


def _subresource_entry(resource: Resource, sub: Subresource) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": f"{resource.plural}/{sub.name}",
        "singularName": "",
        "namespaced": resource.namespaced,
    }
    if sub.version and (sub.group, sub.version) != (resource.group, resource.version):
        entry["group"] = sub.group
        entry["version"] = sub.version
    entry["kind"] = sub.kind
    entry["verbs"] = sorted(sub.verbs)
    return entry


def _aggregated_version(version: str, resources: list[Resource] | AggregatedVersion) -> dict[str, Any]:
    if isinstance(resources, AggregatedVersion):
        return _version_elsewhere(resources)
    return {
        "version": version,
        "resources": [_aggregated_resource(resource) for resource in resources],
        "freshness": "Current",
    }


def _aggregated_resource(resource: Resource) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "resource": resource.plural,
        "responseKind": {"group": resource.group, "version": resource.version, "kind": resource.kind},
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": sorted(resource.verbs),
    }
    _add_names(entry, resource)
    if resource.subresources:
        entry["subresources"] = [_aggregated_subresource(resource, sub) for sub in _by_name(resource.subresources)]
    return entry


def _aggregated_subresource(resource: Resource, sub: Subresource) -> dict[str, Any]:
    group, version = (sub.group, sub.version) if sub.version else (resource.group, resource.version)
    return {
        "subresource": sub.name,
        "responseKind": {"group": group, "version": version, "kind": sub.kind},
        "verbs": sorted(sub.verbs),
    }


def _version_elsewhere(served: AggregatedVersion) -> dict[str, Any]:
    """A version of another server in the aggregated form, from the entries of its APIResourceList."""
    made: dict[str, dict[str, Any]] = {}
    for given in sorted(served.resources, key=lambda each: "/" in str(each.get("name"))):  # subresources come last
        plural, _, sub = str(given.get("name") or "").partition("/")
        kind = {
            "group": given.get("group") or served.group,
            "version": given.get("version") or served.version,
            "kind": given.get("kind") or "",
        }
        parent = made.get(plural)
        if parent is None:
            parent = made[plural] = {
                "resource": plural,
                "responseKind": {**kind, "kind": ""} if sub else kind,
                "scope": "Namespaced" if given.get("namespaced") else "Cluster",
                "singularResource": "" if sub else given.get("singularName") or "",
                "verbs": [] if sub else list(given.get("verbs") or ()),
            }
            if not sub:
                parent.update({name: list(given[name]) for name in ("shortNames", "categories") if given.get(name)})
        if sub:
            entry = {"subresource": sub, "responseKind": kind, "verbs": list(given.get("verbs") or ())}
            parent.setdefault("subresources", []).append(entry)
    freshness = "Stale" if served.stale else "Current"
    return {"version": served.version, "resources": list(made.values()), "freshness": freshness}
