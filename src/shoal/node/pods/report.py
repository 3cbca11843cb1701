"""Writes the status of one pod: only if it changed, and never over a newer write of another client."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from shoal.base.logs import get_logger
from shoal.client import TransportError
from shoal.errors import ApiError, Conflict, NotFound
from shoal.kube.objects import Obj
from shoal.node.containers import ContainerWait
from shoal.node.pods.deps import PodWorkerDeps
from shoal.node.pods.model import PodView
from shoal.node.pods.status import status_of

log = get_logger("node.pods")

_OURS = ("PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready")


class Written(StrEnum):
    DONE = "done"  # written, or nothing to write
    AGAIN = "again"  # the object changed meanwhile: plan again with its new version
    LATER = "later"  # the write failed: try again later


class Reporter:
    """Writes a pod's status to the API."""

    def __init__(self, deps: PodWorkerDeps, pod: Obj) -> None:
        self._deps = deps
        self._latest = pod  # the newest version of the pod
        self._uid: str = pod["metadata"]["uid"]
        self.status: Obj = pod.get("status") or {}  # as last written, or as the API had it at first
        self.known = True  # False: the pod was removed from the API

    def seen(self, pod: Obj) -> None:
        """A version of the pod was received; it may be older than what the last write has returned."""
        if _version(pod) >= _version(self._latest):
            self._latest = pod

    def _overruled(self) -> bool:
        """Whether another client has changed a condition of ours: the controllers mark the pods of a lost node as not
        ready, and leave it to the node to say otherwise when it is back."""
        return _conditions(self._latest.get("status") or {}) != _conditions(self.status)

    async def write(self, view: PodView, waits: Mapping[str, ContainerWait], now: float) -> Written:
        status = status_of(view, {**view.waits, **waits}, self._deps.runtime_name, now)
        if not self.known or (status == self.status and not self._overruled()):
            return Written.DONE
        try:
            self._latest = await self._deps.pods.replace_status({**self._latest, "status": status})
        except Conflict:
            return await self._catch_up()
        except NotFound:
            self.known = False
            return Written.DONE
        except (ApiError, TransportError) as error:
            log.warning("writing the pod's status failed", reason=str(error))
            return Written.LATER
        self.status = status
        return Written.DONE

    async def _catch_up(self) -> Written:
        about = self._latest["metadata"]
        try:
            found = await self._deps.pods.get(about["name"], about["namespace"])
        except NotFound:
            self.known = False
            return Written.DONE
        except (ApiError, TransportError):
            return Written.LATER
        if found["metadata"]["uid"] != self._uid:
            self.known = False
            return Written.DONE
        self._latest = found
        return Written.AGAIN


def _conditions(status: Obj) -> dict[str, str]:
    return {each["type"]: each["status"] for each in status.get("conditions") or () if each["type"] in _OURS}


def _version(pod: Obj) -> int:
    """0 for a server whose versions are no numbers: then what was received last counts as newest."""
    text = str(pod["metadata"].get("resourceVersion", ""))
    return int(text) if text.isdecimal() else 0
