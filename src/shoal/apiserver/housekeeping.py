"""Work that the API server does when no controller does it: default objects of namespaces, deleting the content of
terminating namespaces and definitions, removing old events.

One loop works through a queue of small jobs, which the store's streams fill. Every job reads the current state and
makes one step, so it can be repeated, interrupted and run on several servers. The loops are supervised: one that fails
begins again with a job for every object.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from shoal.apiserver import objects
from shoal.apiserver.body import DeleteOptions
from shoal.apiserver.context import Call, Core, ServerConfig
from shoal.apiserver.custom import CLEANUP
from shoal.apiserver.delete import Deleter
from shoal.apiserver.effects import CRDS, NOTHING, Extra, mark, terminating_mark
from shoal.apiserver.front_proxy import AUTHENTICATION, SYSTEM, authentication_data, certificates_in
from shoal.apiserver.http import Request
from shoal.apiserver.negotiate import NO_QUERY
from shoal.apiserver.paths import ResourcePath
from shoal.apiserver.registry import Served
from shoal.apiserver.user import User
from shoal.apiserver.write import Writer
from shoal.apiserver.writing.commit import own_put
from shoal.apiserver.writing.model import Author, Retry, Write
from shoal.base.logs import get_logger
from shoal.base.supervision import SupervisedLoops
from shoal.errors import AlreadyExists, ApiError, NotFound
from shoal.kube.objects import Obj
from shoal.store import Delete, Event, EventType, Key, RequirementFailed, StoreReadOnly, StoreUnavailable

ROOT_CA = "kube-root-ca.crt"
_ROOT_CA_NOTE = {"kubernetes.io/description": "The certificate authority that signs the API server's certificate."}
_AUTHOR = Author("shoal-apiserver")
_RETRY_S = 0.5
_SELF = User("system:apiserver", ("system:masters",))

Job = tuple[str, str]  # (kind of job, name)


class NamespaceEffects:
    """A namespace comes with its default service account and the cluster's CA certificate, so that no pod is created
    too early; and a mark keeps new objects out of it from the moment its deletion is stored until it is gone."""

    before_validation = False

    def __init__(self, core: Core) -> None:
        self.core = core

    def on_create(self, obj: Obj) -> Extra:
        name = obj["metadata"]["name"]
        wanted = (("serviceaccounts", _default_account(name)), ("configmaps", _root_ca(name, self.core.config)))
        return Extra([own_put(self.core, resource, content, _AUTHOR) for resource, content in wanted])

    def on_update(self, new: Obj, old: Obj) -> Extra:
        begins = new["metadata"].get("deletionTimestamp") and not old["metadata"].get("deletionTimestamp")
        return Extra([mark(terminating_mark(new["metadata"]["name"]))]) if begins else NOTHING

    def on_delete(self, old: Obj) -> Extra:
        key = terminating_mark(old["metadata"]["name"])
        return Extra([Delete(key)]) if self.core.store.get(key) is not None else NOTHING


class Housekeeping:
    """Runs as supervised loops beside the server."""

    def __init__(self, core: Core, writer: Writer, deleter: Deleter) -> None:
        self.core, self.writer, self.deleter = core, writer, deleter
        self._jobs: dict[Job, None] = {}  # ordered set: a job is queued once however often it is asked for
        self._wake = asyncio.Event()
        self.idle = asyncio.Event()  # set while nothing is left to do
        self._events_seen: dict[Key, tuple[int, float]] = {}
        self._log = get_logger("housekeeping")
        self._loops = SupervisedLoops(core.clock)
        self._do: dict[str, Callable[[str], Awaitable[None]]] = {
            "namespace": self._namespace,
            "definition": self._definition,
            "authentication": self._authentication,
        }

    def start(self) -> None:
        """Follow the store, and begin with a job for each existing object."""
        store = self.core.store
        store.subscribe("namespaces", self._on_namespaces)
        store.subscribe("serviceaccounts", self._on_default_objects)
        store.subscribe("configmaps", self._on_default_objects)
        store.subscribe(CRDS, self._on_definitions)
        store.subscribe("events", self._on_kube_events)
        self._loops.start("housekeeping/jobs", self._work)
        self._loops.start("housekeeping/events", self._forget_events)
        self._loops.start("housekeeping/history", self._forget_history)

    def authority_changed(self) -> None:
        """Publish the authorities of the configuration again."""
        self._add_all()

    async def stop(self) -> None:
        await self._loops.stop()

    def _add_all(self) -> None:
        for entry in self.core.store.range("namespaces").entries:
            self._add("namespace", entry.key.name)
        for entry in self.core.store.range(CRDS).entries:
            self._add("definition", entry.key.name)
        self._add("authentication", AUTHENTICATION)

    def _add(self, kind: str, name: str) -> None:
        self._jobs[kind, name] = None
        self.idle.clear()
        self._wake.set()

    async def _work(self) -> None:
        self._add_all()
        while True:
            await self._wake.wait()
            self._wake.clear()
            failed: list[Job] = []
            read_only = False
            while self._jobs:
                job = next(iter(self._jobs))
                del self._jobs[job]
                try:
                    await self._do[job[0]](job[1])
                except (ApiError, Retry, StoreReadOnly, StoreUnavailable) as error:
                    self._log.info("housekeeping job failed, will retry", job=job[0], name=job[1], error=str(error))
                    failed.append(job)
                    read_only = read_only or isinstance(error, StoreReadOnly)
                except Exception as error:  # a job that cannot be done must not keep the others from being done
                    self._log.error("housekeeping job failed, will retry", job=job[0], name=job[1], error=error)
                    failed.append(job)
            if read_only:  # the store is read-only for a while; the server still serves reads
                self.idle.set()
            if failed:
                await self.core.clock.sleep(_RETRY_S)
                for job in failed:
                    self._add(*job)
            elif not self._jobs:
                self.idle.set()

    # -- store events ----------------------------------------------------------------------------------------------

    def _on_namespaces(self, events: Sequence[Event]) -> None:
        for event in events:
            if event.type is not EventType.DELETED:
                self._add("namespace", event.entry.key.name)
                if event.entry.key.name == SYSTEM:
                    self._add("authentication", AUTHENTICATION)

    def _on_default_objects(self, events: Sequence[Event]) -> None:
        for event in events:
            key = event.entry.key
            if key.name == ROOT_CA or (key.name == "default" and key.resource == "serviceaccounts"):
                self._add("namespace", key.namespace)
            elif key.name == AUTHENTICATION and key.namespace == SYSTEM:
                self._add("authentication", key.name)

    def _on_definitions(self, events: Sequence[Event]) -> None:
        for event in events:
            if event.type is not EventType.DELETED:
                self._add("definition", event.entry.key.name)

    def _on_kube_events(self, events: Sequence[Event]) -> None:
        now = self.core.clock.monotonic()
        for event in events:
            if event.type is EventType.DELETED:
                self._events_seen.pop(event.entry.key, None)
            else:
                self._events_seen[event.entry.key] = (event.entry.revision, now)

    # -- namespaces ------------------------------------------------------------------------------------------------

    async def _namespace(self, name: str) -> None:
        entry = self.core.store.get(Key("namespaces", "", name))
        if entry is None:
            return
        namespace = objects.decode(entry)
        if namespace["metadata"].get("deletionTimestamp"):
            if self.core.config.empties_namespaces:
                await self._empty_namespace(name)
            return
        await self._ensure("serviceaccounts", name, _default_account(name))
        await self._ensure("configmaps", name, self._root_ca(name))

    def _root_ca(self, namespace: str) -> Obj:
        """The authorities to trust. Of servers that share a store one may learn later than another that they change;
        it leaves those that the other has added."""
        wanted = _root_ca(namespace, self.core.config)
        entry = self.core.store.get(Key("configmaps", namespace, ROOT_CA)) if self.core.store.shared else None
        stored = "" if entry is None else (objects.decode(entry).get("data") or {}).get("ca.crt", "")
        if set(certificates_in(self.core.config.ca_certificate)) < set(certificates_in(stored)):
            wanted["data"]["ca.crt"] = stored
        return wanted

    async def _authentication(self, name: str) -> None:
        """What aggregated API servers need to recognize this server and its users."""
        config = self.core.config
        if self.core.store.get(Key("namespaces", "", SYSTEM)) is None:
            return  # created at the start; its event queues this job again
        entry = self.core.store.get(Key("configmaps", SYSTEM, name))
        stored = {} if entry is None else objects.decode(entry).get("data") or {}
        data = authentication_data(config.ca_certificate, config.front_proxy, stored)
        await self._ensure("configmaps", SYSTEM, {"metadata": {"name": name, "namespace": SYSTEM}, "data": data})

    async def _ensure(self, resource: str, namespace: str, wanted: Obj) -> None:
        """Create a required object, or correct its data."""
        served = self.core.registry.stored(resource)
        assert served is not None
        name = wanted["metadata"]["name"]
        entry = self.core.store.get(served.key_of(namespace, name))
        if entry is None:
            try:
                await self.writer.store(Write.own(served, wanted, None, _AUTHOR))
            except (AlreadyExists, NotFound):
                return
            return
        stored = objects.decode(entry)
        if "data" in wanted and stored.get("data") != wanted["data"]:
            stored["data"] = wanted["data"]
            await self.writer.store(Write.own(served, stored, entry, _AUTHOR))

    async def _empty_namespace(self, name: str) -> None:
        """Delete the objects of the namespace, pods first; when none is left, remove its finalizer."""
        left = 0
        for served in sorted(self.core.registry.storages(), key=lambda s: s.key != "pods"):
            if not served.resource.namespaced or not served.resource.stored:
                continue
            left += await self._delete_all(served, name)
            if left and served.key == "pods":
                break  # pods that are still terminating may need other objects
        if left:
            await self._report_content(name, left)
            await self.core.clock.sleep(_RETRY_S)
            self._add("namespace", name)
            return
        entry = self.core.store.get(Key("namespaces", "", name))
        served_namespace = self.core.registry.stored("namespaces")
        if entry is None or served_namespace is None:
            return
        namespace = objects.decode(entry)
        finalizers = [f for f in (namespace.get("spec") or {}).get("finalizers") or () if f != "kubernetes"]
        namespace["spec"] = {**(namespace.get("spec") or {}), "finalizers": finalizers}
        author = Author("shoal-apiserver", "finalize")
        await self.writer.store(Write.own(served_namespace, namespace, entry, author))

    async def _delete_all(self, served: Served, namespace: str | None) -> int:
        """Delete every object in scope; return how many remain."""
        for entry in self.core.store.range(served.key, namespace).entries:
            call = _own_call(served, entry.key)
            try:
                await self.deleter.delete_object(call, entry.key.name, DeleteOptions(propagation="Background"))
            except NotFound:
                continue
        return self.core.store.count(served.key, namespace)

    async def _report_content(self, name: str, left: int) -> None:
        entry = self.core.store.get(Key("namespaces", "", name))
        served = self.core.registry.stored("namespaces")
        if entry is None or served is None:
            return
        namespace = objects.decode(entry)
        message = f"Some resources are remaining: {left} object(s) wait for their finalizers or grace period"
        condition = {
            "type": "NamespaceContentRemaining",
            "status": "True",
            "reason": "SomeResourcesRemain",
            "message": message,
            "lastTransitionTime": self.core.now(),
        }
        status = namespace.setdefault("status", {})
        known = status.get("conditions") or []
        if any(c.get("type") == condition["type"] and c.get("message") == message for c in known):
            return
        status["conditions"] = [c for c in known if c.get("type") != condition["type"]] + [condition]
        await self.writer.store(Write.own(served, namespace, entry, Author("shoal-apiserver", "status")))

    # -- definitions -----------------------------------------------------------------------------------------------

    async def _definition(self, name: str) -> None:
        """Remove the objects of a definition that is being deleted, then its finalizer."""
        served = self.core.registry.stored(CRDS)
        entry = self.core.store.get(Key(CRDS, "", name))
        if entry is None or served is None:
            return
        definition = objects.decode(entry)
        metadata = definition["metadata"]
        if not metadata.get("deletionTimestamp") or CLEANUP not in (metadata.get("finalizers") or ()):
            return
        resource = self.core.registry.stored(name)
        left = await self._delete_all(resource, None) if resource is not None else 0
        if left:
            await self.core.clock.sleep(_RETRY_S)
            self._add("definition", name)
            return
        entry = self.core.store.get(Key(CRDS, "", name))
        if entry is None:
            return
        definition = objects.decode(entry)
        definition["metadata"]["finalizers"] = [f for f in definition["metadata"]["finalizers"] if f != CLEANUP]
        await self.writer.store(Write.own(served, definition, entry, _AUTHOR))

    # -- events ----------------------------------------------------------------------------------------------------

    async def _forget_events(self) -> None:
        """Events live for ``event_ttl_s`` after they were last written."""
        now = self.core.clock.monotonic()
        for entry in self.core.store.range("events").entries:
            self._events_seen.setdefault(entry.key, (entry.revision, now))
        while True:
            await self.core.clock.sleep(60.0)
            oldest = self.core.clock.monotonic() - self.core.config.event_ttl_s
            due = [key for key, (_, seen) in self._events_seen.items() if seen < oldest]
            for start in range(0, len(due), 100):
                with suppress(StoreReadOnly, StoreUnavailable):  # they are still due the next time
                    await self._delete_events(due[start : start + 100])

    async def _delete_events(self, keys: Sequence[Key]) -> None:
        try:
            await self._delete_stored(keys)
        except RequirementFailed:  # another server has deleted some of them first
            await self.core.store.fresh()
            for key in keys:
                with suppress(RequirementFailed):
                    await self._delete_stored([key])

    async def _delete_stored(self, keys: Sequence[Key]) -> None:
        ops = [Delete(key) for key in keys if self.core.store.get(key) is not None]
        if ops:
            await self.core.store.commit(ops)

    async def _forget_history(self) -> None:
        while True:
            await self.core.clock.sleep(20.0)
            self.core.store.forget_old()


def _default_account(namespace: str) -> Obj:
    return {"metadata": {"name": "default", "namespace": namespace}}


def _root_ca(namespace: str, config: ServerConfig) -> Obj:
    metadata = {"name": ROOT_CA, "namespace": namespace, "annotations": dict(_ROOT_CA_NOTE)}
    return {"metadata": metadata, "data": {"ca.crt": config.ca_certificate}}


def _own_call(served: Served, key: Key) -> Call:
    resource = served.resource
    target = ResourcePath(resource.group, resource.version, resource.plural, key.namespace or None, key.name)
    return Call(Request("DELETE", b"/", {}), target, served, NO_QUERY, _SELF)
