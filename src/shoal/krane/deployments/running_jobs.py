"""The Jobs of rollouts' checks in the cluster: begun, looked at and deleted.

Jobs are not watched. While some have not ended they are looked at every few seconds, so an agent whose apps have no
such checks asks nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from shoal.base.clock import Clock
from shoal.base.logs import get_logger
from shoal.client import Client, Scope, TransportError, builtin
from shoal.errors import AlreadyExists, ApiError, Forbidden, Invalid
from shoal.krane import labels
from shoal.krane.deployments.check_jobs import COMPONENT_CHECK, broken, job_object, result_of
from shoal.krane.deployments.rendering import Rendering
from shoal.krane.objects.writer import Writer
from shoal.krane.owner import Owner
from shoal.krane.rights import with_grant
from shoal.kube.objects import Obj
from shoal.wire.fleet.v1 import cluster_pb as pb

EVERY_S = 2.0

_JOBS, _PODS = builtin("jobs", "batch"), builtin("pods")
_RUNNING = pb.CheckJobState.RUNNING

_log = get_logger("krane.checks")


@dataclass(slots=True)
class _Job:
    namespace: str
    result: pb.CheckJobResult


class CheckJobs:
    def __init__(self, client: Client, owner: Owner, *, clock: Clock, namespaces: Sequence[str] = ()) -> None:
        """``namespaces`` are the only ones that the agent may use; none: all."""
        self._namespaces = tuple(namespaces) or ("",)
        self._client = client
        self._writer = Writer(client, owner)
        self._owner = owner
        self._clock = clock
        self._jobs: dict[str, dict[str, _Job]] = {}  # by key of the deployment and id
        self._applied: set[str] = set()  # keys whose state is known: what it does not list is not wanted
        self._begun = asyncio.Event()

    async def apply(self, key: str, state: pb.DeploymentState, how: Rendering) -> None:
        """Begin the jobs of a deployment that are not there yet, and delete those that it does not list any more."""
        wanted = {job.id: job for job in state.check_jobs}
        known = self._jobs.get(key, {})
        self._applied.add(key)
        await self._remove(key, [id_ for id_ in known if id_ not in wanted])
        for id_, job in wanted.items():
            if id_ not in known:
                result = await self._begin(state, job, how)
                self._jobs.setdefault(key, {})[id_] = _Job(state.namespace, result)
                self._begun.set()

    async def delete(self, key: str) -> None:
        self._applied.discard(key)
        await self._remove(key, list(self._jobs.get(key, {})))

    def results(self, key: str) -> list[pb.CheckJobResult]:
        return [job.result for _, job in sorted(self._jobs.get(key, {}).items())]

    async def run(self, changed: Callable[[str], None]) -> None:
        """Until cancelled; ``changed(key)`` for every deployment one of whose jobs says something new."""
        await self._find()
        while True:
            self._begun.clear()
            open_ = list(self._open())
            if not open_:
                await self._begun.wait()
                continue
            for key, id_, job in open_:
                try:
                    result = await self._look(id_, job)
                except (ApiError, TransportError) as error:
                    _log.warning(
                        "the Job of a check cannot be read", job=id_, namespace=job.namespace, error=str(error)
                    )
                    continue
                if result != job.result:
                    job.result = result
                    changed(key)
            await self._clock.sleep(EVERY_S)

    def _open(self) -> Iterator[tuple[str, str, _Job]]:
        for key, jobs in self._jobs.items():
            for id_, job in jobs.items():
                if job.result.state == _RUNNING:
                    yield key, id_, job

    async def _begin(self, state: pb.DeploymentState, job: pb.CheckJob, how: Rendering) -> pb.CheckJobResult:
        try:
            await self._client.of(_JOBS).create(job_object(state, job, self._owner, how))
        except AlreadyExists:
            pass  # begun by this agent before it was started again
        except Forbidden as error:
            return broken(job.id, f"the agent may not run Jobs: {with_grant(str(error))}")
        except Invalid as error:
            return broken(job.id, f"the cluster refuses it: {error}")
        return pb.CheckJobResult(id=job.id, state=_RUNNING)

    async def _look(self, id_: str, job: _Job) -> pb.CheckJobResult:
        live = await self._writer.get(_JOBS, job.namespace, id_)
        scope = Scope(namespace=job.namespace, label_selector=f"{labels.CHECK_JOB}={id_}")
        pods = await self._writer.list(_PODS, scope) if live is not None else []
        return result_of(id_, live, pods, job.result.message)

    async def _remove(self, key: str, ids: list[str]) -> None:
        jobs = self._jobs.get(key, {})
        for id_ in ids:
            try:
                await self._writer.remove(_JOBS, jobs[id_].namespace, id_)
            except Forbidden:
                pass  # then it was never begun
            jobs.pop(id_, None)
        if not jobs:
            self._jobs.pop(key, None)

    async def _find(self) -> None:
        """Jobs that this agent began before it was started again."""
        selector = f"{labels.selector(self._owner)},{labels.COMPONENT}={COMPONENT_CHECK}"
        found: list[Obj] = []
        for namespace in self._namespaces:
            with suppress(Forbidden):
                found += await self._writer.list(_JOBS, Scope(namespace=namespace, label_selector=selector))
        for each in found:
            about = each["metadata"]
            key, id_ = f"deployment/{about['labels'].get(labels.CHECKED)}", about["name"]
            if key not in self._applied:
                result = pb.CheckJobResult(id=id_, state=_RUNNING)
                self._jobs.setdefault(key, {}).setdefault(id_, _Job(about["namespace"], result))
            elif id_ not in self._jobs.get(key, {}):
                await self._writer.remove(_JOBS, about["namespace"], id_)
