"""Reads the OpenAPI documents of an aggregated server once a minute, as far as they changed."""

from __future__ import annotations

import gzip
import re
from dataclasses import replace
from typing import Any

import orjson

from shoal.apiserver.aggregator.proxy import AggregatorProxy, NotFetched
from shoal.apiserver.aggregator.routes import Route
from shoal.base.clock import Clock
from shoal.base.logs import get_logger
from shoal.kube.openapi.aggregated import AggregatedOpenApi, hash_of, part_of
from shoal.kube.protobuf import gnostic

EVERY_S = 60.0
_ANSWER_S = 10.0
_JSON = "application/json"
_HASH = re.compile(r"[?&]hash=([0-9A-Za-z]+)")
_NOT_READ = (orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError, RecursionError)
_log = get_logger("aggregator")


class OpenApiReader:
    """Of one route. A server without these documents is served without them."""

    def __init__(self, clock: Clock, proxy: AggregatorProxy, route: Route) -> None:
        self._clock, self._proxy, self._route = clock, proxy, route
        self._next_s = clock.monotonic()
        self._etag = ""

    async def refresh(self) -> bool:
        """Whether a document has changed."""
        now = self._clock.monotonic()
        if now < self._next_s:
            return False
        self._next_s = now + EVERY_S
        before = self._route.openapi
        known = before or AggregatedOpenApi(self._route.group, self._route.version)
        for read in (self._read_v3, self._read_v2):
            try:
                known = await read(known)
            except (NotFetched, *_NOT_READ) as error:
                _log.debug("OpenAPI of an APIService not read", name=self._route.name, reason=str(error))
        self._route.openapi = known
        return known != before

    async def _read_v3(self, known: AggregatedOpenApi) -> AggregatedOpenApi:
        index = await self._proxy.fetch(self._route, "/openapi/v3", _JSON, _ANSWER_S)
        if index.status != 200:
            return replace(known, hash="", v3=b"")
        listed = orjson.loads(index.body)["paths"].get(known.name)
        if listed is None:
            return replace(known, hash="", v3=b"")
        found = _HASH.search(listed["serverRelativeURL"])
        if found is not None and found[1] == known.hash:
            return known
        fetched = await self._proxy.fetch(self._route, f"/openapi/v3/{known.name}", _JSON, _ANSWER_S)
        if fetched.status != 200 or not isinstance(orjson.loads(fetched.body), dict):
            return known
        return replace(known, hash=found[1] if found else hash_of(fetched.body), v3=_packed(fetched.body))

    async def _read_v2(self, known: AggregatedOpenApi) -> AggregatedOpenApi:
        fetched = await self._proxy.fetch(self._route, "/openapi/v2", _JSON, _ANSWER_S, self._etag)
        if fetched.status == 304:
            return known
        if fetched.status != 200:
            return replace(known, v2=b"")
        paths, definitions = part_of(orjson.loads(fetched.body), self._route.group, self._route.version)
        # what cannot be written for Go clients would break the document of all resources
        gnostic.encode_openapi_v2({"paths": paths, "definitions": definitions})
        self._etag = fetched.etag
        content: list[Any] = [paths, definitions]
        return replace(known, v2=_packed(orjson.dumps(content, option=orjson.OPT_SORT_KEYS)))


def _packed(content: bytes) -> bytes:
    return gzip.compress(content, 5, mtime=0)
