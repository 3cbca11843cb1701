"""The next actions for a pod, from its spec, the runtime's state, probe results and the time.

    no sandbox ─▶ init containers, one after the other, sidecars among them ─▶ main containers ─▶ all ended ─▶ stop
    deleted, evicted, past its deadline ─▶ Terminate ─▶ StopSandbox ─▶ Finish

It runs after every change, so a decision contains only actions that are possible now.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from shoal.kube.objects import Obj
from shoal.node.containers import ContainerRole, ContainerWait, init_containers, newest
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
from shoal.node.pods.restarts import backoff_s, crashes_of, hash_of, last_attempts, next_crashes, restarts
from shoal.node.runtime.model import Container, ContainerPhase

_KEPT_DEAD = 1  # dead attempts beside the newest one, for ``logs --previous`` and the last state


def plan(view: PodView, now: float) -> PodDecision:
    """Decide the next actions for the pod."""
    if view.ending:
        return PodDecision(_end(view))
    work = _Work(view, now)
    work.run()
    return PodDecision(tuple(work.actions), work.recheck_at, work.waits)


def _end(view: PodView) -> tuple[Action, ...]:
    if any(each.phase is ContainerPhase.RUNNING for each in view.containers):
        return (Terminate(),)
    if view.sandbox is not None and view.sandbox.ready:
        return (StopSandbox(view.sandbox.id), Finish())
    return (Finish(),)


@dataclass(slots=True)
class _Work:
    """One pass over the containers of a pod that is alive."""

    view: PodView
    now: float
    actions: list[Action] = field(default_factory=list)
    waits: dict[str, ContainerWait] = field(default_factory=dict)
    recheck_at: float | None = None
    current: dict[str, Container] = field(default_factory=dict)
    attempts: dict[str, int] = field(default_factory=dict)

    def run(self) -> None:
        view = self.view
        self.current = newest(view.containers)
        self.attempts = dict(last_attempts(view))
        if view.sandbox is None or not view.sandbox.ready:
            self._replace_sandbox()
            return
        self._remove_the_oldest()
        self._ephemeral()
        if self._initialize():
            self._main()

    # the sandbox

    def _replace_sandbox(self) -> None:
        """Create a sandbox, after which the pod starts again with its init containers; or finish a completed pod."""
        old = self.view.sandbox
        if old is not None and self.view.containers and not self._something_to_run():
            self.actions.append(Finish())
            return
        if not self._held("", self.view.retry_at.get("", 0.0), None):
            self.actions.append(CreateSandbox(0 if old is None else old.attempt + 1))

    def _something_to_run(self) -> bool:
        pod = self.view.pod
        mains = [(each, self.current.get(each["name"])) for each in pod["spec"]["containers"]]
        if any(container is not None for _, container in mains):
            return any(
                container is None or restarts(each, ContainerRole.MAIN, pod, _code(container))
                for each, container in mains
            )
        inits = ((each, role, self.current.get(each["name"])) for each, role in init_containers(pod))
        return not any(
            container is not None and _code(container) != 0 and not restarts(each, role, pod, _code(container))
            for each, role, container in inits
        )

    def _remove_the_oldest(self) -> None:
        for name, newest_one in self.current.items():
            dead = [each for each in self.view.containers if each.name == name and each.id != newest_one.id]
            dead.sort(key=lambda each: (each.attempt, each.created_at), reverse=True)
            self.actions += [RemoveContainer(each.id) for each in dead[_KEPT_DEAD:]]

    # init containers

    def _initialize(self) -> bool:
        """Start the next init container or sidecar. Return whether initialization is complete."""
        pod = self.view.pod
        mains = {each["name"] for each in pod["spec"]["containers"]}
        done_before = any(self._here(name) is not None for name in mains)
        finished = done_before and self._all_main_ended()
        for each, role in init_containers(pod):
            if role is ContainerRole.SIDECAR:
                if not finished and not self._sidecar(each) and not done_before:
                    return False
            elif not done_before and not self._init(each):
                return False
        return True

    def _here(self, name: str) -> Container | None:
        """The newest attempt of a container in the current sandbox."""
        found = self.current.get(name)
        sandbox = self.view.sandbox
        return found if found is not None and sandbox is not None and found.sandbox_id == sandbox.id else None

    def _init(self, each: Obj) -> bool:
        container = self._here(each["name"])
        if container is None or container.phase in (ContainerPhase.CREATED, ContainerPhase.UNKNOWN):
            self._start(each, ContainerRole.INIT, container)
            return False
        if container.phase is ContainerPhase.RUNNING:
            return False
        if container.exit_code == 0:
            return True
        if restarts(each, ContainerRole.INIT, self.view.pod, container.exit_code):
            self._start(each, ContainerRole.INIT, container)
        else:
            self.actions.append(Terminate())
            self.actions += self._stop()
        return False

    def _sidecar(self, each: Obj) -> bool:
        """Whether the sidecar has started, so that the next container may start."""
        container = self._here(each["name"])
        if container is None or container.phase is not ContainerPhase.RUNNING:
            self._start(each, ContainerRole.SIDECAR, container)
            return False
        if self._kill(each, container, restart=True):
            return False
        return self.view.probe_results(each, container).started

    # main containers

    def _all_main_ended(self) -> bool:
        for each in self.view.pod["spec"]["containers"]:
            container = self._here(each["name"])
            if container is None or container.phase is not ContainerPhase.EXITED:
                return False
            if restarts(each, ContainerRole.MAIN, self.view.pod, container.exit_code):
                return False
        return True

    def _main(self) -> None:
        if self._all_main_ended():
            if any(each.phase is ContainerPhase.RUNNING for each in self.view.containers):
                self.actions.append(Terminate())
            self.actions += self._stop()
            return
        pod = self.view.pod
        for each in pod["spec"]["containers"]:
            container = self._here(each["name"])
            if container is None:
                earlier = self.current.get(each["name"])
                if earlier is None or restarts(each, ContainerRole.MAIN, pod, _code(earlier)):
                    self._start(each, ContainerRole.MAIN, earlier)
            elif container.phase is ContainerPhase.RUNNING:
                self._kill(each, container, restart=restarts(each, ContainerRole.MAIN, pod, 1))
            elif container.phase is not ContainerPhase.EXITED or restarts(
                each, ContainerRole.MAIN, pod, container.exit_code
            ):
                self._start(each, ContainerRole.MAIN, container)

    def _ephemeral(self) -> None:
        for each in self.view.pod["spec"].get("ephemeralContainers") or ():
            container = self.current.get(each["name"])
            if container is None or container.phase is ContainerPhase.CREATED:
                self._start(each, ContainerRole.EPHEMERAL, container)

    # shared steps

    def _stop(self) -> list[Action]:
        sandbox = self.view.sandbox
        return [StopSandbox(sandbox.id)] if sandbox is not None else []

    def _kill(self, each: Obj, container: Container, *, restart: bool) -> bool:
        name, failed = each["name"], self.view.probe_results(each, container).failed
        if container.hash and container.hash != hash_of(each):
            message, failed = f"Container {name} definition changed, will be restarted", ""
        elif failed:
            message = f"Container {name} failed {failed} probe" + (", will be restarted" if restart else "")
        else:
            return False
        self.actions.append(KillContainer(container_id=container.id, name=name, message=message, probe=failed))
        return True

    def _start(self, each: Obj, role: ContainerRole, last: Container | None) -> None:
        """Start a container, unless its crash backoff or the backoff after a failed start has not elapsed."""
        name, attempt, crashes = each["name"], 0, 0
        not_before = self.view.retry_at.get(name, 0.0)
        wait: ContainerWait | None = self.view.waits.get(name)
        if last is not None and last.phase is ContainerPhase.CREATED:
            attempt, crashes = last.attempt, crashes_of(last)
        elif last is not None:
            attempt, crashes = last.attempt + 1, next_crashes(last)
            delay_s = backoff_s(last)
            starts_at = (last.finished_at or 0.0) + delay_s
            if starts_at > max(not_before, self.now):
                not_before = starts_at
                wait = ContainerWait("CrashLoopBackOff", self._crash_message(name, delay_s))
            if last.phase is ContainerPhase.UNKNOWN:
                message = f"Container {name} is in an unknown state, try killing it before restart"
                self.actions.append(KillContainer(container_id=last.id, name=name, message=message))
        elif name in self.attempts:
            attempt = self.attempts[name] + 1
        if not self._held(name, not_before, wait):
            self.actions.append(StartContainer(name=name, role=role, attempt=attempt, crashes=crashes))

    def _crash_message(self, name: str, delay_s: float) -> str:
        return f"back-off {_duration(delay_s)} restarting failed container={name} pod={qualified(self.view.pod)}"

    def _held(self, name: str, not_before: float, wait: ContainerWait | None) -> bool:
        if not_before <= self.now:
            return False
        if wait is not None:
            self.waits[name] = wait
        self.recheck_at = not_before if self.recheck_at is None else min(self.recheck_at, not_before)
        return True


def _code(container: Container) -> int:
    """The exit code of a container that does not run; that of SIGKILL if it is unknown."""
    return container.exit_code if container.phase is ContainerPhase.EXITED else 137


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"
