"""Interfaces of the agent: what the two controllers need from the cluster and from the control plane.

``Applier`` and ``Observer`` are the cluster's side; ``deployments`` and ``sentinels`` implement them. ``ControlPlane``
is the other side; ``stream`` implements it over Connect. Errors of both are of ``shoal.errors``.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from shoal.errors import Forbidden, ServiceUnavailable
from shoal.krane.owner import Owner
from shoal.sync.keys import StreamKind
from shoal.sync.versions import Version
from shoal.wire.fleet.v1 import cluster_pb as pb

Report = pb.DeploymentReport | pb.SentinelReport
ReportRequest = pb.ReportDeploymentStatusRequest | pb.ReportSentinelStatusRequest


class Fenced(Forbidden):
    """Another agent has this shard now: the epoch of this one is over, and it must not act any more."""


class NextAddress(ServiceUnavailable):
    """This control plane does not answer, and the join file has another one: try again without a pause."""


@dataclass(frozen=True, slots=True)
class Live:
    """An object of ours as the cluster has it."""

    namespace: str
    name: str
    version: Version | None  # None when its annotation is missing or cannot be read: then absence never deletes it


class Applier(Protocol):
    """Makes one object of the cluster equal to what is desired. Calls for one key never overlap. Errors are
    ``ApiError`` or ``TransportError``; each is tried again later, with growing pauses."""

    async def apply(self, item: pb.Item) -> None:
        """``item`` has a state (not a delete or release). ``Newer`` when the cluster has a newer version; applying the
        same version again is how drift is corrected and must be cheap when nothing differs."""

    async def delete(self, key: str, namespace: str, name: str) -> None:
        """Delete every object of the key, each by its own call; what is not found is fine. Namespace and name may be
        empty, then the labels find it. Returns when deletion has been asked for, not when it has finished."""

    async def release(self, key: str, namespace: str, name: str) -> None:
        """Stop owning: take our labels and annotations off and let it run."""

    async def live(self) -> dict[str, Live]:
        """Everything in the cluster that carries the labels of this fleet, cluster and shard, by key. From the API
        server, not from a cache: what is not in it counts as gone."""


class Observer(Protocol):
    """Sees what the cluster really runs."""

    async def run(self, changed: Callable[[str], None]) -> None:
        """Watch until cancelled; ``changed(key)`` for every object whose report may differ from before, also for each
        one there is at the start and after a watch was renewed."""

    def report(self, key: str) -> Report | None:
        """What the cluster shows, None when it has nothing of the key. ``key``, ``applied``, ``applied_ms``, ``error``,
        ``gone`` and ``observed_ms`` are filled in by the controller; ``drift`` lists the fields that were changed."""

    def delivered(self, report: Report) -> None:
        """The control plane has got a report that was made here."""

    def keys(self) -> Iterable[str]:
        """Every key it sees something of."""

    @property
    def synced(self) -> bool:
        """Whether the first list of everything it watches is complete."""

    @property
    def refusal(self) -> str:
        """Why the cluster does not let it watch something; empty when it does."""


@dataclass(frozen=True, slots=True)
class StreamHandlers:
    """The cluster's side of one controller."""

    applier: Applier
    observer: Observer


MakeHandlers = Callable[[Owner, bytes], dict[StreamKind, StreamHandlers]]
"""Builds the handlers of both streams once the fleet is known; the bytes are the agent's private X25519 key."""


class ControlPlane(Protocol):
    """The RPCs. ``Unauthorized`` for a token that is not (or no longer) good, ``Fenced`` for an old epoch, ``NotFound``
    only when the control plane answered so; everything that may pass by itself is ``ServiceUnavailable``. A call tries
    every control plane of the join file; a stream tries one, and raises ``NextAddress`` when there is another."""

    async def join(self, request: pb.JoinRequest) -> pb.JoinResponse: ...

    async def heartbeat(self, request: pb.HeartbeatRequest) -> pb.HeartbeatResponse: ...

    async def get_desired(self, stream: StreamKind, request: pb.GetDesiredRequest) -> pb.Item: ...

    async def report(self, stream: StreamKind, request: ReportRequest) -> pb.ReportResponse: ...

    def watch(
        self, stream: StreamKind, requests: AsyncIterator[pb.WatchRequest]
    ) -> AsyncGenerator[pb.WatchEvent, None]:
        """Events until the stream ends or fails; a server that says nothing for too long counts as gone."""
