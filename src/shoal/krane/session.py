"""An agent's session with the control plane in one term: its identity, its epoch, and whether it was fenced."""

from __future__ import annotations

import asyncio

from shoal.krane.model import Fenced
from shoal.sync.keys import StreamKind
from shoal.wire.fleet.v1 import cluster_pb as pb


class AgentSession:
    """Shared by both controllers of a term. It begins without an epoch: then only what is cached can be acted on."""

    def __init__(self, *, cluster: str, region: str, shard: str, agent: str) -> None:
        self._cluster = cluster
        self._region = region
        self._shard = shard
        self._agent = agent
        self._sequences: dict[StreamKind, int] = {}
        self.epoch = 0
        self.joined = asyncio.Event()
        self.fenced = asyncio.Event()

    @property
    def identity(self) -> pb.Identity:
        return pb.Identity(
            cluster=self._cluster, region=self._region, shard=self._shard, agent=self._agent, epoch=self.epoch
        )

    def next_sequence(self, stream: StreamKind) -> int:
        """Grows by one with each report of a controller, also across its restarts, within the epoch."""
        self._sequences[stream] = self._sequences.get(stream, 0) + 1
        return self._sequences[stream]

    def begin(self, epoch: int) -> None:
        """The control plane has given this epoch."""
        self.epoch = epoch
        self.joined.set()

    def end(self) -> None:
        """Another agent has a newer epoch: this one must stop acting."""
        self.fenced.set()

    def check(self) -> None:
        """At every point of effect: raises ``Fenced`` once the epoch is over."""
        if self.fenced.is_set():
            raise Fenced("another agent has taken over this shard")
