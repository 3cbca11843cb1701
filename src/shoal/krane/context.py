"""Shared state of one controller's components, and their calls to the control plane."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from shoal.base.backoff import Backoff
from shoal.base.clock import Clock
from shoal.base.deadline import within
from shoal.base.logs import Logger
from shoal.client import TransportError
from shoal.errors import ApiError, ServiceUnavailable
from shoal.krane.cache import Cache
from shoal.krane.config import Limits
from shoal.krane.guard import Guard
from shoal.krane.inbox import Inbox
from shoal.krane.key_state import KeyState
from shoal.krane.metrics import KraneMetrics
from shoal.krane.model import Applier, ControlPlane, Fenced, Live, Observer
from shoal.krane.protocol import WatchMachine
from shoal.krane.session import AgentSession
from shoal.sync.brake import DeletionBrake
from shoal.sync.keys import NAMESPACED, StreamKind, split_key
from shoal.wire.fleet.v1 import cluster_pb as pb


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerContext:
    """One per controller."""

    stream: StreamKind
    plane: ControlPlane
    session: AgentSession
    machine: WatchMachine
    cache: Cache
    inbox: Inbox
    key_state: KeyState
    brake: DeletionBrake
    guard: Guard
    applier: Applier
    observer: Observer
    limits: Limits
    metrics: KraneMetrics
    clock: Clock
    random: Callable[[], float]
    log: Logger

    async def ask(self, key: str) -> pb.Item:
        """What is desired of one key now; ``NotFound`` when the control plane does not know it."""
        request = pb.GetDesiredRequest(identity=self.session.identity, key=key)
        with self.calling():
            return await self.plane.get_desired(self.stream, request)

    @contextmanager
    def calling(self) -> Iterator[None]:
        """Around a call of the control plane, guarded by the circuit breaker. A fenced one ends the session."""
        try:
            with self.guard.calling():
                yield
        except Fenced:
            self.session.end()
            raise

    async def live(self) -> dict[str, Live]:
        """The objects of this agent in the cluster; ``ServiceUnavailable`` when they cannot be listed."""
        try:
            async with within(self.clock, self.limits.apply_timeout_s):
                return await self.applier.live()
        except (ApiError, TransportError, TimeoutError) as error:
            raise ServiceUnavailable(f"the cluster cannot be listed: {error or 'no answer'}") from error

    def backoff(self) -> Backoff:
        return Backoff(base_s=self.limits.reconnect_base_s, cap_s=self.limits.reconnect_cap_s, floor_s=0.02)

    def may_be_there(self, key: str) -> bool:
        """False when the cluster surely has nothing of the key: then a tombstone takes nothing away. The observer does
        not see namespaces."""
        if self.key_state.is_running(key) or split_key(key)[0] == NAMESPACED:
            return True
        return not self.observer.synced or self.observer.report(key) is not None

    def now_ms(self) -> int:
        return round(self.clock.wall_s() * 1000)

    def hop(self, hop: str, committed_ms: int) -> None:
        """Measure how long after its commit a change has come this far."""
        if committed_ms:
            self.metrics.hop_s.labels(self.stream, hop).observe(max(0, self.now_ms() - committed_ms) / 1000)
