"""The sharded kinds and the kinds of their children, from the ShardConfig and the server's discovery."""

from __future__ import annotations

from shoal.client import Client, ResourceType
from shoal.crds.shard import ConfigSpec
from shoal.kube.objects import Obj
from shoal.sharding.proxy.requests import RequestTarget


class Kinds:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._by_path: dict[tuple[str, str], ResourceType] = {}  # group, plural
        self._targets: dict[tuple[str, str], ResourceType] = {}  # group, kind
        self._controlled: dict[tuple[str, str], list[ResourceType]] = {}

    async def update(self, spec: ConfigSpec) -> None:
        served = {(it.group, it.kind): it for it in reversed(await self._client.resource_types(refresh=True))}
        self._targets = {key: served[key] for target in spec.targets if (key := (target.group, target.kind)) in served}
        self._controlled = {
            (target.group, target.kind): [
                served[key] for child in target.controlled if (key := (child.group, child.kind)) in served
            ]
            for target in spec.targets
        }
        every = [*self._targets.values(), *(kind for kinds in self._controlled.values() for kind in kinds)]
        self._by_path = {(kind.group, kind.plural): kind for kind in every}

    @property
    def targets(self) -> list[ResourceType]:
        """The sharded kinds, without those of their children."""
        return list(self._targets.values())

    def sharded(self, target: RequestTarget) -> ResourceType | None:
        """The kind of a request, in the version it asks for, if it or the kind of its owner is sharded."""
        kind = self._by_path.get((target.group, target.plural))
        if kind is None or kind.version == target.version:
            return kind
        return ResourceType(kind.group, target.version, kind.plural, kind.namespaced, kind.kind)

    def is_target(self, kind: ResourceType) -> bool:
        return (kind.group, kind.kind) in self._targets

    def controlled(self, kind: ResourceType) -> list[ResourceType]:
        return self._controlled.get((kind.group, kind.kind), [])

    def owner(self, reference: Obj | None) -> ResourceType | None:
        """The kind that an owner reference names, if it is a target."""
        if reference is None:
            return None
        return self._targets.get((reference["apiVersion"].rpartition("/")[0], reference["kind"]))
