"""Sees what the cluster really has of each sentinel, route, policy and set of keys; implements ``Observer``.

Routes, policies and keys have nothing to report but that they are there, and what somebody changed in them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from shoal.base.backoff import Backoff
from shoal.base.clock import Clock
from shoal.base.logs import get_logger
from shoal.client import Client, Scope, TransportError
from shoal.errors import ApiError
from shoal.krane import labels
from shoal.krane.model import Owner
from shoal.krane.objects.memory import Memory
from shoal.krane.objects.watching import Watched
from shoal.krane.sentinels.apply import PARTS, ROOTS
from shoal.krane.sentinels.install import Installation
from shoal.krane.sentinels.render import NAMESPACE_SENTINEL, SENTINEL_PORT
from shoal.sync.keys import split_key
from shoal.wire.fleet.v1 import cluster_pb as pb

Obj = dict[str, Any]

log = get_logger("krane.sentinels")

_BACKOFF = Backoff(base_s=0.5, cap_s=30.0, floor_s=0.1)


class SentinelObserver:
    def __init__(
        self,
        client: Client,
        owner: Owner,
        memory: Memory,
        installation: Installation,
        *,
        clock: Clock,
        random: Callable[[], float],
    ) -> None:
        self._make = partial(Watched, client, clock=clock, random=random)
        self._owner = owner
        self._memory = memory
        self._installation = installation
        self._watched = self._make()
        self._clock = clock
        self._random = random

    async def run(self, changed: Callable[[str], None]) -> None:
        self._watched = watched = self._make()
        await self._wait_for_kinds()
        watched.parts(PARTS, self._scope("sentinel"))
        for kind, root in ROOTS.items():
            if kind != "sentinel":
                watched.parts((root,), self._scope(kind))
        self._memory.caches = watched.caches
        await watched.run(changed)

    async def _wait_for_kinds(self) -> None:
        failures = 0
        while True:
            try:
                return await self._installation.kinds()
            except (ApiError, TransportError) as error:
                failures += 1
                if failures == 1:
                    log.warning("the kinds of sentinels cannot be made yet", reason=str(error))
                await self._clock.sleep(_BACKOFF.delay_s(failures, self._random))

    def report(self, key: str) -> pb.SentinelReport | None:
        kind, _ = split_key(key)
        root = self._watched.first(ROOTS[kind].kind, key, self._memory)
        if root is None:
            return None
        report = sentinel_report(root, self._watched.of("Service", key)) if kind == "sentinel" else pb.SentinelReport()
        report.drift = self._memory.drift(key)
        return report

    def keys(self) -> Iterable[str]:
        return self._watched.keys(root.kind for root in ROOTS.values())

    @property
    def synced(self) -> bool:
        return self._watched.synced

    def _scope(self, kind: str) -> Scope:
        return Scope(namespace=NAMESPACE_SENTINEL, label_selector=labels.selector(self._owner, kind))


def sentinel_report(deployment: Obj, services: Iterable[Obj]) -> pb.SentinelReport:
    """What a sentinel's Deployment and Service show; pure."""
    desired = deployment["spec"].get("replicas") or 0
    available = (deployment.get("status") or {}).get("availableReplicas") or 0
    return pb.SentinelReport(
        desired_replicas=desired,
        available_replicas=available,
        health=_health(desired, available),
        running_image=running_image(deployment),
        address=next((text for service in services if (text := _address(service))), ""),
    )


def running_image(deployment: Obj) -> str:
    """The image, once every replica runs it and nothing of an older one is left; empty until then."""
    spec, status = deployment["spec"], deployment.get("status") or {}
    desired, updated = spec.get("replicas") or 0, status.get("updatedReplicas") or 0
    rolled_out = (
        (status.get("observedGeneration") or 0) >= deployment["metadata"]["generation"]
        and updated >= desired
        and (status.get("replicas") or 0) <= updated
        and (status.get("availableReplicas") or 0) >= desired
        and not status.get("unavailableReplicas")
    )
    return str(spec["template"]["spec"]["containers"][0].get("image") or "") if rolled_out else ""


def _health(desired: int, available: int) -> pb.SentinelHealth:
    """Whether it serves, not whether it is rolled out."""
    if desired == 0:
        return pb.SentinelHealth.PAUSED
    return pb.SentinelHealth.HEALTHY if available > 0 else pb.SentinelHealth.UNHEALTHY


def _address(service: Obj) -> str:
    """Reachable from outside where the cluster offers that, else within it."""
    ingress = ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
    outside = next((found for each in ingress if (found := each.get("ip") or each.get("hostname"))), "")
    host = outside or service["spec"].get("clusterIP") or ""
    if not host or host == "None":
        return ""
    return f"[{host}]:{SENTINEL_PORT}" if ":" in host else f"{host}:{SENTINEL_PORT}"
