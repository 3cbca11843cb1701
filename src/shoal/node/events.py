"""Events that the agent records about pods and their containers, as kubelet words them."""

from __future__ import annotations

from shoal.kube.objects import Obj
from shoal.node.containers import ContainerRole, find
from shoal.reconcile import EventRecorder, EventType

_FIELDS = {
    ContainerRole.INIT: "initContainers", ContainerRole.SIDECAR: "initContainers", ContainerRole.MAIN: "containers",
    ContainerRole.EPHEMERAL: "ephemeralContainers",
}  # fmt: skip


class PodEvents:
    """Records events of pods; ``container`` names the affected container."""

    def __init__(self, recorder: EventRecorder) -> None:
        self._recorder = recorder

    def normal(self, pod: Obj, reason: str, message: str, *, container: str = "") -> None:
        self._record(pod, EventType.NORMAL, reason, message, container)

    def warning(self, pod: Obj, reason: str, message: str, *, container: str = "") -> None:
        self._record(pod, EventType.WARNING, reason, message, container)

    def _record(self, pod: Obj, kind: EventType, reason: str, message: str, container: str) -> None:
        about = {"apiVersion": "v1", "kind": "Pod", "metadata": pod["metadata"]}
        self._recorder.record(about, kind, reason, message, field_path=_path(pod, container))


def _path(pod: Obj, container: str) -> str:
    found = find(pod, container) if container else None
    return f"spec.{_FIELDS[found[1]]}{{{container}}}" if found is not None else ""
