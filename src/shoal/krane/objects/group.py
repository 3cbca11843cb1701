"""Writes a group of objects: what the root object needs, the root itself, and its companions, which it owns."""

from __future__ import annotations

from collections.abc import Iterable

from shoal.client import ResourceType
from shoal.krane.labels import FIELD_MANAGER_SCALE
from shoal.krane.objects.compare import FOREIGN, owns
from shoal.krane.objects.memory import Memory, Written
from shoal.krane.objects.writer import Writer, together
from shoal.kube.objects import Obj
from shoal.sync.versions import Version


class Group:
    """One pass over the objects of one key; at most one of each kind. Until the root exists its companions have no
    owner; they get it as soon as it has a uid, so that nothing is left when a user deletes the root."""

    def __init__(
        self,
        writer: Writer,
        version: Version,
        live: dict[str, Obj],
        *,
        correlation: str = "",
        strict: bool = True,
        taken_from: str = "",
    ) -> None:
        self._writer = writer
        self._version = version
        self._correlation = correlation
        self._live = live  # by kind
        self._strict = strict
        self._taken_from = taken_from

    @classmethod
    async def read(
        cls,
        writer: Writer,
        memory: Memory,
        item: tuple[str, Version],
        wants: Iterable[Obj],
        *,
        correlation: str = "",
        strict: bool = True,
        taken_from: str = "",
    ) -> Group:
        """What there is of the wanted objects, from memory where it is seen anyway. Refuses before anything is
        written. ``correlation`` names the request that led to the version; ``taken_from`` is a shard whose objects may
        be taken over."""
        key, version = item
        live: dict[str, Obj] = {}
        unseen: dict[str, Obj] = {}
        for want in wants:
            seen = memory.recall(key, want)
            if seen is not None:
                live[want["kind"]] = seen
            else:
                unseen[want["kind"]] = want
        found = await together({kind: writer.read(want) for kind, want in unseen.items()})
        live |= {kind: obj for kind, obj in found.items() if obj is not None}
        for obj in live.values():
            writer.check(obj, version, taken_from)
        return cls(writer, version, live, correlation=correlation, strict=strict, taken_from=taken_from)

    def live(self, kind: str) -> Obj | None:
        """The object of a kind as it was read, or as it was written since."""
        return self._live.get(kind)

    async def write(
        self,
        before: tuple[Obj, ...],
        root: Obj,
        after: tuple[Obj, ...],
        *,
        between: tuple[int, int] | None = None,
        surplus: Iterable[ResourceType] = (),
    ) -> list[Written]:
        """``between``: an autoscaler decides on the replicas. ``surplus`` are kinds that must not be there, under the
        name of the root."""
        known = self._live.get(root["kind"])
        done_before = await self._write_all(before, known)
        live = known
        if between is not None and live is not None:
            live = await self._hand_over_replicas(root, live)
        made = await self._writer.write(
            root, live, self._version, correlation=self._correlation, every_version=True, strict=self._strict,
            taken_from=self._taken_from,
        )  # fmt: skip
        if between is not None:
            await self._scale_between(root, made, *between)
        done_after = await self._write_all(after, made)
        if known is None:
            done_before = await self._write_all(before, made)  # now the owner exists
        for kind in surplus:
            await self._writer.remove(kind, root["metadata"]["namespace"], root["metadata"]["name"])
        return [*done_before, Written.of(root, made), *done_after]

    async def _write_all(self, wants: tuple[Obj, ...], owner: Obj | None) -> list[Written]:
        owned = [_owned(want, owner) for want in wants]
        done = await together(
            {
                want["kind"]: self._writer.write(
                    want,
                    self._live.get(want["kind"]),
                    self._version,
                    correlation=self._correlation,
                    strict=self._strict,
                    taken_from=self._taken_from,
                )  # fmt: skip
                for want in owned
            }
        )
        self._live |= done
        return [Written.of(want, done[want["kind"]]) for want in owned]

    async def _scale_between(self, want: Obj, made: Obj, least: int, most: int) -> None:
        """An autoscaler would do the same, but only at its next look."""
        replicas = made["spec"].get("replicas") or 0
        if not least <= replicas <= most:
            await self._writer.scale(want, min(max(replicas, least), most))

    async def _hand_over_replicas(self, want: Obj, live: Obj) -> Obj:
        """Give the field to the autoscaler. A field that its last manager stops applying falls back to one replica, so
        a manager of its own holds it until the autoscaler writes it."""
        if FOREIGN in live:
            live = await self._writer.read(want) or live
        if not owns(live["metadata"].get("managedFields") or (), ("spec", "replicas")):
            return live
        about = {name: want["metadata"][name] for name in ("name", "namespace")}
        held = {"apiVersion": want["apiVersion"], "kind": want["kind"], "metadata": about}
        await self._writer.co_own({**held, "spec": {"replicas": live["spec"]["replicas"]}}, FIELD_MANAGER_SCALE)
        return await self._writer.read(want) or live


def _owned(want: Obj, owner: Obj | None) -> Obj:
    if owner is None:
        return want
    reference = {
        "apiVersion": owner["apiVersion"], "kind": owner["kind"],
        "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"],
    }  # fmt: skip
    return {**want, "metadata": {**want["metadata"], "ownerReferences": [reference]}}
