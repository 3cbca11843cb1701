"""Streams of answers that change: the answer now, and again after each change of it.

A stream looks when the manager's state has changed, and every ``AGAIN_S`` for what time alone changes: ages in a
condition, a cluster that becomes stale. It sends an answer only if it differs from the last one in more than ages.
Between two looks it rests for several times as long as a look takes, so that an expensive query on a busy fleet leaves
the manager free for others.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Annotated, Any

import orjson
from msgspec import Meta, Struct

from shoal.base.asgi_common import Application
from shoal.base.clock import Clock
from shoal.errors import BadRequest, NotFound, TooManyRequests
from shoal.navigator.answers.api import bodies
from shoal.navigator.answers.api.analysis import Analysis, ListedMistakes
from shoal.navigator.answers.api.parameters import At, ListParameters, OfCluster, OfNamespace
from shoal.navigator.answers.api.sources import ROOT, Caller
from shoal.navigator.answers.api.state import ListedPods, QueryParameters, State
from shoal.navigator.answers.query.model import FieldType
from shoal.navigator.change_signal import ChangeSignal
from shoal.rest.operations import Operation, RestCall
from shoal.rest.streams import RestStreams, event

MAX_WATCHED = 10_000
AGAIN_S = 5.0
_REST_S = 0.1
_REST_LOOKS = 4.0  # a watcher takes at most a fifth of the manager's time
_MOMENTS = frozenset({"at", "heardSecondsAgo"})
Json = dict[str, Any]
Look = Callable[[], Awaitable[Json]]


class Watched(Struct, frozen=True, kw_only=True):
    refresh: Annotated[
        float, Meta(ge=0, le=3600, description="Also send the answer this often, in seconds, for its ages; 0: never")
    ] = 0.0  # fmt: skip


class WatchedList(Watched, frozen=True, kw_only=True):
    cluster: OfCluster = ""
    namespace: OfNamespace = ""
    limit: Annotated[int, Meta(ge=1, le=MAX_WATCHED, description="The largest number of items to send")] = MAX_WATCHED


class WatchedPods(WatchedList, frozen=True, kw_only=True):
    exposed: Annotated[
        bool | None, Meta(description="true: only pods that are endpoints of a service; false: only others")
    ] = None  # fmt: skip


class WatchedMistakes(Watched, frozen=True, kw_only=True):
    cluster: OfCluster = ""
    namespace: OfNamespace = ""
    severity: Annotated[bodies.Severity | None, Meta(description="Only these")] = None


class WatchedQuery(Watched, frozen=True, kw_only=True):
    q: Annotated[str, Meta(max_length=4096, description="`pods where image ~ 'v2' and not ready`")]
    limit: Annotated[int, Meta(ge=1, le=MAX_WATCHED, description="The largest number of items to send")] = MAX_WATCHED


class Watching:
    def __init__(
        self, changes: ChangeSignal, clock: Clock, state: State, analysis: Analysis, streams: RestStreams
    ) -> None:  # fmt: skip
        self._changes = changes
        self._clock = clock
        self._state = state
        self._analysis = analysis
        self._streams = streams

    def operations(self) -> list[Operation]:
        def watch(path: str, id_: str, tag: str, what: str, handler: Any) -> Operation:
            return Operation(
                method="GET", path=f"{ROOT}/watch/{path}", id=id_, tag=tag, handler=handler, answers={200: str},
                media="text/event-stream", errors=(BadRequest, NotFound, TooManyRequests),
                summary=f"{what} now and after each change, as server-sent events",
            )  # fmt: skip

        return [
            watch("query", "watchQuery", "query", "The answer to a query", self.query),
            watch("services", "watchServices", "services", "The services", self.services),
            watch("services/{namespace}/{name}", "watchService", "services", "One service", self.service),
            watch("pods", "watchPods", "pods", "The pods", self.pods),
            watch("workloads", "watchWorkloads", "workloads", "The workloads", self.workloads),
            watch("checks", "watchChecks", "checks", "The results of all checks", self.checks),
            watch("shards", "watchShards", "shards", "Sharded controllers", self.shards),
            watch("mesh/mistakes", "watchMistakes", "mesh", "Mistakes in the mesh's configuration", self.mistakes),
        ]

    async def query(self, call: RestCall[Caller], query: WatchedQuery) -> Application:
        asked = QueryParameters(q=query.q, limit=query.limit)
        return await self._follow(call, query, lambda: self._state.query(call, asked))

    async def services(self, call: RestCall[Caller], query: WatchedList) -> Application:
        asked = ListParameters(cluster=query.cluster, namespace=query.namespace, limit=query.limit)
        return await self._follow(call, query, lambda: self._state.services(call, asked))

    async def service(self, call: RestCall[Caller], query: Watched) -> Application:
        return await self._follow(call, query, lambda: self._state.service(call, At()))

    async def pods(self, call: RestCall[Caller], query: WatchedPods) -> Application:
        asked = ListedPods(
            cluster=query.cluster, namespace=query.namespace, limit=query.limit, exposed=query.exposed
        )  # fmt: skip
        return await self._follow(call, query, lambda: self._state.pods(call, asked))

    async def workloads(self, call: RestCall[Caller], query: WatchedList) -> Application:
        asked = ListParameters(cluster=query.cluster, namespace=query.namespace, limit=query.limit)
        return await self._follow(call, query, lambda: self._state.workloads(call, asked))

    async def checks(self, call: RestCall[Caller], query: Watched) -> Application:
        return await self._follow(call, query, lambda: self._analysis.results(call, At()))

    async def shards(self, call: RestCall[Caller], query: Watched) -> Application:
        return await self._follow(call, query, lambda: self._state.shards(call, At()))

    async def mistakes(self, call: RestCall[Caller], query: WatchedMistakes) -> Application:
        asked = ListedMistakes(cluster=query.cluster, namespace=query.namespace, severity=query.severity)
        return await self._follow(call, query, lambda: self._analysis.mistakes(call, asked))

    async def _follow(self, call: RestCall[Caller], query: Watched, look: Look) -> Application:
        number = self._changes.number
        first = await look()  # an error of it still has its own status
        return self._streams.events(call.request.token, self._answers(first, number, look, query.refresh), "watch")

    async def _answers(
        self, first: Json, number: int, look: Look, refresh_s: float
    ) -> AsyncGenerator[bytes, None]:  # fmt: skip
        clock, changes = self._clock, self._changes
        yield event("answer", first)
        sent, sent_s, rest_s = fingerprint(first), clock.monotonic(), _REST_S
        while True:
            await clock.sleep(rest_s)
            left_s = sent_s + refresh_s - clock.monotonic() if refresh_s else AGAIN_S
            await changes.wait(number, max(0.0, min(AGAIN_S, left_s)))
            number, begun_s = changes.number, clock.monotonic()
            answer = await look()
            rest_s = max(_REST_S, _REST_LOOKS * (clock.monotonic() - begun_s))
            found = fingerprint(answer)
            if found != sent or (refresh_s and clock.monotonic() >= sent_s + refresh_s):
                sent, sent_s = found, clock.monotonic()
                yield event("answer", answer)
            else:
                yield b""


def fingerprint(answer: Json) -> bytes:
    """Of everything but how long ago it was."""
    ages = frozenset(each["name"] for each in answer.get("columns", ()) if each["type"] == FieldType.AGE)
    timeless = {name: value for name, value in answer.items() if name not in _MOMENTS}
    timeless["items"] = [_without(each, ages) for each in answer.get("items", ())]
    timeless["notFresh"] = [_without(each, _MOMENTS) for each in answer.get("notFresh", ())]
    return orjson.dumps(timeless, option=orjson.OPT_SORT_KEYS)


def _without(item: Json, names: frozenset[str]) -> Json:
    return {name: value for name, value in item.items() if name not in names} if names else item
