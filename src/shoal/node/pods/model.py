"""The agent's view of one pod, and the actions it may decide on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from shoal.kube.objects import Obj
from shoal.node.runtime.model import Container, Sandbox


class ContainerRole(StrEnum):
    """How a container takes part in its pod."""

    INIT = "init"  # runs to its end before the next one starts
    SIDECAR = "sidecar"  # an init container that keeps running
    MAIN = "main"
    EPHEMERAL = "ephemeral"


@dataclass(frozen=True, slots=True)
class ContainerWait:
    """Why a container does not run, in the words of its status."""

    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probed:
    """Probe results of a running container."""

    started: bool = True
    ready: bool = True
    failed: str = ""  # ``liveness`` or ``startup``: it has to be killed


@dataclass(frozen=True, slots=True)
class PodFailure:
    """The node has ended the pod: evicted, past its deadline, or never admitted."""

    reason: str
    message: str
    conditions: tuple[tuple[str, str, str], ...] = ()  # type, reason, message of conditions that are true from now on
    rejected: bool = False  # it never began here
    grace_s: float | None = None  # None: the pod's own


@dataclass(frozen=True, slots=True, kw_only=True)
class PodView:
    """Everything that is known of a pod at one moment."""

    pod: Obj
    old: Obj  # the status as last written, or as the API has it
    sandbox: Sandbox | None = None  # the newest one
    containers: tuple[Container, ...] = ()
    probed: Mapping[str, Probed] = field(default_factory=dict)  # by container id; without an entry: no probe has run
    waits: Mapping[str, ContainerWait] = field(default_factory=dict)  # by container name: why its last start failed
    retry_at: Mapping[str, float] = field(default_factory=dict)  # by container name: no start before
    messages: Mapping[str, str] = field(default_factory=dict)  # termination messages by container id
    host_addresses: tuple[str, ...] = ()
    started_at: float = 0.0  # when this node took the pod
    failure: PodFailure | None = None

    @property
    def deleted(self) -> bool:
        return bool(self.pod["metadata"].get("deletionTimestamp"))

    @property
    def ending(self) -> bool:
        """Nothing is started any more."""
        return self.deleted or self.failure is not None or self.old.get("phase") in ("Succeeded", "Failed")


# what can be done


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
    probe: str = ""  # the probe that failed, whose own grace period counts


@dataclass(frozen=True, slots=True)
class RemoveContainer:
    container_id: str


@dataclass(frozen=True, slots=True)
class Terminate:
    """End all containers, in order, within the pod's grace period."""


@dataclass(frozen=True, slots=True)
class Finish:
    """Nothing runs any more: clean up, and let the API forget the pod if it is being deleted."""


Action = CreateSandbox | StopSandbox | StartContainer | KillContainer | RemoveContainer | Terminate | Finish


@dataclass(frozen=True, slots=True)
class PodDecision:
    """Actions to take now, in order, and the time of the next plan without an event."""

    actions: tuple[Action, ...] = ()
    recheck_at: float | None = None
    waits: Mapping[str, ContainerWait] = field(
        default_factory=dict
    )  # by container name: those that are held back for now
