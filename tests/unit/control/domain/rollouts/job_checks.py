"""A canary with a job as a check, and an agent that runs it as the tests say."""

from __future__ import annotations

from typing import Any

from fleet_world import World
from rollout_world import play
from sqlalchemy import select

from shoal.base.clock import RealClock
from shoal.base.ids import Ids
from shoal.base.metrics import Metrics
from shoal.base.outbound import OutboundCaller
from shoal.control.checks.asking import CheckAsker
from shoal.control.checks.calls import WorkspaceCalls
from shoal.control.checks.jobs import CheckJobs
from shoal.control.checks.metrics import CheckMetrics
from shoal.control.checks.navigator import NavigatorAccess, NavigatorQueries
from shoal.control.checks.runner import CheckRunner
from shoal.control.database import tables
from shoal.control.domain import readiness
from shoal.control.service.reports.check_jobs import write_results
from shoal.errors import ConfigError
from shoal.sync.keys import Place
from shoal.testing.seeded import seeded_bytes
from shoal.wire.fleet.v1 import cluster_pb as pb

SMOKE = {"name": "smoke", "kind": "job", "image": "shop/smoke:1", "command": ["smoke"], "interval": "30s"}
CHECKED = {"steps": [{"weight": 25}, {"analysis": "10s"}, {"weight": 50}, {"pause": {}}], "judge": False}


class NoNavigator:
    async def of(self, workspace_id: str) -> NavigatorAccess:
        raise ConfigError("there is no navigator")


class JobWorld:
    """The control plane that asks, and the agents that run jobs."""

    def __init__(self, world: World) -> None:
        self.world = world
        caller = OutboundCaller(clock=RealClock(), agent="test")
        asker = CheckAsker(
            WorkspaceCalls(world.databases, world.sealer, caller),  # type: ignore[arg-type]  # it opens no credential
            NavigatorQueries(NoNavigator(), caller),
            CheckJobs(world.databases, Ids(seeded_bytes(7))),
        )
        metrics = CheckMetrics(Metrics())
        self._runner = CheckRunner(world.databases, asker, self._nothing, clock=world.clock, metrics=metrics)

    async def _nothing(self, rollout_id: str) -> None:
        return None

    async def ask(self) -> None:
        """One pass over what is due, and what follows from it."""
        await self._runner.ask_due()
        await play(self.world)

    async def jobs(self) -> list[tuple[str, dict[str, Any]]]:
        """Of each place, by the name of its cluster, the jobs that its agent is told to run."""
        names = {row.id: row.name for row in await self.world.rows(tables.Cluster)}
        rows = await self.world.rows(tables.Topology)
        return [(names[row.cluster_id], job) for row in rows for job in row.check_jobs or ()]

    async def report(self, state: pb.CheckJobState, *, code: int = 0, message: str = "", id_: str = "") -> None:
        """The agent says this of its job."""
        async with self.world.databases.of("default").transaction() as tx:
            rows = [row for row in await tx.session.scalars(select(tables.Topology)) if row.check_jobs]
            for row in rows:
                results = [
                    pb.CheckJobResult(id=id_ or job["id"], state=state, exit_code=code, message=message)
                    for job in row.check_jobs or ()
                ]
                await write_results(tx, Place(row.cluster_id, row.shard), row.deployment_id, results)
            await readiness.after_report(tx, {row.deployment_id for row in rows})

    async def check(self) -> tables.RolloutCheck:
        found: tables.RolloutCheck = (await self.world.rows(tables.RolloutCheck))[-1]
        return found
