"""Writes a group of objects: what the root object needs, the root itself, and its companions, which it owns."""

from __future__ import annotations

from collections.abc import Iterable

from shoal.client import ResourceType
from shoal.krane.labels import FIELD_MANAGER_SCALE, is_adopted
from shoal.krane.objects.compare import FOREIGN, owns
from shoal.krane.objects.memory import Memory, Written
from shoal.krane.objects.writer import Writer, together
from shoal.kube.objects import Obj
from shoal.sync.versions import Version


class Group:
    """One pass over the objects of one key. Until the root exists its companions have no
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
        self._live = live  # by ``_slot``
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
        wants = tuple(wants)
        live: dict[str, Obj] = {}
        unseen: dict[str, Obj] = {}
        for want in wants:
            seen = memory.recall(key, want)
            if seen is not None:
                live[_slot(want)] = seen
            else:
                unseen[_slot(want)] = want
        found = await together({slot: writer.read(want) for slot, want in unseen.items()})
        live |= {slot: obj for slot, obj in found.items() if obj is not None}
        for want in wants:
            if (obj := live.get(_slot(want))) is not None:
                writer.check(obj, version, taken_from, want=want)
        return cls(writer, version, live, correlation=correlation, strict=strict, taken_from=taken_from)

    def live(self, kind: str, name: str = "") -> Obj | None:
        """The object of a kind, of which there is one unless it is named, as it was read or written since."""
        if name:
            return self._live.get(f"{kind}/{name}")
        return next((obj for slot, obj in self._live.items() if slot.startswith(f"{kind}/")), None)

    async def write(
        self,
        before: tuple[Obj, ...],
        root: Obj,
        after: tuple[Obj, ...],
        *,
        between: tuple[int, int] | None = None,
        surplus: Iterable[tuple[ResourceType, str]] = (),
    ) -> list[Written]:
        """``between``: an autoscaler decides on the replicas. ``surplus`` are kinds and names of what must not be
        there."""
        known = self._live.get(_slot(root))
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
        for kind, name in surplus:
            await self._writer.remove(kind, root["metadata"]["namespace"], name)
        return [*done_before, Written.of(root, made), *done_after]

    async def _write_all(self, wants: tuple[Obj, ...], owner: Obj | None) -> list[Written]:
        owned = [_owned(want, owner) for want in wants]
        done = await together(
            {
                _slot(want): self._writer.write(
                    want,
                    self._live.get(_slot(want)),
                    self._version,
                    correlation=self._correlation,
                    strict=self._strict,
                    taken_from=self._taken_from,
                )  # fmt: skip
                for want in owned
            }
        )
        self._live |= done
        return [Written.of(want, done[_slot(want)]) for want in owned]

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


def _slot(want: Obj) -> str:
    return f"{want['kind']}/{want['metadata']['name']}"


def _owned(want: Obj, owner: Obj | None) -> Obj:
    if owner is None or is_adopted(want):
        return want
    reference = {
        "apiVersion": owner["apiVersion"], "kind": owner["kind"],
        "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"],
    }  # fmt: skip
    return {**want, "metadata": {**want["metadata"], "ownerReferences": [reference]}}
