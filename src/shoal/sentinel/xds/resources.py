"""Converts messages to resources: wire form, version (a digest of it), and needed resources.

A message that is the same object as before is skipped. There are many routes, so the clusters that they name are read
from the fields that hold them; other messages are searched completely.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import Message

from shoal.sentinel.xds.model import (
    CLUSTER,
    ENDPOINTS,
    EXTENSION,
    ROUTES,
    SECRET,
    TYPES,
    ResourceRef,
    Snapshot,
    XdsResource,
)

_ANY = AnyMessage.DESCRIPTOR.full_name
_NAMES_A_CLUSTER = frozenset({"cluster", "cluster_name"})


class Packager:
    """Keeps the previous snapshot and reuses its unchanged resources, whole types where possible."""

    def __init__(self) -> None:
        self._messages: dict[str, Mapping[str, Message]] = {}
        self._made: dict[str, Mapping[str, XdsResource]] = {}

    def package(self, messages: Mapping[str, Mapping[str, Message]]) -> Snapshot:
        for type_ in TYPES:
            of_type, before = messages.get(type_, {}), self._messages.get(type_, {})
            if type_ not in self._made or of_type is not before:
                old = self._made.get(type_, {})
                self._made[type_] = {
                    name: old[name]
                    if before.get(name) is message
                    else _resource(ResourceRef(type_, name), message, old.get(name))
                    for name, message in of_type.items()
                }
                self._messages[type_] = of_type
        return dict(self._made)


def _resource(ref: ResourceRef, message: Message, before: XdsResource | None) -> XdsResource:
    body = message.SerializeToString(deterministic=True)
    if before is not None and before.body == body:
        return before
    version = hashlib.blake2b(body, digest_size=12).hexdigest()
    needs, brings = _references(ref, message)
    return XdsResource(ref, version, body, needs=needs, brings=brings)


def _references(ref: ResourceRef, message: Any) -> tuple[frozenset[str], tuple[ResourceRef, ...]]:
    if ref.type == ENDPOINTS or ref.type == SECRET:
        return frozenset(), ()
    if ref.type == ROUTES:
        return frozenset(_clusters_of_routes(message)), ()
    found = list(_walk(message))
    brings = dict.fromkeys(one for one in found if one.type != CLUSTER)
    if ref.type == CLUSTER:
        if message.HasField("eds_cluster_config"):
            brings[ResourceRef(ENDPOINTS, message.eds_cluster_config.service_name or message.name)] = None
        return frozenset(), tuple(brings)
    return frozenset(one.name for one in found if one.type == CLUSTER), tuple(brings)


def _clusters_of_routes(routes: Any) -> Iterator[str]:
    for plugin in routes.cluster_specifier_plugins:
        yield from (one.name for one in _walk(plugin) if one.type == CLUSTER)
    for host in routes.virtual_hosts:
        yield from (mirror.cluster for mirror in host.request_mirror_policies)
        for entry in host.routes:
            if entry.HasField("route"):
                action = entry.route
                if action.cluster:
                    yield action.cluster
                yield from (weighted.name for weighted in action.weighted_clusters.clusters)
                yield from (mirror.cluster for mirror in action.request_mirror_policies)


def _walk(message: Any) -> Iterator[ResourceRef]:
    """All resources that a message names, including packed messages."""
    kind = message.DESCRIPTOR.full_name
    if kind == _ANY:
        inner = _unpacked(message)
        if inner is not None:
            yield from _walk(inner)
        return
    if kind.endswith(".Rds"):
        yield ResourceRef(ROUTES, message.route_config_name)
    elif kind.endswith(".SdsSecretConfig") and message.HasField("sds_config"):
        yield ResourceRef(SECRET, message.name)
    elif kind.endswith(".HttpFilter") and message.HasField("config_discovery"):
        yield ResourceRef(EXTENSION, message.name)
    for field, value in message.ListFields():
        if field.type == field.TYPE_STRING:
            if field.name in _NAMES_A_CLUSTER and isinstance(value, str):
                yield ResourceRef(CLUSTER, value)
        elif field.type == field.TYPE_MESSAGE:
            yield from _walk_field(value)


def _walk_field(value: Any) -> Iterator[ResourceRef]:
    if isinstance(value, Message):
        yield from _walk(value)
    elif isinstance(value, Mapping):
        for one in value.values():
            if isinstance(one, Message):
                yield from _walk(one)
    else:
        for one in value:
            yield from _walk(one)


def _unpacked(packed: Any) -> Message | None:
    """The packed message; None if its type is unknown."""
    from google.protobuf import symbol_database

    name = packed.type_url.rpartition("/")[2]
    try:
        made = symbol_database.Default().GetSymbol(name)()
        made.ParseFromString(packed.value)
    except (KeyError, ValueError):
        return None
    found: Message = made
    return found
