"""Custom resources: definitions become served resources as soon as they are stored, and vanish with them.

The registry follows the store's stream of definitions, so every path that changes one (a client, another server)
has the same effect. Conditions of a definition are settled in the transaction that writes it: a client never sees a
definition that is accepted but not served.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import orjson

from shoal.apiserver import objects
from shoal.apiserver.context import Call, Core
from shoal.apiserver.effects import CRDS, NOTHING, Extra, ending_mark, mark
from shoal.apiserver.registry import Served
from shoal.errors import BadRequest, Invalid, invalid
from shoal.kube import decode
from shoal.kube.objects import Obj
from shoal.store import Delete, Event, EventType

if TYPE_CHECKING:
    from shoal.apiserver.admission.webhooks.client import HookClient
    from shoal.apiserver.admission.webhooks.conversion import Converter
    from shoal.kube.crd import serving

CLEANUP = "customresourcecleanup.apiextensions.k8s.io"


class CustomVersion:
    """One served version of a definition: the parts that built-in kinds do not have."""

    def __init__(self, definition: Obj, version: serving.ServedVersion, converter: Converter | None) -> None:
        self.version = version
        self.converter = converter  # shared by all versions of the definition
        self._definition = definition

    @cached_property
    def printer(self) -> Any:
        from shoal.kube import tables

        return tables.custom_printer(self.version.columns)

    @cached_property
    def openapi(self) -> Obj:
        from shoal.kube.crd.openapi import openapi_schema

        return openapi_schema(self._definition, self.version.resource.version)

    @property
    def deprecation(self) -> str:
        return self.version.deprecation

    def normalize(self, obj: Obj) -> list[str]:
        """Prune in place; return the strict validation errors."""
        unknown = decode.normalize(
            obj["metadata"], self.version.structural.type.fields["metadata"].type, path="metadata"
        )
        return unknown + [f'unknown field "{path}"' for path in self.version.structural.prune(obj)]

    def refresh(self, obj: Obj) -> None:
        """Bring an object that was stored under another schema or version up to this one, in place."""
        self.version.structural.prune(obj)
        self.version.structural.default(obj)

    def scale_of(self, obj: Obj) -> Obj:
        assert self.version.scale is not None
        scale = self.version.scale.scale_of(obj)
        if scale is None:
            path = "." + ".".join(self.version.scale.spec_replicas)
            raise BadRequest(f"the spec replicas field {path!r} does not exist")
        return scale

    def apply_scale(self, obj: Obj, scale: Obj) -> None:
        assert self.version.scale is not None
        replicas = (scale.get("spec") or {}).get("replicas", 0)
        if replicas < 0:
            name = obj["metadata"].get("name", "")
            errors = [invalid("spec.replicas", replicas, "must be greater than or equal to 0")]
            raise Invalid.of("Scale", "autoscaling", name, errors)
        self.version.scale.set_replicas(obj, replicas)


class Definitions:
    """Keeps the registry in step with the stored definitions; the ``Effects`` of writing one."""

    before_validation = False

    def __init__(self, core: Core, hooks: HookClient, end_watches: Callable[[str], None]) -> None:
        """``hooks`` calls conversion webhooks; ``end_watches`` closes those of a resource that is served differently
        now, by its store key."""
        self.core = core
        self._hooks = hooks
        self._end_watches = end_watches
        self._specs: dict[str, bytes] = {}  # served versions by definition name

    def load(self) -> None:
        """Serve every stored definition; called once, before requests."""
        for entry in self.core.store.range(CRDS).entries:
            self._serve(objects.decode(entry), 0)

    def on_events(self, events: Sequence[Event]) -> None:
        for event in events:
            definition = objects.decode(event.entry)
            if event.type is EventType.DELETED:
                self._remove(definition)
            else:
                self._serve(definition, event.entry.revision)

    def _serve(self, definition: Obj, revision: int) -> None:
        # imported with the first definition: schemas and their rule language are a large part of the program
        from shoal.kube.crd import conditions, serving
        from shoal.kube.crd.definition import storage_version

        name = definition["metadata"]["name"]
        if not conditions.is_established(definition):
            return
        spec = orjson.dumps([definition["spec"], (definition.get("status") or {}).get("acceptedNames")])
        if self._specs.get(name) == spec:
            return
        changed = name in self._specs
        self._specs[name] = spec
        key = f"{definition['spec']['names']['plural']}.{definition['spec']['group']}"
        converter = self._converter(definition)
        versions = [self._served(definition, version, revision, converter) for version in serving.serve(definition)]
        stored = storage_version(definition)
        storage = next((s for s in versions if s.resource.version == stored), None)
        if storage is None and versions:
            storage = self._unserved_storage(definition, stored, revision, converter)
        for served in versions:
            served.storage = served
        self.core.registry.set_custom(key, versions, storage)
        if changed:
            self._end_watches(key)

    def _converter(self, definition: Obj) -> Converter | None:
        if (definition["spec"].get("conversion") or {}).get("strategy") != "Webhook":
            return None
        from shoal.apiserver.admission.webhooks.conversion import Converter

        return Converter(definition, self._hooks, self.core.ids)

    def _served(
        self, definition: Obj, version: serving.ServedVersion, revision: int, converter: Converter | None
    ) -> Served:
        crd = CustomVersion(definition, version, converter)
        served = Served(version.resource, version.rules, version.structural.type, crd)
        served.since = revision
        served.list_head = (
            b'{"apiVersion":"%b","kind":"%b","metadata":{"resourceVersion":"'
            % (version.resource.api_version.encode(), version.list_kind.encode())
        )  # fmt: skip
        return served

    def _unserved_storage(self, definition: Obj, version: str, revision: int, converter: Converter | None) -> Served:
        """The storage version may be one that is not served (any more)."""
        from shoal.kube.crd import serving

        spec = definition["spec"]
        shown = [{**v, "served": True} if v["name"] == version else v for v in spec["versions"]]
        pretended = {**definition, "spec": {**spec, "versions": shown}}
        found = next(s for s in serving.serve(pretended) if s.resource.version == version)
        return self._served(definition, found, revision, converter)

    def _remove(self, definition: Obj) -> None:
        name = definition["metadata"]["name"]
        if self._specs.pop(name, None) is not None:
            plural, _, group = name.partition(".")
            key = f"{plural}.{group}"
            self.core.registry.set_custom(key, [], None)
            self._end_watches(key)

    def guard(self, call: Call, new: Obj, old: Obj | None) -> None:
        """Reject definitions of built-in resources: both would share the same stored objects."""
        name = new["metadata"]["name"]
        known = self.core.registry.stored(name)
        if known is not None and not known.resource.custom:
            errors = [invalid("metadata.name", name, "is the name of a built-in resource")]
            raise Invalid.of("CustomResourceDefinition", "apiextensions.k8s.io", name, errors)

    # -- effects ---------------------------------------------------------------------------------------------------

    def on_create(self, obj: Obj) -> Extra:
        finalizers = obj["metadata"].setdefault("finalizers", [])
        if CLEANUP not in finalizers:
            finalizers.append(CLEANUP)
        self._settle(obj)
        return NOTHING

    def on_update(self, new: Obj, old: Obj) -> Extra:
        from shoal.kube.crd import conditions

        if new["metadata"].get("deletionTimestamp"):
            if not old["metadata"].get("deletionTimestamp"):
                new["status"] = conditions.terminating(new, self.core.clock.wall_s())
                return Extra([mark(ending_mark(new["metadata"]["name"]))])
        else:
            self._settle(new)
        return NOTHING

    def on_delete(self, old: Obj) -> Extra:
        key = ending_mark(old["metadata"]["name"])
        return Extra([Delete(key)]) if self.core.store.get(key) is not None else NOTHING

    def _settle(self, obj: Obj) -> None:
        from shoal.kube.crd import conditions

        name = obj["metadata"]["name"]
        others = [objects.decode(entry) for entry in self.core.store.range(CRDS).entries if entry.key.name != name]
        status = conditions.settle(obj, others, self.core.clock.wall_s())
        if status is not None:
            obj["status"] = status
