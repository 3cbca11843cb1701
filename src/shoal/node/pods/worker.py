"""The worker of one pod: observes, plans, reports and acts, one step at a time, until the pod is removed.

Changes of the pod, its containers and its references, probe results and timers wake it. Each time it observes the whole
state again. Only a termination interrupts a running step.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from shoal.base.clock import Clock, Timer
from shoal.base.logs import correlated, get_logger
from shoal.base.tasks import OwnedTasks, cancel_all
from shoal.client import TransportError
from shoal.errors import ApiError, Conflict, NotFound
from shoal.kube.objects import Obj
from shoal.kube.times import parse_epoch
from shoal.node import env
from shoal.node.containers import ContainerRole, ContainerWait, find
from shoal.node.errors import ConfigFault, HookFault, VolumeFault
from shoal.node.images import NoImage
from shoal.node.pod_failure import PodFailure
from shoal.node.pods.deps import PodWorkerDeps
from shoal.node.pods.holds import SANDBOX, Holds
from shoal.node.pods.model import (
    Action,
    CreateSandbox,
    Finish,
    KillContainer,
    PodDecision,
    PodView,
    RemoveContainer,
    StartContainer,
    StopSandbox,
    Terminate,
    qualified,
)
from shoal.node.pods.observe import Lister, of_pod, termination_message
from shoal.node.pods.plan import plan
from shoal.node.pods.report import Reporter, Written
from shoal.node.pods.spec import resources_of, sandbox_spec
from shoal.node.pods.start import Starter
from shoal.node.pods.status import TERMINAL
from shoal.node.pods.terminate import Terminator
from shoal.node.references import ObjectReference
from shoal.node.runtime.model import (
    Container,
    ContainerPhase,
    ContainerResources,
    CreateFailure,
    ImageFault,
    NoSuchContainer,
    RuntimeFailure,
    StartFailure,
)
from shoal.node.volumes.service import Prepared, references_of

log = get_logger("node.pods")

_ROUNDS = 50  # limit of plans in one sync
_RETRY_S = 10.0  # after a failure without a backoff of its own
_REPORT_S = 2.0  # after a failed write of the status
_VOLUME_CAP_S = 122.0
_PULL_FAULTS = (ImageFault.PULL.value, ImageFault.REGISTRY.value)


class PodWorker:
    """Runs one pod, identified by its uid. ``run`` it as a task; it returns when the pod is removed."""

    def __init__(self, deps: PodWorkerDeps, lister: Lister, pod: Obj, *, failure: PodFailure | None = None) -> None:
        self._deps = deps
        self._clock: Clock = deps.clock
        self._lister = lister
        self._starter = Starter(deps)
        self._terminator = Terminator(deps)
        self.pod = pod
        self._reporter = Reporter(deps, pod)
        started = self.status.get("startTime")
        self._started_at = parse_epoch(started) if started else self._clock.wall_s()
        self._failure = failure
        self._adopting = True
        self._holds = Holds(self._backing_off)
        self._messages: dict[str, str] = {}
        self._prepared: dict[str, Prepared] | None = None
        self._volumes_stale = False
        self._volume_faults = 0
        self._reported_backoffs: set[tuple[str, int]] = set()
        self._resources: dict[str, ContainerResources] = {}
        self._wake = asyncio.Event()
        self._wake.set()
        self._timer: Timer | None = None
        self._timer_at: float | None = None
        self._starting: asyncio.Task[None] | None = None
        self._interrupted = False
        self._tasks = OwnedTasks()
        self.finished = False
        self.view: PodView | None = None  # of the last sync, for the node's endpoints

    @property
    def uid(self) -> str:
        found: str = self.pod["metadata"]["uid"]
        return found

    @property
    def status(self) -> Obj:
        """The status as last written."""
        return self._reporter.status

    @property
    def active(self) -> bool:
        """Whether the pod still uses the node's resources."""
        return not self.finished and self.status.get("phase") not in TERMINAL

    # notifications

    def update(self, pod: Obj) -> None:
        """The pod changed in the API."""
        was_ending = self._ending()
        self.pod = pod
        self._reporter.seen(pod)
        self._volumes_stale = self._prepared is not None
        if self._ending() and not was_ending:
            self._interrupt()
        elif self._ending() and self._terminator.active:
            self._shorten(self._grace_s())
        self.wake()

    def mark_removed(self) -> None:
        """The pod was deleted from the API: stop it without writing a status."""
        self._reporter.known = False
        about = self.pod["metadata"]
        if not about.get("deletionTimestamp"):
            self.pod = {**self.pod, "metadata": {**about, "deletionTimestamp": "gone"}}
            self._interrupt()
        elif self._terminator.active:
            self._shorten(0.0)
        self.wake()

    def fail(self, failure: PodFailure) -> None:
        """End the pod with this failure, for example an eviction."""
        if self._failure is None and not self._ending():
            self._failure = failure
            self._interrupt()
            self.wake()

    def references_changed(self) -> None:
        """A referenced object changed: refresh volumes, and retry what failed because of it."""
        self._volumes_stale = self._prepared is not None
        self._volume_faults = 0
        self._holds.retry("CreateContainerConfigError", "ContainerCreating")
        self.wake()

    def wake(self) -> None:
        self._wake.set()

    def _ending(self) -> bool:
        return bool(self.pod["metadata"].get("deletionTimestamp")) or self._failure is not None

    def _interrupt(self) -> None:
        if self._starting is not None:
            self._interrupted = True
            self._starting.cancel()

    def _shorten(self, grace_s: float) -> None:
        self._tasks.start(self._terminator.shorten_grace(grace_s), name=f"shorten-grace/{self.uid}")

    def _wake_at(self, at: float | None) -> None:
        if at is None or (self._timer_at is not None and self._timer_at <= at):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        self._timer = self._clock.call_later(max(0.0, at - self._clock.wall_s()), self._timer_fired)

    def _timer_fired(self) -> None:
        self._timer = self._timer_at = None
        self._wake.set()

    # the loop

    async def run(self) -> None:
        about = self.pod["metadata"]
        self._deps.references.use(self.uid, self._references())
        try:
            with correlated(pod=f"{about['namespace']}/{about['name']}"):
                while not self.finished:
                    await self._wake.wait()
                    self._wake.clear()
                    await self._sync_safely()
        finally:
            if self._timer is not None:
                self._timer.cancel()
            await self._tasks.close()

    def _references(self) -> set[ObjectReference]:
        namespace = self.pod["metadata"]["namespace"]
        found = references_of(self.pod)
        spec = self.pod["spec"]
        for each in (*(spec.get("initContainers") or ()), *spec["containers"]):
            found |= {ObjectReference(one.resource, namespace, one.name) for one in env.references(each)}
        return found

    async def _sync_safely(self) -> None:
        try:
            await self._sync()
        except (RuntimeFailure, OSError) as error:
            log.warning("syncing the pod failed", reason=str(error))
            self._deps.events.warning(self.pod, "FailedSync", f"error syncing pod: {error}")
            self._wake_at(self._clock.wall_s() + _RETRY_S)
        except (ApiError, TransportError) as error:
            log.warning("a request to the API server failed", reason=str(error))
            self._wake_at(self._clock.wall_s() + _REPORT_S)

    async def _sync(self) -> None:
        self._check_deadline()
        for _ in range(_ROUNDS):
            view = self.view = await self._observe()
            decision = plan(view, self._clock.wall_s())
            self._report_backoffs(decision)
            await self._report(view, decision)
            for action in decision.actions:
                await self._do(view, action)
            if self.finished or not decision.actions or isinstance(decision.actions[-1], Finish):
                await self._keep_fresh(view)
                self._wake_at(decision.recheck_at)
                self._wake_at(self._holds.next_at())
                return
        self._wake_at(self._clock.wall_s() + 1.0)

    def _check_deadline(self) -> None:
        limit = self.pod["spec"].get("activeDeadlineSeconds")
        if limit is None or self._ending() or self.status.get("phase") in TERMINAL:
            return
        if self._clock.wall_s() < self._started_at + limit:
            self._wake_at(self._started_at + limit)
            return
        message = "Pod was active on the node longer than the specified deadline"
        self._deps.events.normal(self.pod, "DeadlineExceeded", message)
        self._failure = PodFailure("DeadlineExceeded", message)

    # observing

    async def _observe(self) -> PodView:
        sandbox, containers = of_pod(await self._lister.fresh(), self.uid)
        address = next(iter(sandbox.addresses), "") if sandbox is not None else ""
        for each in containers:
            await self._follow(each, address)
        self._adopting = False
        return PodView(
            pod=self.pod, old=self.status, sandbox=sandbox, containers=containers,
            probed=self._deps.prober.of_pod(self.uid), waits=self._holds.waits(self._clock.wall_s()),
            messages=dict(self._messages), retry_at=self._holds.retry_at(),
            host_addresses=self._deps.host_addresses, started_at=self._started_at, failure=self._failure,
        )  # fmt: skip

    async def _follow(self, container: Container, address: str) -> None:
        found = find(self.pod, container.name)
        if found is None:
            return
        if container.phase is ContainerPhase.RUNNING and found[1] in (ContainerRole.MAIN, ContainerRole.SIDECAR):
            if not self._terminator.active:
                was_ready = self._adopting and self._was_ready(container)
                self._deps.prober.follow(self.pod, found[0], container, address, was_ready=was_ready)
        elif container.phase is ContainerPhase.EXITED:
            await self._deps.prober.forget(container.id)
            if container.id not in self._messages:
                deps = self._deps
                text = await termination_message(deps.runtime, deps.volumes, found[0], container)
                self._messages[container.id] = text

    def _was_ready(self, container: Container) -> bool:
        wanted = f"{self._deps.runtime_name}://{container.id}"
        statuses = (*(self.status.get("containerStatuses") or ()), *(self.status.get("initContainerStatuses") or ()))
        return any(each.get("containerID") == wanted and each.get("ready") for each in statuses)

    def _backing_off(self, name: str, failed: ContainerWait) -> ContainerWait:
        found = find(self.pod, name)
        image = found[0].get("image", "") if found is not None else ""
        return self._deps.images.backing_off(self.pod, name, image, failed)

    def _report_backoffs(self, decision: PodDecision) -> None:
        for name, wait in decision.waits.items():
            if wait.reason != "CrashLoopBackOff" or self.view is None:
                continue
            attempt = max((each.attempt for each in self.view.containers if each.name == name), default=0)
            if (name, attempt) not in self._reported_backoffs:
                others = {each for each in self._reported_backoffs if each[0] != name}
                self._reported_backoffs = others | {(name, attempt)}
                message = f"Back-off restarting failed container {name} in pod {qualified(self.pod)}"
                self._deps.events.warning(self.pod, "BackOff", message, container=name)

    # reporting

    async def _report(self, view: PodView, decision: PodDecision) -> None:
        """Write the status if it changed; a failed write is retried later."""
        written = await self._reporter.write(view, decision.waits, self._clock.wall_s())
        if written is Written.AGAIN:
            self.wake()
        elif written is Written.LATER:
            self._wake_at(self._clock.wall_s() + _REPORT_S)

    # acting

    async def _do(self, view: PodView, action: Action) -> None:
        match action:
            case CreateSandbox(attempt):
                await self._interruptible(self._create_sandbox(attempt))
            case StartContainer():
                await self._interruptible(self._start(view, action))
            case KillContainer():
                await self._kill(view, action)
            case RemoveContainer(container_id):
                await self._deps.prober.forget(container_id)
                await self._deps.runtime.remove(container_id)
                self._messages.pop(container_id, None)
            case Terminate():
                await self._terminator.end_all(self.pod, view.sandbox, view.containers, self._grace_s())
            case StopSandbox(sandbox_id):
                await self._deps.runtime.stop_sandbox(sandbox_id)
            case Finish():
                await self._finish()

    async def _interruptible(self, part: Coroutine[Any, Any, None]) -> None:
        """Run a step that a termination may cancel. The next observation finds what it left behind."""
        self._starting = starting = self._tasks.start(part, name=f"start/{self.uid}", awaited=True)
        if self._ending():
            self._interrupt()
        try:
            await asyncio.shield(starting)
        except asyncio.CancelledError:
            mine = asyncio.current_task()
            if not self._interrupted or (mine is not None and mine.cancelling()):
                await cancel_all(starting)
                raise
        finally:
            self._starting, self._interrupted = None, False

    def _grace_s(self) -> float:
        about, spec = self.pod["metadata"], self.pod["spec"]
        if self._failure is not None and self._failure.grace_s is not None:
            return self._failure.grace_s
        found = about.get("deletionGracePeriodSeconds")
        if found is None:
            found = spec.get("terminationGracePeriodSeconds")
        return float(30 if found is None else found)

    async def _volumes(self) -> bool:
        """Set up the volumes; False if that failed."""
        if self._prepared is not None:
            return True
        sources = self._starter.environment_sources(self.pod, self.view.sandbox if self.view is not None else None)
        try:
            self._prepared = await self._deps.volumes.prepare(self.pod, sources)
        except VolumeFault as fault:
            message = f'MountVolume.SetUp failed for volume "{fault.volume}" : {fault}'
            self._deps.events.warning(self.pod, "FailedMount", message)
            delay_s = min(_VOLUME_CAP_S, 0.5 * 2.0**self._volume_faults)
            self._volume_faults = min(self._volume_faults + 1, 10)
            self._hold(SANDBOX, ContainerWait(""), delay_s)
            return False
        self._volume_faults = 0
        return True

    def _hold(self, name: str, wait: ContainerWait, delay_s: float) -> None:
        self._holds.set(name, wait, self._clock.wall_s() + delay_s)

    async def _create_sandbox(self, attempt: int) -> None:
        deps = self._deps
        if not await self._volumes():
            return
        if attempt:
            message = "Pod sandbox changed, it will be killed and re-created."
            deps.events.normal(self.pod, "SandboxChanged", message)
        folder = deps.volumes.folder(self.uid)
        spec = sandbox_spec(self.pod, attempt, str(folder), dns_servers=deps.dns_servers, domain=deps.cluster_domain)
        try:
            await deps.runtime.create_sandbox(spec)
        except CreateFailure as fault:
            deps.events.warning(self.pod, "FailedCreatePodSandBox", f"Failed to create pod sandbox: {fault}")
            self._hold(SANDBOX, ContainerWait(""), _RETRY_S)
        else:
            self._holds.clear(SANDBOX)
            self._volumes_stale = True  # some show the pod's address

    async def _start(self, view: PodView, action: StartContainer) -> None:
        name, sandbox = action.name, view.sandbox
        if sandbox is None or not await self._volumes():
            retry_at = self._holds.retry_at().get(SANDBOX)
            if retry_at is not None:
                self._holds.set(name, ContainerWait("ContainerCreating"), retry_at)
            return
        try:
            started = await self._starter.start(self.pod, sandbox, action, self._prepared or {})
        except NoImage as missing:
            if missing.wait.reason in _PULL_FAULTS:
                self._holds.set_pull(name, missing.wait, missing.retry_at, self._clock.wall_s())
            else:
                self._holds.set(name, missing.wait, missing.retry_at)
        except ConfigFault as fault:
            self._hold(name, ContainerWait("CreateContainerConfigError", str(fault)), _RETRY_S)
        except CreateFailure as fault:
            self._hold(name, ContainerWait("CreateContainerError", str(fault)), _RETRY_S)
        except StartFailure as fault:
            self._hold(name, ContainerWait("RunContainerError", str(fault)), 0.0)
        except HookFault as fault:
            self._hold(name, ContainerWait("PostStartHookError", str(fault)), 0.0)
        else:
            self._holds.clear(name)
            self._resources[name] = resources_of(started.spec)

    async def _kill(self, view: PodView, action: KillContainer) -> None:
        container = next((each for each in view.containers if each.id == action.container_id), None)
        if container is None:
            return
        if container.phase is not ContainerPhase.RUNNING:
            await self._deps.runtime.stop(container.id, grace_s=0)
            return
        grace_s = self._grace_s()
        found = find(self.pod, action.name)
        if action.probe and found is not None:
            own = (found[0].get(f"{action.probe}Probe") or {}).get("terminationGracePeriodSeconds")
            grace_s = grace_s if own is None else float(own)
        await self._terminator.end(self.pod, view.sandbox, container, grace_s, action.message)

    async def _keep_fresh(self, view: PodView) -> None:
        """Refresh volumes made from objects, and apply changed resource limits."""
        if self._ending() or self.finished:
            return
        renew_at = self._deps.volumes.renew_at(self.uid)
        due = renew_at is not None and renew_at <= self._clock.wall_s()
        if self._prepared is not None and (self._volumes_stale or due):
            self._volumes_stale = False
            try:
                await self._deps.volumes.refresh(self.pod, self._starter.environment_sources(self.pod, view.sandbox))
            except VolumeFault as fault:
                message = f'MountVolume.SetUp failed for volume "{fault.volume}" : {fault}'
                self._deps.events.warning(self.pod, "FailedMount", message)
                self._wake_at(self._clock.wall_s() + _RETRY_S)
        renew_at = self._deps.volumes.renew_at(self.uid)
        if renew_at is not None:  # if the renewal just failed, wait a little
            self._wake_at(max(renew_at, self._clock.wall_s() + 1.0))
        await self._resize(view)

    async def _resize(self, view: PodView) -> None:
        for each in view.containers:
            found = find(self.pod, each.name)
            if each.phase is not ContainerPhase.RUNNING or found is None:
                continue
            wanted = resources_of(found[0])
            if self._resources.setdefault(each.name, wanted) != wanted:
                try:
                    await self._deps.runtime.update(each.id, wanted)
                except NoSuchContainer:
                    continue
                self._resources[each.name] = wanted

    # finishing

    async def _finish(self) -> None:
        """Nothing runs any more: remove a deleted pod with all its state. A finished pod keeps its containers' logs."""
        for each in self.view.containers if self.view is not None else ():
            await self._deps.prober.forget(each.id)
        if not self.pod["metadata"].get("deletionTimestamp"):
            return
        await self._report_end()
        inventory = await self._lister.fresh()
        for sandbox in inventory.sandboxes:
            if sandbox.pod_uid == self.uid:
                await self._deps.runtime.remove_sandbox(sandbox.id)
        self._deps.volumes.remove(self.uid)
        self._deps.references.release(self.uid)
        self._deps.images.forget(self.uid)
        if self._reporter.known:
            about = self.pod["metadata"]
            try:
                await self._deps.pods.delete(about["name"], about["namespace"], grace_period_s=0, uid=self.uid)
            except (NotFound, Conflict):
                pass
        self.finished = True

    async def _report_end(self) -> None:
        """Write the last status, with the exit of every container."""
        view = await self._observe()
        await self._report(view, PodDecision())
