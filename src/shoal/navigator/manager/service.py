"""Serves edges: one stream per edge, from its claim to its end.

A reader takes the edge's messages one after the other and acknowledges each when it is stored; a writer sends the
messages of the stream's outbox. Every end of a stream (a newer claim, a revoked token, silence, an invalid message)
goes through ``_lost`` once, and the cluster's last known state stays.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Any, assert_never

from connectrpc.code import Code
from connectrpc.errors import ConnectError
from connectrpc.request import RequestContext

from shoal.base.clock import Clock, Timer
from shoal.base.logs import get_logger
from shoal.base.tasks import OwnedTasks
from shoal.base.tracing import span
from shoal.errors import BadRequest, ServiceUnavailable
from shoal.navigator.manager.clusters import Clusters, KnownCluster
from shoal.navigator.manager.config import ManagerConfig
from shoal.navigator.manager.edges import EdgeLinks
from shoal.navigator.manager.index import Index
from shoal.navigator.manager.metrics import ManagerMetrics
from shoal.navigator.manager.objects import InvalidRow, make_rows
from shoal.navigator.manager.options import EdgeOptions
from shoal.navigator.manager.outbox import Outbox
from shoal.navigator.manager.protocol import Delivered, Echo, EdgeSession, Identified, Taken, Write, identified
from shoal.navigator.manager.registry import ClaimRefused, ClaimRegistry, RejectionReason
from shoal.navigator.manager.row_writer import RowWriter, StaleEpoch
from shoal.navigator.manager.rows import ClusterClaimed, ClusterHeard, RowsChanged, SessionEnded, StoredToken
from shoal.navigator.manager.tokens import EDGE, NavigatorTokens
from shoal.wire.navigator.v1 import navigator_pb as pb
from shoal.wire.navigator.v1.navigator_connect import ManagerService

PATH = f"/{ManagerService.desc().type_name}/"

_log = get_logger("navigator.service")


class _Stream:
    """One call of an edge. ``known`` and ``session`` are set once its claim is accepted."""

    def __init__(self, token: StoredToken | None) -> None:
        self.token = token  # None: no valid token; its claim is refused
        self.outbox = Outbox()
        self.cluster = ""
        self.epoch = 0  # 0: no claim granted
        self.known: KnownCluster | None = None
        self.session: EdgeSession | None = None
        self.heard_s = 0.0
        self.probed_s: float | None = None  # when the unanswered keep-alive was sent
        self.timer: Timer | None = None


class ManagerCalls(ManagerService):
    def __init__(
        self,
        registry: ClaimRegistry,
        clusters: Clusters,
        index: Index,
        row_writer: RowWriter,
        links: EdgeLinks,
        tokens: NavigatorTokens,
        options: EdgeOptions,
        config: ManagerConfig,
        metrics: ManagerMetrics,
        *,
        clock: Clock,
        name: str,
    ) -> None:
        self._registry = registry
        self._clusters = clusters
        self._index = index
        self._row_writer = row_writer
        self._links = links
        self._tokens = tokens
        self._options = options
        self._config = config
        self._metrics = metrics
        self._clock = clock
        self._name = name
        self._streams: set[_Stream] = set()
        self._holding: dict[str, _Stream] = {}  # by cluster
        self._stopping = False
        tokens.changed = self.check_tokens
        options.send = self.send_options

    @property
    def connected(self) -> int:
        return len(self._holding)

    def connect(
        self, request: AsyncIterator[pb.EdgeMessage], ctx: RequestContext[Any, Any], /
    ) -> AsyncIterator[pb.ManagerMessage]:
        return self._serve(request, ctx.request_headers.get("authorization") or "")

    def check_tokens(self) -> None:
        """End the streams whose token is no longer valid."""
        for stream in list(self._streams):
            if stream.token is not None and not self._tokens.works(stream.token.id):
                self._refuse(stream, ClaimRefused(RejectionReason.BAD_TOKEN, "the token was revoked or has expired"))

    def send_options(self, clusters: Iterable[str]) -> None:
        """Send their options to the edges of these clusters, as far as they are connected."""
        for cluster in clusters:
            stream = self._holding.get(cluster)
            if stream is not None and stream.session is not None:
                stream.outbox.options(self._options.of(cluster))

    def end_all(self) -> None:
        """The process stops: edges reconnect to the next manager."""
        self._stopping = True
        for stream in list(self._streams):
            self._lost(stream)
            stream.outbox.end()

    # a stream

    async def _serve(
        self, requests: AsyncIterator[pb.EdgeMessage], authorization: str
    ) -> AsyncIterator[pb.ManagerMessage]:
        if self._stopping:
            raise ConnectError(Code.UNAVAILABLE, "the manager is stopping")
        scheme, _, text = authorization.partition(" ")
        try:
            token = await self._tokens.authenticate(text.strip()) if scheme.lower() == "bearer" else None
        except ServiceUnavailable as error:
            raise ConnectError(Code.UNAVAILABLE, str(error)) from None
        stream = _Stream(token if token is not None and token.kind == EDGE else None)
        self._streams.add(stream)
        stream.timer = self._clock.call_later(self._config.identify_s, lambda: self._unidentified(stream))
        # The library notices a lost client only during a read, so a read is always pending.
        tasks = OwnedTasks()
        tasks.start(self._read(requests, stream), name="navigator-read")
        try:
            while (message := await stream.outbox.next()) is not None:
                yield message
        finally:
            self._lost(stream)
            self._streams.discard(stream)
            await tasks.close()

    async def _read(self, requests: AsyncIterator[pb.EdgeMessage], stream: _Stream) -> None:
        try:
            iterator = aiter(requests)
            refused = await self._claim(stream, identified(await anext(iterator, None)))
            while refused is None:
                message = await anext(iterator, None)
                if message is None:
                    break
                refused = await self._take(stream, message)
            if refused is not None:
                self._refuse(stream, refused)
        except ConnectError as error:
            if error.code is Code.RESOURCE_EXHAUSTED:
                self._refuse(stream, ClaimRefused(RejectionReason.INVALID_MESSAGE, error.message))
        except StaleEpoch:
            self._refuse(stream, ClaimRefused(RejectionReason.STALE_EPOCH, "another claim has taken over"))
        except (InvalidRow, BadRequest) as error:
            self._refuse(stream, ClaimRefused(RejectionReason.INVALID_MESSAGE, str(error)))
        except Exception as error:
            _log.error("a stream failed", error=error, cluster=stream.cluster, epoch=stream.epoch)
        finally:
            if stream.outbox.refused is None:
                stream.outbox.end()

    async def _claim(self, stream: _Stream, claim: Identified | ClaimRefused) -> ClaimRefused | None:
        if isinstance(claim, ClaimRefused):
            return claim
        if stream.token is None:
            return ClaimRefused(RejectionReason.BAD_TOKEN, "missing or invalid bearer token: use an edge's token")
        if stream.token.cluster != claim.cluster:
            return ClaimRefused(RejectionReason.BAD_TOKEN, f"the token is bound to cluster {stream.token.cluster!r}")
        granted = self._registry.claim(claim.cluster, claim.edge, self._clock.monotonic())
        if isinstance(granted, ClaimRefused):
            return granted
        stream.cluster, stream.epoch = claim.cluster, granted.epoch
        older = self._holding.get(claim.cluster)
        if older is not None:
            self._refuse(older, ClaimRefused(RejectionReason.STALE_EPOCH, f"epoch {granted.epoch} has taken over"))
        self._holding[claim.cluster] = stream
        before = self._clusters.known.get(claim.cluster)
        session = EdgeSession(
            claim,
            granted.epoch,
            self._index.cluster(claim.cluster),
            statuses=before.current_statuses() if before is not None else None,
        )
        now_ms = self._row_writer.stamp_ms()
        known = self._clusters.prepared(claim, session, now_ms)
        await self._row_writer.write(ClusterClaimed(known.stored()))
        if not self._registry.holds(claim.cluster, granted.epoch):
            raise StaleEpoch
        self._clusters.claimed(known, self._clock.monotonic())
        stream.known, stream.session = known, session
        self._links.connected(claim.cluster, stream.outbox)
        stream.outbox.accept(session.accepted(self._name, self._config.max_message_bytes))
        self._options.connected(claim.cluster)
        stream.outbox.options(self._options.of(claim.cluster))
        self._heard(stream)
        self._watch(stream)
        self._metrics.claims.labels("granted").inc()
        _log.info("cluster claimed", cluster=claim.cluster, edge=claim.edge, epoch=granted.epoch)
        return None

    async def _take(self, stream: _Stream, message: pb.EdgeMessage) -> ClaimRefused | None:
        session = stream.session
        assert session is not None
        self._heard(stream)
        self._metrics.messages.labels(message.body.field if message.body is not None else "none").inc()
        step = session.receive(message)
        match step:
            case None:
                return None
            case ClaimRefused():
                return step
            case Echo(at_ms):
                stream.outbox.echo(pb.KeepAlive(at_ms=at_ms))
            case Delivered(reply):
                self._links.deliver(stream.outbox, reply)
            case Taken(said):
                self._options.taken(session.cluster, said)
                if stream.known is not None:
                    stream.known.interval_s = session.interval_s(said.settings, stream.known.interval_s)
            case Write():
                with span("navigator.store", parent=message.trace, cluster=session.cluster, puts=len(step.puts)):
                    await self._store(stream, session, step)
            case _:
                assert_never(step)
        return None

    async def _store(self, stream: _Stream, session: EdgeSession, write: Write) -> None:
        if write.puts or write.removals:
            begun_s, at_ms = self._clock.monotonic(), self._row_writer.stamp_ms()
            changed = ((put.kind, put.key, put.fingerprint, put.data) for put in write.puts)
            rows = await make_rows(session.cluster, changed, at_ms)
            await self._row_writer.write(
                RowsChanged(session.cluster, at_ms, write.puts, write.removals), epoch=session.epoch, rows=rows
            )
            self._metrics.visible_s.observe(self._clock.monotonic() - begun_s)
        for answer in session.stored(write):
            if isinstance(answer, pb.Received):
                stream.outbox.received(answer.sequence)
            else:
                self._metrics.resyncs.inc(len(answer.kinds))
                stream.outbox.resync(answer.kinds)

    # presence

    def _heard(self, stream: _Stream) -> None:
        stream.heard_s, stream.probed_s = self._clock.monotonic(), None
        if stream.known is not None:
            self._clusters.heard(stream.known, stream.heard_s, round(self._clock.wall_s() * 1000))

    def _watch(self, stream: _Stream) -> None:
        """Send a keep-alive to a silent edge, and end the stream of one that does not answer."""
        if stream.timer is not None:
            stream.timer.cancel()
        now_s, config = self._clock.monotonic(), self._config
        if stream.probed_s is not None and now_s >= stream.probed_s + config.keep_alive_timeout_s:
            _log.warning("an edge does not answer", cluster=stream.cluster, epoch=stream.epoch)
            self._lost(stream)
            stream.outbox.end()
            return
        if stream.probed_s is None and now_s >= stream.heard_s + config.keep_alive_s and stream.session is not None:
            stream.probed_s = now_s
            stream.outbox.probe(stream.session.probe(round(self._clock.wall_s() * 1000)))
        due_s = stream.heard_s + config.keep_alive_s
        if stream.probed_s is not None:  # waiting for an answer
            due_s = min(stream.probed_s + config.keep_alive_timeout_s, now_s + config.keep_alive_s)
        stream.timer = self._clock.call_later(max(0.001, due_s - now_s), lambda: self._watch(stream))

    def _unidentified(self, stream: _Stream) -> None:
        if not stream.epoch:
            self._refuse(
                stream, ClaimRefused(RejectionReason.INVALID_IDENTIFICATION, "the edge did not identify itself in time")
            )

    def _refuse(self, stream: _Stream, refused: ClaimRefused) -> None:
        if stream.outbox.refused is None:
            self._metrics.claims.labels(refused.code).inc()
            _log.info("edge refused", cluster=stream.cluster, epoch=stream.epoch, code=str(refused.code),
                      reason=refused.message)  # fmt: skip
        stream.outbox.refuse(refused)
        self._lost(stream)

    def _lost(self, stream: _Stream) -> None:
        """Release the stream's claim; the state of its cluster stays. Idempotent."""
        if stream.timer is not None:
            stream.timer.cancel()
            stream.timer = None
        if not stream.epoch or self._holding.get(stream.cluster) is not stream:
            return
        del self._holding[stream.cluster]
        self._links.lost(stream.cluster, stream.outbox)
        self._registry.release(stream.cluster, stream.epoch, self._clock.monotonic())
        known = stream.known
        if known is not None:
            self._clusters.lost(known)
            known.saved_ms = known.heard_ms
            self._row_writer.post(ClusterHeard(known.name, known.heard_ms, tuple(known.statuses.values())))
        self._row_writer.post(SessionEnded(stream.cluster, stream.epoch, self._row_writer.stamp_ms()))
        _log.info("edge lost", cluster=stream.cluster, epoch=stream.epoch)
