"""The observed state of one pod, and the actions that the plan can decide on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from shoal.kube.objects import Obj
from shoal.node.containers import ContainerRole, ContainerWait
from shoal.node.pod_failure import PodFailure
from shoal.node.probes.model import Probed
from shoal.node.runtime.model import Container, ContainerPhase, Sandbox


@dataclass(frozen=True, slots=True, kw_only=True)
class PodView:
    """Everything known about a pod at one moment."""

    pod: Obj
    old: Obj  # the status as last written, or as the API has it
    sandbox: Sandbox | None = None  # the newest one
    containers: tuple[Container, ...] = ()
    probed: Mapping[str, Probed] = field(default_factory=dict)  # by container id; no entry before the first result
    waits: Mapping[str, ContainerWait] = field(default_factory=dict)  # by container name: why its last start failed
    retry_at: Mapping[str, float] = field(default_factory=dict)  # by container name: earliest time of the next start
    messages: Mapping[str, str] = field(default_factory=dict)  # termination messages by container id
    host_addresses: tuple[str, ...] = ()
    started_at: float = 0.0  # when this node accepted the pod
    failure: PodFailure | None = None

    @property
    def deleted(self) -> bool:
        return bool(self.pod["metadata"].get("deletionTimestamp"))

    @property
    def ending(self) -> bool:
        """Whether the pod is deleted, failed or finished, so that nothing is started."""
        return self.deleted or self.failure is not None or self.old.get("phase") in ("Succeeded", "Failed")

    def probe_results(self, spec: Obj, container: Container) -> Probed:
        """The probe results of a container; before the first result, the default for its probes."""
        if container.phase is not ContainerPhase.RUNNING:
            return Probed(started=False, ready=False)
        found = self.probed.get(container.id)
        if found is not None:
            return found
        started = not spec.get("startupProbe")
        return Probed(started=started, ready=started and not spec.get("readinessProbe"))


def qualified(pod: Obj) -> str:
    """Name, namespace and uid of a pod, as in kubelet's messages."""
    about = pod["metadata"]
    return f"{about['name']}_{about['namespace']}({about['uid']})"


# actions


@dataclass(frozen=True, slots=True)
class CreateSandbox:
    attempt: int


@dataclass(frozen=True, slots=True)
class StopSandbox:
    sandbox_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StartContainer:
    name: str
    role: ContainerRole
    attempt: int
    crashes: int = 0  # short runs in a row before this one; decides the next backoff


@dataclass(frozen=True, slots=True, kw_only=True)
class KillContainer:
    container_id: str
    name: str
    message: str
    probe: str = ""  # the failed probe; its grace period takes precedence


@dataclass(frozen=True, slots=True)
class RemoveContainer:
    container_id: str


@dataclass(frozen=True, slots=True)
class Terminate:
    """Stop all containers, in order, within the pod's grace period."""


@dataclass(frozen=True, slots=True)
class Finish:
    """Nothing runs any more: clean up, and remove the pod from the API if it is deleted."""


Action = CreateSandbox | StopSandbox | StartContainer | KillContainer | RemoveContainer | Terminate | Finish


@dataclass(frozen=True, slots=True)
class PodDecision:
    """Actions to take now, in order, and the time of the next plan without an event."""

    actions: tuple[Action, ...] = ()
    recheck_at: float | None = None
    waits: Mapping[str, ContainerWait] = field(default_factory=dict)  # by name: containers that may not start yet
