"""Checks the server of one APIService: its service and endpoints, then its discovery, and writes the condition.

A check follows every change of the APIService, its service or its endpoints, and runs every 30 s besides, since a
server may fail without any of them changing; after a failure it is repeated sooner. Every API server of a cluster does
it, as in Kubernetes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import orjson

from shoal.apiserver import objects
from shoal.apiserver.aggregator import plan
from shoal.apiserver.aggregator.proxy import AggregatorProxy, NotFetched
from shoal.apiserver.aggregator.routes import Route
from shoal.apiserver.context import Core
from shoal.apiserver.write import Writer
from shoal.apiserver.writing.model import Author, Retry, Write
from shoal.base.backoff import Backoff
from shoal.base.logs import get_logger
from shoal.base.tasks import wait_first
from shoal.errors import ApiError
from shoal.kube.objects import Obj
from shoal.store import Key, StoreReadOnly, StoreUnavailable

EVERY_S = 30.0
_ANSWER_S = 5.0
_MORE_ATTEMPTS = 4  # after a first failure: another endpoint may answer
_BACKOFF = Backoff(base_s=0.05, cap_s=EVERY_S)
_AUTHOR = Author("shoal-apiserver", "status")
_SERVICE_LABEL = "kubernetes.io/service-name"
SLICES = "endpointslices.discovery.k8s.io"
_log = get_logger("apiservices")


class AvailabilityCheck:
    """Runs as a task while the APIService is there."""

    def __init__(
        self, core: Core, writer: Writer, proxy: AggregatorProxy, route: Route, on_change: Callable[[], None]
    ) -> None:
        """``on_change`` is called when the server's resources have changed."""
        self._core, self._writer, self._proxy = core, writer, proxy
        self.route = route
        self._on_change = on_change
        from shoal.apiserver.aggregator.openapi import OpenApiReader  # schemas are a large part of the program

        self._documents = OpenApiReader(core.clock, proxy, route)
        self._wake = asyncio.Event()

    def wake(self) -> None:
        self._wake.set()

    async def run(self) -> None:
        failures = 0
        while True:
            self._wake.clear()
            try:
                passed = await self._check()
            except (ApiError, Retry, StoreReadOnly, StoreUnavailable) as error:
                _log.info("availability of an APIService not written", name=self.route.name, reason=str(error))
                passed = False
            if self.route.available and passed and await self._documents.refresh():
                self._on_change()
            failures = 0 if passed else failures + 1
            await wait_first(self._wake.wait(), self._core.clock.sleep(_BACKOFF.bound_s(failures) or EVERY_S))

    async def _check(self) -> bool:
        """Whether nothing is to be repeated soon."""
        entry = self._core.store.get(Key(plan.API_SERVICES, "", self.route.name))
        if entry is None:
            return True
        reference = self.route.service
        verdict = plan.check_service(reference, self._service(), self._slices())
        asked = verdict is None
        if verdict is None:
            verdict = await self._discover()
        await self._write(verdict)
        return not asked or verdict == plan.PASSED  # a change of the service or its endpoints wakes this check

    def _service(self) -> Obj | None:
        entry = self._core.store.get(Key("services", self.route.service["namespace"], self.route.service["name"]))
        return None if entry is None else objects.decode(entry)

    def _slices(self) -> list[Obj]:
        index = f"{_SERVICE_LABEL}={self.route.service['name']}"
        found = self._core.store.range(SLICES, self.route.service["namespace"], index=index)
        return [objects.decode(entry) for entry in found.entries]

    async def _discover(self) -> plan.Verdict:
        if await self._try() is None:
            return plan.PASSED
        problems = await asyncio.gather(*(self._try() for _ in range(_MORE_ATTEMPTS)))
        return plan.PASSED if None in problems else plan.failed_discovery(str(problems[-1]))

    async def _try(self) -> str | None:
        """What went wrong when the server was asked."""
        try:
            await self._read_resources()
        except NotFetched as failed:
            return str(failed)
        return None

    async def _read_resources(self) -> None:
        fetched = await self._proxy.fetch(self.route, self.route.path, "application/json", _ANSWER_S)
        if not 200 <= fetched.status < 300:
            what = f"bad status from {fetched.url}: {fetched.status}"
            raise NotFetched(f"failing or missing response from {fetched.url}: {what}")
        resources = _entries(fetched.body)
        if resources != self.route.resources:
            self.route.resources = resources
            self._on_change()

    async def _write(self, verdict: plan.Verdict) -> None:
        served = self._core.registry.stored(plan.API_SERVICES)
        entry = self._core.store.get(Key(plan.API_SERVICES, "", self.route.name))
        if served is None or entry is None:
            return
        stored = objects.decode(entry)
        if stored.get("spec") != self.route.spec:
            return  # another check has begun
        status = plan.status_with(stored, verdict, self._core.now())
        if status is not None:
            await self._writer.store(Write.own(served, {**stored, "status": status}, entry, _AUTHOR))


def _entries(body: bytes) -> tuple[Obj, ...]:
    """The entries of an APIResourceList; what is not one has none."""
    try:
        listed = orjson.loads(body)["resources"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return ()
    return tuple(each for each in listed if isinstance(each, dict)) if isinstance(listed, list) else ()
