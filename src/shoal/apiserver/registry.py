"""The resources this server serves right now: the built-in ones and those that definitions have added.

A ``Served`` is one resource in one version, with the data that the verbs need. Versions of one kind share stored
objects; ``to_storage`` and ``from_storage`` convert between the version asked for and the one on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import orjson

from shoal.apiserver import objects
from shoal.apiserver.objects import LazyFields
from shoal.kube.kinds import rules_for
from shoal.kube.objects import Obj
from shoal.kube.resources import BUILTIN, Resource
from shoal.kube.rules import KindRules
from shoal.kube.schema import Type, type_of_kind
from shoal.kube.zeros import Zeros, fill, zeros_of
from shoal.store import Attrs, Entry, Key

if TYPE_CHECKING:
    from shoal.apiserver.admission.webhooks.conversion import Converter

Convert = Callable[[Obj], Obj]

# Versions that are converted to another one for storage: (group, version, kind) -> storage (group, version).
_STORED_AS = {
    ("autoscaling", "v1", "HorizontalPodAutoscaler"): ("autoscaling", "v2"),
    ("events.k8s.io", "v1", "Event"): ("", "v1"),
}


class Served:
    """One resource in one served version."""

    __slots__ = (
        "_rules", "_type", "_zeros", "converter", "crd", "from_storage", "item_prefix", "key", "list_head", "prefix",
        "resource", "since", "storage", "to_storage",
    )  # fmt: skip

    def __init__(
        self, resource: Resource, rules: KindRules | None = None, type_: Type | None = None, crd: Any = None
    ) -> None:
        self.resource = resource
        self._rules = rules
        self._type = type_
        self._zeros: Zeros | None = None
        self.crd = crd  # shoal.kube.crd's view of the definition's version; None for built-ins
        # converts entries of other versions for this one; None for nearly all
        self.converter: Converter | None = None if crd is None else crd.converter
        self.key = resource.storage_key
        self.storage: Served = self
        self.to_storage: Convert | None = None
        self.from_storage: Convert | None = None
        self.since = 0  # entries older than this revision were written under another schema
        self.prefix = objects.prefix(resource.kind, resource.api_version)
        # items of built-in lists carry no kind and apiVersion, those of custom ones do
        self.item_prefix = 0 if resource.custom else len(self.prefix)
        self.list_head = (
            b'{"kind":"%b","apiVersion":"%b","metadata":{"resourceVersion":"'
            % (resource.list_kind.encode(), resource.api_version.encode())
        )  # fmt: skip

    @property
    def type(self) -> Type:
        """Built on first use: an unused kind does not load its type and rules."""
        if self._type is None:
            self._type = type_of_kind(self.resource.group, self.resource.version, self.resource.kind)
        return self._type

    @property
    def rules(self) -> KindRules:
        if self._rules is None:
            self._rules = rules_for(self.resource.group, self.resource.version, self.resource.kind)
        return self._rules

    def default(self, obj: Obj) -> None:
        """Fill in absent fields, in place: by the rules of the kind, then with the zeros that are always written."""
        self.rules.default(obj)
        zeros = self._zeros or self._find_zeros()
        if zeros.content:
            fill(obj, zeros.content)

    def default_status(self, obj: Obj) -> None:
        """Fill in the zeros of the status, in place."""
        zeros = self._zeros or self._find_zeros()
        status = obj.get("status")
        if status is None:
            obj["status"] = orjson.loads(zeros.new_status)
        elif zeros.status:
            fill(status, zeros.status)

    def _find_zeros(self) -> Zeros:
        zeros = self._zeros = zeros_of(self.type)
        return zeros

    def key_of(self, namespace: str | None, name: str) -> Key:
        return Key(self.key, namespace or "", name)

    def current(self, entry: Entry) -> bool:
        """Whether this version can return the stored bytes unchanged."""
        return self.from_storage is None and entry.revision >= self.since and entry.value.startswith(self.prefix)

    def decode(self, entry: Entry) -> Obj:
        """The object in this version."""
        return self.present(objects.decode(entry), entry)

    def present(self, obj: Obj, entry: Entry) -> Obj:
        if self.from_storage is not None:
            obj = self.from_storage(obj)
        if self.crd is not None and not self.current(entry):
            obj["apiVersion"] = self.resource.api_version
            self.crd.refresh(obj)
        return obj

    def render(self, entry: Entry) -> bytes:
        """The object in this version as JSON; the stored bytes themselves in nearly every case."""
        if self.current(entry):
            return entry.value
        return self.encode(self.decode(entry), entry.revision)

    def encode(self, obj: Obj, revision: int) -> bytes:
        value, hole = objects.encode(obj, self.resource.kind, self.resource.api_version)
        return b"%b%d%b" % (value[:hole], revision, value[hole:])

    def attrs(self, obj: Obj, key: Key) -> Attrs:
        """The values of an object for selectors and indexes (in its storage version)."""
        labels = obj["metadata"].get("labels") or {}
        rules = self.rules
        fields = rules.all_fields(obj) if rules.all_fields is not None else {}
        fields["metadata.name"], fields["metadata.namespace"] = key.name, key.namespace
        indexed = [f"{name}={value}" for name, value in labels.items()]
        if rules.selectable:
            if rules.all_fields is None:
                for name, value_of in rules.selectable.items():
                    fields[name] = value_of(obj)
            for name in rules.indexed_fields:
                indexed.append(f"@{name}={fields[name]}")
        fence = ""
        if self.key == "leases.coordination.k8s.io":
            spec = obj.get("spec") or {}
            fence = f"{spec.get('holderIdentity') or ''}/{spec.get('leaseTransitions') or 0}"
        return Attrs(labels, fields, tuple(indexed), fence)


def _hpa_to_v2(obj: Obj) -> Obj:
    from shoal.kube.kinds import hpa

    return hpa.to_v2(obj)


def _hpa_to_v1(obj: Obj) -> Obj:
    from shoal.kube.kinds import hpa

    return hpa.to_v1(obj)


def _event_to_core(obj: Obj) -> Obj:
    from shoal.kube.kinds import events

    return events.to_core_v1(obj)


def _event_from_core(obj: Obj) -> Obj:
    from shoal.kube.kinds import events

    return events.to_events_v1(obj)


def _nothing() -> None:
    """No one follows the changes."""


def _loopback_rules() -> dict[str, KindRules]:
    from shoal.kube.kinds.core.endpoints import endpoints_rules
    from shoal.kube.kinds.networking.endpoint_slice import endpoint_slice_rules

    return {
        "Endpoints": endpoints_rules(loopback_allowed=True),
        "EndpointSlice": endpoint_slice_rules(loopback_allowed=True),
    }


class Registry:
    """All served resources, by URL. ``loopback_endpoints`` lets Services lead to addresses of the loopback interface,
    for clusters whose pods have such."""

    def __init__(self, *, loopback_endpoints: bool = False) -> None:
        self._served: dict[tuple[str, str, str], Served] = {}
        self._local: dict[tuple[str, str, str], Served] = {}  # with those that another server serves instead
        self._elsewhere: frozenset[tuple[str, str]] = frozenset()
        self._storage: dict[str, Served] = {}
        self.version = 0  # counts changes of the set, for discovery and OpenAPI
        self.on_change: Callable[[], None] = _nothing
        own = _loopback_rules() if loopback_endpoints else {}
        for resource in BUILTIN:
            self._add(Served(resource, own.get(resource.kind)))
        self._link_versions()

    def _add(self, served: Served) -> None:
        resource = served.resource
        self._served[resource.group, resource.version, resource.plural] = served
        self._local[resource.group, resource.version, resource.plural] = served
        if (resource.group, resource.version, resource.kind) not in _STORED_AS:
            self._storage.setdefault(served.key, served)

    def _link_versions(self) -> None:
        conversions: dict[str, tuple[Convert, Convert]] = {
            "HorizontalPodAutoscaler": (_hpa_to_v2, _hpa_to_v1),
            "Event": (_event_to_core, _event_from_core),
        }
        for (group, version, kind), (storage_group, storage_version) in _STORED_AS.items():
            served = next(
                s for s in self._served.values()
                if (s.resource.group, s.resource.version, s.resource.kind) == (group, version, kind)
            )  # fmt: skip
            served.storage = self._served[storage_group, storage_version, served.resource.plural]
            served.to_storage, served.from_storage = conversions[kind]

    def get(self, group: str, version: str, plural: str) -> Served | None:
        return self._served.get((group, version, plural))

    def stored(self, key: str) -> Served | None:
        """The storage version of a resource, by its store key."""
        return self._storage.get(key)

    def by_kind(self, group: str, version: str, kind: str) -> Served | None:
        for served in self._served.values():
            resource = served.resource
            if (resource.kind, resource.group, resource.version) == (kind, group, version):
                return served
        return None

    def __iter__(self) -> Iterator[Served]:
        return iter(self._served.values())

    def local(self) -> Iterator[Served]:
        """All that this server could serve, also what another server serves instead."""
        return iter(self._local.values())

    def set_elsewhere(self, group_versions: frozenset[tuple[str, str]]) -> None:
        """The group versions that other servers serve, also where there are definitions for them. They are taken out of
        what is looked up, so that a look-up costs no more."""
        if group_versions != self._elsewhere:
            self._elsewhere = group_versions
            self._served = {place: each for place, each in self._local.items() if place[:2] not in group_versions}
            self.version += 1

    def storages(self) -> Iterator[Served]:
        """One Served per stored resource."""
        return iter(list(self._storage.values()))

    def set_custom(self, key: str, versions: list[Served], storage: Served | None) -> None:
        """Replace the versions of one custom resource; an empty list removes it."""
        for name in [n for n, s in self._local.items() if s.key == key and s.resource.custom]:
            del self._local[name]
            self._served.pop(name, None)
        self._storage.pop(key, None)
        for served in versions:
            resource = served.resource
            self._local[resource.group, resource.version, resource.plural] = served
            if (resource.group, resource.version) not in self._elsewhere:
                self._served[resource.group, resource.version, resource.plural] = served
        if storage is not None:
            self._storage[key] = storage
        self.version += 1
        self.on_change()

    def attrs_of(self, key: Key, value: bytes) -> Attrs:
        """Attrs of an object read back from disk. Definitions may not be loaded yet, so fields are decoded later."""
        obj: Obj = orjson.loads(value)
        served = self._storage.get(key.resource)
        if served is not None and not served.resource.custom:
            return served.attrs(obj, key)
        labels = obj.get("metadata", {}).get("labels") or {}

        def fields() -> dict[str, str]:
            known = self._storage.get(key.resource)
            found = {"metadata.name": key.name, "metadata.namespace": key.namespace}
            if known is not None:
                stored = orjson.loads(value)
                found.update({name: value_of(stored) for name, value_of in known.rules.selectable.items()})
            return found

        return Attrs(labels, LazyFields(fields), tuple(f"{name}={text}" for name, text in labels.items()))
