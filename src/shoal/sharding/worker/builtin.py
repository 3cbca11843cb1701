"""The built-in worker's controller: processes ShardedResources, for a ShardConfig without a worker of its own.

It sends each to the webhook that the ShardConfig names, or only marks it where there is none. The status tells who
processed which generation, at which attempt. A webhook may get the same object twice, when the owner changes or the
status could not be written: it has the object's uid, its generation and the owner's token to notice.
"""

from __future__ import annotations

from typing import Any

import orjson

from shoal.base.backoff import Backoff
from shoal.base.clock import Clock
from shoal.crds.shard import GROUP, SHARDED_RESOURCE, HandlerWebhook
from shoal.kube.objects import Obj
from shoal.kube.times import format_time
from shoal.sharding.worker.app import RetryLater, ShardedController
from shoal.sharding.worker.owned import Owned
from shoal.sharding.worker.webhook import WebhookCaller, WebhookFailed

_BACKOFF = Backoff(base_s=1.0, cap_s=300.0)
_MESSAGE = 1000  # characters in a status


class BuiltinController:
    """``app`` runs in a worker of the shard."""

    def __init__(self, shard: str, webhooks: WebhookCaller, *, clock: Clock) -> None:
        self._shard = shard
        self._webhooks = webhooks
        self._clock = clock
        # uid -> webhook that failed, and when to try it again; a new owner or another webhook tries at once
        self._failed: dict[str, tuple[HandlerWebhook, int, float]] = {}
        self.app = ShardedController()
        self.app.reconcile(GROUP, SHARDED_RESOURCE)(self._process)
        self.app.gone(GROUP, SHARDED_RESOURCE)(self._gone)

    async def _process(self, owned: Owned) -> float | None:
        about, status = owned.object["metadata"], owned.object.get("status") or {}
        generation = about.get("generation", 0)
        seen = status.get("observedGeneration") == generation
        if about.get("deletionTimestamp") or (seen and status.get("phase") == "Processed"):
            self._failed.pop(about["uid"], None)
            return None
        webhook = owned.settings.handler.webhook
        if (wait_s := self._wait_s(about["uid"], webhook, generation)) > 0:
            return wait_s  # its own status write has called it
        attempts = (status.get("attempts", 0) if seen else 0) + 1
        now: Obj = {"processedBy": self._shard, "attempts": attempts, "observedGeneration": generation}
        if webhook is not None:
            try:
                await self._webhooks.post(webhook, _call(owned, attempts))
            except WebhookFailed as failed:
                delay_s = _BACKOFF.bound_s(attempts)
                self._failed[about["uid"]] = webhook, generation, self._clock.monotonic() + delay_s
                await owned.update_status({**now, "phase": "Failed", "message": str(failed)[:_MESSAGE]})
                raise RetryLater(str(failed), after_s=delay_s) from failed
        self._failed.pop(about["uid"], None)
        done = {**now, "phase": "Processed", "processedAt": format_time(self._clock.wall_s()), "message": None}
        await owned.update_status(done)
        return None

    def _wait_s(self, uid: str, webhook: HandlerWebhook | None, generation: int) -> float:
        known = self._failed.get(uid)
        if known is None or known[:2] != (webhook, generation):
            return 0.0
        return known[2] - self._clock.monotonic()

    async def _gone(self, obj: Obj) -> None:
        self._failed.pop(obj["metadata"]["uid"], None)


def _call(owned: Owned, attempt: int) -> bytes:
    about = {name: value for name, value in owned.object["metadata"].items() if name != "managedFields"}
    body: dict[str, Any] = {"object": {**owned.object, "metadata": about}, "attempt": attempt, "token": owned.token}
    return orjson.dumps(body)
