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
        """A newer version of the pod was received."""
        self._latest = pod

    async def write(self, view: PodView, waits: Mapping[str, ContainerWait], now: float) -> Written:
        status = status_of(view, {**view.waits, **waits}, self._deps.runtime_name, now)
        if status == self.status or not self.known:
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
