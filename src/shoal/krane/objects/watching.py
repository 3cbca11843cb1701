"""Informers of one controller: they run together, and map each change to the key whose report may differ."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from shoal.base.clock import Clock
from shoal.base.tasks import run_all
from shoal.client import Client, ResourceType, Scope
from shoal.errors import Forbidden
from shoal.krane import labels
from shoal.krane.objects.many_caches import GatheredCache
from shoal.krane.objects.memory import Memory, secret_metadata, with_foreign_fields
from shoal.kube.objects import Obj
from shoal.reconcile import Cache, Change, Informer
from shoal.reconcile.cache import Transform, without_managed_fields

KeyOf = Callable[[Obj], str | None]


def by_key(obj: Obj, key_of: KeyOf = labels.key_of) -> Iterable[str]:
    key = key_of(obj)
    return (key,) if key is not None else ()


def age_of(obj: Obj) -> tuple[str, str]:
    about = obj["metadata"]
    return str(about.get("creationTimestamp", "")), str(about["name"])


class Watched:
    """The informers of one run. ``caches`` are by kind, or by the name that was given for one."""

    def __init__(self, client: Client, *, clock: Clock, random: Callable[[], float]) -> None:
        self._client = client
        self._clock = clock
        self._random = random
        self._informers: list[Informer] = []
        self._caches: dict[str, Cache] = {}
        self._key_of: dict[str, KeyOf] = {}
        self._optional: list[Informer] = []
        self._gathered: dict[str, GatheredCache] = {}

    @property
    def caches(self) -> Mapping[str, Cache]:
        return self._caches

    @property
    def synced(self) -> bool:
        return bool(self._informers) and all(informer.synced for informer in self._informers)

    @property
    def refusal(self) -> str:
        """Of the first kind that the cluster does not let us watch."""
        for informer in self._informers:
            if isinstance(error := informer.reflector.last_error, Forbidden):
                return str(error)
        return ""

    def parts(self, kinds: Iterable[ResourceType], *scopes: Scope) -> None:
        """Objects that we apply: their managed fields are looked at for drift."""
        for kind in kinds:
            self.add_each(kind, scopes, with_foreign_fields)

    def add_each(self, kind: ResourceType, scopes: Sequence[Scope], transform: Transform) -> None:
        """A kind in several namespaces as one cache."""
        if len(scopes) == 1:
            self.add(kind, scopes[0], transform)
            return
        informers = [self._informer(kind, scope, transform, labels.key_of) for scope in scopes]
        self._informers += informers
        self._caches[kind.kind] = self._gather(kind, informers)
        self._key_of[kind.kind] = labels.key_of

    def add(
        self,
        kind: ResourceType,
        scope: Scope,
        transform: Transform = without_managed_fields,
        *,
        name: str = "",
        key_of: KeyOf = labels.key_of,
    ) -> Informer:
        """``key_of`` says whose report may differ when such an object changes."""
        informer = self._informer(kind, scope, transform, key_of)
        self._informers.append(informer)
        self._caches[name or kind.kind] = informer.cache
        self._key_of[name or kind.kind] = key_of
        return informer

    def secrets(self, kind: ResourceType, scopes: Sequence[Scope]) -> None:
        """Only the metadata of Secrets. An agent that may not list them works without: what depends on them is then
        seen when it is applied."""
        informers = [
            Informer(
                self._client.of(kind).metadata, clock=self._clock, random=self._random, scope=scope,
                transform=secret_metadata, indexes={"key": by_key},
            )
            for scope in scopes
        ]  # fmt: skip
        self._optional += informers
        self._caches[kind.kind] = informers[0].cache if len(informers) == 1 else self._gather(kind, informers)
        self._key_of[kind.kind] = labels.key_of

    def _gather(self, kind: ResourceType, informers: Sequence[Informer]) -> GatheredCache:
        made = GatheredCache([informer.cache for informer in informers], {"key": by_key})
        self._gathered[kind.kind] = made
        return made

    def _informer(self, kind: ResourceType, scope: Scope, transform: Transform, key_of: KeyOf) -> Informer:
        return Informer(
            self._client.of(kind), clock=self._clock, random=self._random, scope=scope, transform=transform,
            indexes={"key": partial(by_key, key_of=key_of)},
        )  # fmt: skip

    def of(self, kind: str, key: str) -> tuple[Obj, ...]:
        """The objects of a kind that belong to a key."""
        cache = self._caches.get(kind)
        return cache.by_index("key", key) if cache is not None else ()

    def first(self, kind: str, key: str, memory: Memory) -> Obj | None:
        """The object of a kind that stands for a key. A copy has the same labels: what we applied is preferred, then
        what is older."""
        found = self.of(kind, key)
        if len(found) < 2:
            return found[0] if found else None
        return min(found, key=lambda obj: (not memory.knows(key, obj), *age_of(obj)))

    def keys(self, kinds: Iterable[str]) -> set[str]:
        return {key for kind in kinds if kind in self._caches for obj in self._caches[kind] for key in by_key(obj)}

    async def run(self, changed: Callable[[str], None]) -> None:
        def heard(change: Change, key_of: KeyOf) -> None:
            for obj in (change.old, change.new):
                key = key_of(obj) if obj is not None else None
                if key is not None:
                    changed(key)
                    return

        for name, cache in self._caches.items():
            cache.add_handler(partial(heard, key_of=self._key_of[name]))
        every = (*self._informers, *self._optional)
        informers = {f"informer/{n}/{each.name}": each.run() for n, each in enumerate(every)}
        gathered = {f"gathered/{kind}": cache.follow() for kind, cache in self._gathered.items()}
        await run_all({**informers, **gathered})
