"""The time that caused a change of endpoints: the oldest change of the pods and the service since the last
reconcile."""

from __future__ import annotations

from collections.abc import Iterable

from shoal.controllers.pods.status import condition_of
from shoal.kube.objects import Obj
from shoal.reconcile.keys import ObjectKey

_Seen = tuple[str, dict[str, str]]  # times of the service and of each pod; the format sorts as text


class TriggerTimes:
    """Keeps, per service, the causes already reported."""

    def __init__(self) -> None:
        self._seen: dict[ObjectKey, _Seen] = {}

    def observe(self, key: ObjectKey, service: Obj, pods: Iterable[Obj]) -> str:
        """The time of the oldest change since the last call; empty if unknown."""
        created: str = service["metadata"].get("creationTimestamp") or ""
        times = {pod["metadata"]["name"]: at for pod in pods if (at := _readiness_changed(pod))}
        known = self._seen.get(key)
        self._seen[key] = created, times
        if known is None:
            return created
        last, before = known
        changed = [at for name, at in times.items() if at > before.get(name, "")]
        if created > last:
            changed.append(created)
        return min(changed, default="")

    def forget(self, key: ObjectKey) -> None:
        self._seen.pop(key, None)


def _readiness_changed(pod: Obj) -> str:
    condition = condition_of(pod, "Ready")
    return (condition.get("lastTransitionTime") or "") if condition is not None else ""
