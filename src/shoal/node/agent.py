"""The node agent: registers a node, follows the pods that are bound to it, and runs a worker for each.

    pods of this node ─▶ workers ─▶ runtime
    runtime events, probes, references, time ─▶ wake a worker

Containers survive the agent: the next one finds them with ``list`` and continues. ``run`` returns on ``stop``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from shoal.base.clock import Clock
from shoal.base.logs import get_logger
from shoal.base.supervision import Run, supervise
from shoal.base.tasks import OwnedTasks
from shoal.client import EVERYTHING, Client, Scope, TransportError, builtin
from shoal.errors import ApiError
from shoal.kube.objects import Obj
from shoal.node.admission import refusal
from shoal.node.config import NodeConfig
from shoal.node.events import PodEvents
from shoal.node.images import NodeImages
from shoal.node.node_object import MachineInfo, allocatable
from shoal.node.pod_failure import PodFailure
from shoal.node.pods.deps import PodWorkerDeps
from shoal.node.pods.observe import Lister
from shoal.node.pods.worker import PodWorker
from shoal.node.pressure import PressureWatch, disk_usage
from shoal.node.probes.handlers import Handlers
from shoal.node.probes.service import Prober
from shoal.node.references import References
from shoal.node.registration import Registration
from shoal.node.resources import amount, parsed
from shoal.node.runtime.model import Runtime, RuntimeEventKind, RuntimeFailure, RuntimeInfo
from shoal.node.volumes.service import Volumes
from shoal.reconcile import Change, EventRecorder, Informer, Manager

log = get_logger("node.agent")

_ORPHAN_GRACE_S = 30.0
_HOUSEKEEPING_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAgentDeps:
    """Dependencies of a node agent."""

    manager: Manager  # its client acts as the node; it runs the agent's informers
    runtime: Runtime
    recorder: EventRecorder
    machine: MachineInfo
    clock: Clock
    random: Callable[[], float]
    shared: bool = False  # several agents in one process: one informer of all pods instead of one per node


class NodeAgent:
    """One node. A ``Runnable`` of its manager."""

    def __init__(self, config: NodeConfig, parts: NodeAgentDeps) -> None:
        self.config = config
        self.name = f"node/{config.name}"
        self._agent_deps = parts
        self._clock = parts.clock
        self.runtime = parts.runtime
        client: Client = parts.manager.client
        scope = EVERYTHING if parts.shared else Scope(field_selector=f"spec.nodeName={config.name}")
        self._pods: Informer = parts.manager.informer(builtin("pods"), scope)
        self._services: Informer = parts.manager.informer(builtin("services"))
        self._client = client
        self._workers: dict[str, PodWorker] = {}  # by uid
        self._work = OwnedTasks()  # of the workers
        self._finished: set[str] = set()  # uids of finished pods that are still in the informer's cache
        self._rechecked: dict[str, Obj] = {}  # by uid: pods to check again before they are rejected
        self._rechecks = OwnedTasks()
        self._stopped = asyncio.Event()
        self.ready = asyncio.Event()  # registered, and following pods
        self._made: PodWorkerDeps | None = None
        self._pressure: PressureWatch | None = None
        self._registration: Registration | None = None
        self._lister = Lister(parts.runtime)

    # queries

    def worker(self, namespace: str, name: str) -> PodWorker | None:
        """The worker of a pod by its name."""
        for worker in self._workers.values():
            about = worker.pod["metadata"]
            if (about["namespace"], about["name"]) == (namespace, name):
                return worker
        return None

    @property
    def workers(self) -> tuple[PodWorker, ...]:
        return tuple(self._workers.values())

    @property
    def node(self) -> Obj:
        return self._registration.node if self._registration is not None else {}

    @property
    def pressure(self) -> PressureWatch | None:
        return self._pressure

    # running

    def stop(self) -> None:
        self._stopped.set()

    async def run(self) -> None:
        """Run the node until ``stop``. Containers keep running after it."""
        await self.runtime.open()
        tasks = OwnedTasks()
        stopped = tasks.start(self._stopped.wait(), name=f"{self.name}/stopped")
        try:
            starting = tasks.start(self._start(), name=f"{self.name}/start", awaited=True)
            await asyncio.wait({starting, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                starting.result()
                self._begin(tasks)
                await stopped
        finally:
            self.ready.clear()
            await tasks.close()
            await self._rechecks.close()
            await self._work.close()
            if self._made is not None:
                await self._made.prober.close()
                await self._made.references.close()
            await self.runtime.close()

    async def _start(self) -> None:
        info = await self._info()
        self._made = self._make_tools(info)
        memory = amount("memory", allocatable(self.config, info)["memory"])
        self._pressure = PressureWatch(
            self.runtime, self.config.eviction, clock=self._clock, memory_bytes=memory,
            disk=lambda: disk_usage(self.config.root), pods=self._active_pods, evict=self._evict,
        )  # fmt: skip
        self._registration = Registration(
            self._client, self.runtime, self.config, self._agent_deps.machine, clock=self._clock,
            random=self._agent_deps.random, pressures=self._pressure.conditions,
        )  # fmt: skip
        await self._registration.register()
        for informer in (self._pods, self._services):
            await informer.cache.synced.wait()

    @property
    def _deps(self) -> PodWorkerDeps:
        assert self._made is not None
        return self._made

    async def _info(self) -> RuntimeInfo:
        while True:
            try:
                return await self.runtime.info()
            except RuntimeFailure as failure:
                log.warning("the runtime is not ready", reason=str(failure))
                await self._clock.sleep(1.0)

    def _make_tools(self, info: RuntimeInfo) -> PodWorkerDeps:
        parts, clock = self._agent_deps, self._clock
        events = PodEvents(parts.recorder)
        references = References(self._client, clock=clock, random=parts.random, changed=self._references_changed)
        handlers = Handlers(self.runtime, clock=clock)
        room = parsed(allocatable(self.config, info))
        self.config.root.mkdir(parents=True, exist_ok=True)
        volumes = Volumes(self.config.root, self._client, references, clock=clock, allocatable=room)
        prober = Prober(
            handlers, clock=clock, random=parts.random, changed=self._wake,
            warn=lambda pod, name, reason, message: events.warning(pod, reason, message, container=name),
        )  # fmt: skip
        return PodWorkerDeps(
            runtime=self.runtime, runtime_name=info.name, pods=self._client.of(builtin("pods")), volumes=volumes,
            references=references, images=NodeImages(self.runtime, events, clock=clock), prober=prober,
            handlers=handlers, events=events, clock=clock, host_addresses=self.config.addresses,
            services=lambda: self._services.cache, dns_servers=self.config.dns_servers,
            cluster_domain=self.config.cluster_domain,
        )  # fmt: skip

    def _begin(self, tasks: OwnedTasks) -> None:
        registration, pressure = self._registration, self._pressure
        assert registration is not None and pressure is not None
        self._pods.cache.add_handler(self._pod_changed)
        self.ready.set()
        loops: dict[str, Run] = {
            "lease": registration.renew, "status": registration.report, "events": self._follow_runtime,
            "relist": self._relist, "pressure": pressure.run, "housekeeping": self._housekeeping,
        }  # fmt: skip
        for name, loop in loops.items():
            tasks.start(
                supervise(f"node/{name}", loop, clock=self._clock, detail=self.config.name), name=f"{self.name}/{name}"
            )

    # pods

    def _pod_changed(self, change: Change) -> None:
        pod = change.object
        uid = pod["metadata"]["uid"]
        if change.new is None:
            self._finished.discard(uid)
            self._rechecked.pop(uid, None)
            worker = self._workers.get(uid)
            if worker is not None:
                worker.mark_removed()
            return
        if pod["spec"].get("nodeName") != self.config.name or uid in self._finished:
            return
        worker = self._workers.get(uid)
        if worker is not None:
            worker.update(pod)
        else:
            self._accept(pod)

    def _accept(self, pod: Obj) -> None:
        """Start a worker for a pod that is new to this agent; check it again first if it would be rejected."""
        uid = pod["metadata"]["uid"]
        if uid in self._rechecked:
            self._rechecked[uid] = pod
        elif self._refusal(pod) is None:
            self._start_worker(pod, None)
        else:
            self._rechecked[uid] = pod
            self._rechecks.start(self._recheck(uid), name=f"admit/{uid}")

    async def _recheck(self, uid: str) -> None:
        """Read the node again before refusing a pod: it may have a new label or resource."""
        assert self._registration is not None
        try:
            await self._registration.refresh()
        except (ApiError, TransportError) as error:
            log.warning("reading the node failed; using the last known version", reason=str(error))
        pod = self._rechecked.pop(uid, None)
        if pod is not None:
            self._start_worker(pod, self._refusal(pod))

    def _refusal(self, pod: Obj) -> PodFailure | None:
        if (pod.get("status") or {}).get("startTime") or pod["metadata"].get("deletionTimestamp"):
            return None
        return refusal(pod, self.node, self._active_pods())

    def _start_worker(self, pod: Obj, failure: PodFailure | None) -> None:
        uid = pod["metadata"]["uid"]
        if failure is not None:
            message = failure.message.removeprefix("Pod was rejected: ")
            self._deps.events.warning(pod, failure.reason, message)
        worker = PodWorker(self._deps, self._lister, pod, failure=failure)
        self._workers[uid] = worker
        name = f"pod/{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        task = self._work.start(worker.run(), name=name, awaited=True)
        task.add_done_callback(lambda done: self._ended(uid, done))

    def _ended(self, uid: str, task: asyncio.Task[None]) -> None:
        worker = self._workers.pop(uid, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a pod's worker failed", error=error, uid=uid)
            if worker is not None and not self._stopped.is_set():
                self._clock.call_later(1.0, lambda: self._restart_worker(worker.pod))
            return
        if worker is not None and worker.finished:
            known = self._pods.cache.select(namespace=worker.pod["metadata"]["namespace"])
            if any(each["metadata"]["uid"] == uid for each in known):
                self._finished.add(uid)

    def _restart_worker(self, pod: Obj) -> None:
        if pod["metadata"]["uid"] not in self._workers and not self._stopped.is_set():
            self._accept(pod)

    def _active_pods(self) -> Iterable[Obj]:
        return [worker.pod for worker in self._workers.values() if worker.active]

    def _evict(self, uid: str, failure: PodFailure) -> None:
        worker = self._workers.get(uid)
        if worker is not None:
            self._deps.events.warning(worker.pod, failure.reason, failure.message)
            worker.fail(failure)

    def _wake(self, uid: str) -> None:
        worker = self._workers.get(uid)
        if worker is not None:
            worker.wake()

    def _references_changed(self, uid: str) -> None:
        worker = self._workers.get(uid)
        if worker is not None:
            worker.references_changed()

    # the runtime

    async def _follow_runtime(self) -> None:
        async for event in self.runtime.events():
            worker = self._workers.get(event.pod_uid)
            if worker is None:
                continue
            if event.kind is RuntimeEventKind.NOTICE:
                self._deps.events.warning(worker.pod, event.reason, event.message)
            else:
                worker.wake()

    async def _relist(self) -> None:
        """Compare all containers with the pods' views every ``relist_s``, because events can get lost."""
        while True:
            await self._clock.sleep(self.config.relist_s)
            try:
                inventory = await self._lister.fresh()
            except RuntimeFailure as failure:
                log.warning("listing the runtime's containers failed", reason=str(failure))
                continue
            seen: dict[str, set[tuple[str, str]]] = {}
            for each in inventory.containers:
                seen.setdefault(each.pod_uid, set()).add((each.id, each.phase.value))
            for uid, worker in tuple(self._workers.items()):
                view = worker.view
                known = {(each.id, each.phase.value) for each in view.containers} if view is not None else set()
                if known != seen.get(uid, set()):
                    worker.wake()

    async def _housekeeping(self) -> None:
        """Stop and remove sandboxes and volumes of deleted pods."""
        while True:
            try:
                await self._remove_orphans()
            except (RuntimeFailure, OSError) as failure:
                log.warning("removing orphaned pods failed", reason=str(failure))
            await self._clock.sleep(_HOUSEKEEPING_S)

    async def _remove_orphans(self) -> None:
        inventory = await self._lister.fresh()
        known = {pod["metadata"]["uid"] for pod in self._pods.cache} | set(self._workers)
        orphans = [each for each in inventory.sandboxes if each.pod_uid not in known]
        for sandbox in orphans:
            log.info("removing an orphaned pod", pod=f"{sandbox.namespace}/{sandbox.name}", uid=sandbox.pod_uid)
            running = [each.id for each in inventory.containers if each.sandbox_id == sandbox.id]
            await asyncio.gather(*(self.runtime.stop(each, grace_s=_ORPHAN_GRACE_S) for each in running))
            await self.runtime.remove_sandbox(sandbox.id)
        for uid in self._deps.volumes.uids() - known:
            self._deps.volumes.remove(uid)
