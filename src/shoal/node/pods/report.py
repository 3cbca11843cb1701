"""Writes the status of one pod: only when it differs from what was written, and never over another's newer write."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from shoal.base.logs import get_logger
from shoal.client import TransportError
from shoal.errors import ApiError, Conflict, NotFound
from shoal.kube.objects import Obj
from shoal.node.pods.model import View, Wait
from shoal.node.pods.status import status_of
from shoal.node.pods.tools import Tools

log = get_logger("node.pods")


class Written(StrEnum):
    DONE = "done"  # written, or nothing to write
    AGAIN = "again"  # the object has changed meanwhile: plan anew with what it is now
    LATER = "later"  # the API did not take it


class Reporter:
    """What the API knows of a pod."""

    def __init__(self, tools: Tools, pod: Obj) -> None:
        self._tools = tools
        self._latest = pod  # the object of the newest revision that we have seen
        self._uid: str = pod["metadata"]["uid"]
        self.status: Obj = pod.get("status") or {}  # as last written, or as the API had it at first
        self.known = True  # False: the API does not have the pod any more

    def seen(self, pod: Obj) -> None:
        """The API shows the pod so."""
        self._latest = pod

    async def write(self, view: View, waits: Mapping[str, Wait], now: float) -> Written:
        status = status_of(view, {**view.waits, **waits}, self._tools.runtime_name, now)
        if status == self.status or not self.known:
            return Written.DONE
        try:
            self._latest = await self._tools.pods.replace_status({**self._latest, "status": status})
        except Conflict:
            return await self._catch_up()
        except NotFound:
            self.known = False
            return Written.DONE
        except (ApiError, TransportError) as error:
            log.warning("the status was not written", reason=str(error))
            return Written.LATER
        self.status = status
        return Written.DONE

    async def _catch_up(self) -> Written:
        about = self._latest["metadata"]
        try:
            found = await self._tools.pods.get(about["name"], about["namespace"])
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
