"""An app as the database has it: its revisions, where they run, and what was reported of them.

It is read anew each time: what was read before the counter was claimed may have been changed by others since.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from shoal.control.database import tables
from shoal.control.database.tables import Deployment, Desired, Instance, Topology
from shoal.control.domain.deployments import place_of, revision_of
from shoal.control.domain.gate import RowFacts
from shoal.control.domain.kinds.app import DEFAULT_SURGE, AppSpec
from shoal.control.domain.plan import needed_instances, told_instances
from shoal.control.domain.rollouts.records import active_rollouts, progress_of_row, strategy_of_row
from shoal.control.domain.specs import read_app_spec
from shoal.control.rollout.goals import goal_of, testers_of
from shoal.control.rollout.model import RegionFacts, RevisionFacts
from shoal.control.rollout.plan import surge_of
from shoal.control.rollout.progress import KEEPING, Progress
from shoal.control.rollout.strategy import Strategy
from shoal.sync.keys import Place


@dataclass(frozen=True, slots=True)
class ReportedDeployment:
    """What an agent says of a deployment at its place."""

    is_applied: bool = False  # the newest version, without an error
    replicas: int = 0  # that the cluster has decided on


@dataclass(slots=True)
class KnownRollout:
    """The rollout of an app that is under way."""

    row: tables.Rollout
    strategy: Strategy
    progress: Progress


@dataclass(slots=True)
class KnownApp:
    app: tables.App
    name: str  # project/environment/app
    spec: AppSpec
    deployments: dict[str, Deployment] = field(default_factory=dict)  # those wanted somewhere, and the newest
    rows: list[Topology] = field(default_factory=list)
    reported: dict[tuple[str, Place], ReportedDeployment] = field(default_factory=dict)
    ready: dict[tuple[str, Place], int] = field(default_factory=dict)  # instances
    correlation: str = ""  # of the request that led to its newest change
    rollout: KnownRollout | None = None

    @property
    def newest(self) -> Deployment | None:
        return self.deployments.get(self.app.deployment_id)

    def record(self, revision: int) -> Deployment | None:
        """The deployment that a revision was made as; its instances may be those of an older one."""
        return next((each for each in self.deployments.values() if each.revision == revision), None)

    def revision(self, row: Topology) -> int:
        return revision_of(row, self.deployments[row.deployment_id])

    def is_wanted(self, row: Topology) -> bool:
        return self.revision(row) == self.app.revision

    def regions(self) -> dict[str, list[Topology]]:
        """The rows by region; regions in the order of their ids."""
        found: dict[str, list[Topology]] = {}
        for row in sorted(self.rows, key=lambda each: (each.region_id, each.id)):
            found.setdefault(row.region_id, []).append(row)
        return found

    def is_candidate(self, row: Topology) -> bool:
        """Whether the rollout under way is about this row: what is wanted may be its stable revision again."""
        return self.rollout is not None and self.revision(row) == self.rollout.row.revision

    def stable_row(self, rows: Iterable[Topology]) -> Topology | None:
        """Of the rows of a region, what the rollout under way goes back to there: its stable revision, or what gets the
        requests of a region that has an older one."""
        if self.rollout is None:
            return None
        revision = self.rollout.row.stable_revision
        olds = [row for row in rows if not self.is_candidate(row) and (self.revision(row) == revision or row.routed)]
        return max(olds, key=lambda row: (self.revision(row) == revision, row.routed, row.id), default=None)

    def extras(self, row: Topology) -> dict[str, Any] | None:
        """What gateways do for a row besides its weight: requests of testers, copies, a preview host."""
        if self.rollout is None or not self.is_candidate(row):
            return None
        return testers_of(self.rollout.strategy, self.rollout.progress, row.region_id) or None

    @property
    def keeps_stable(self) -> bool:
        """Whether the rollout has given everything to the new revision, and only keeps the old one."""
        return self.rollout is not None and self.rollout.progress.phase == KEEPING

    def row_facts(self, revision: int) -> list[RowFacts]:
        """The rows that count as a revision."""
        several = {
            id_
            for id_, rows in self.regions().items()
            if len({self.revision(row) for row in rows if not self.keeps_stable or self.is_wanted(row)}) > 1
        }
        return [self._facts(row, several) for row in self.rows if self.revision(row) == revision]

    def _facts(self, row: Topology, several: Collection[str]) -> RowFacts:
        where = (row.deployment_id, place_of(row))
        needed = max(told_instances(row.instances, row.replicas, row.autoscaling), row.target)
        return RowFacts(
            id=row.id,
            region_id=row.region_id,
            region=str(row.reason.get("region") or row.region_id),
            place=place_of(row),
            desired_status=row.desired_status,
            needed=0 if row.desired_status == "stopped" else needed,
            ready=self.ready.get(where, 0),
            applied=self.reported.get(where, ReportedDeployment()).is_applied,
            moved_from=row.moved_from,
            weight=row.weight,
            alone=row.region_id not in several,
        )

    def exchange(self, rows: Iterable[Topology]) -> RegionFacts:
        """The rows of a region as an exchange of revisions."""
        groups: dict[str, list[Topology]] = {}
        for row in rows:
            groups.setdefault(row.deployment_id, []).append(row)
        size = self._size(groups)
        region = next(iter(groups.values()))[0].region_id
        stable = self.stable_row(row for group in groups.values() for row in group)
        goal = None
        if self.rollout is not None and self.app.revision == self.rollout.row.revision:
            goal = goal_of(self.rollout.strategy, self.rollout.progress, region, size)
        return RegionFacts(
            size=size,
            surge=surge_of(size, self._surge(region)),
            revisions=tuple(self._revision(group, stable) for group in groups.values()),
            goal=goal,
        )

    def _revision(self, rows: list[Topology], stable: Topology | None) -> RevisionFacts:
        """Several rows of one deployment are a move under way: both run all of it."""
        first = rows[0]
        is_wanted = self.is_wanted(first)
        return RevisionFacts(
            id=first.deployment_id,
            revision=self.revision(first),
            weight=max(row.weight for row in rows),
            routed=max(row.routed for row in rows),
            count=max(self.told(row) for row in rows),
            ready=max(self.ready.get((row.deployment_id, place_of(row)), 0) for row in rows),
            is_wanted=is_wanted,
            is_halted=all(row.desired_status == "stopped" for row in rows),
            is_stable=stable is not None and stable.deployment_id == first.deployment_id,
        )

    def told(self, row: Topology) -> int:
        """How many instances of a row there should be now; an autoscaler's own decision where it has one."""
        if row.desired_status == "stopped":
            return 0
        least = told_instances(row.instances, row.replicas, row.autoscaling)
        if row.instances is not None or not row.autoscaling:
            return least
        decided = self.reported.get((row.deployment_id, place_of(row)), ReportedDeployment()).replicas
        return min(max(decided, least), max(least, int(row.autoscaling.get("max") or least)))

    def _size(self, groups: dict[str, list[Topology]]) -> int:
        """How many there should be in all: what the region asks for, or as many as an autoscaler made of the old
        revision."""
        rows = [row for group in groups.values() for row in group]
        wanted = next((row for row in rows if self.is_wanted(row)), rows[0])
        if not wanted.autoscaling:
            return wanted.replicas
        free = [row for row in rows if row.instances is None and row.weight and row.desired_status != "stopped"]
        if free:
            return max(self.told(row) for row in free)
        least = needed_instances(wanted.replicas, wanted.autoscaling)
        return max(least, *(row.target for row in rows))

    def _surge(self, region_id: str) -> int | str:
        names = {str(row.reason.get("region")) for row in self.rows if row.region_id == region_id}
        return next((each.surge for each in self.spec.topology if each.region in names), DEFAULT_SURGE)


async def load_apps(session: AsyncSession, app_ids: Collection[str]) -> list[KnownApp]:
    if not app_ids:
        return []
    found = await session.execute(
        select(tables.App, tables.Project.name.label("project"), tables.Environment.name.label("environment"))
        .join(tables.Project, tables.Project.id == tables.App.project_id)
        .join(tables.Environment, tables.Environment.id == tables.App.environment_id)
        .where(tables.App.id.in_(app_ids))
        .order_by(tables.App.id)
        .execution_options(populate_existing=True)
    )
    known = {
        row.App.id: KnownApp(row.App, f"{row.project}/{row.environment}/{row.App.name}", read_app_spec(row.App.spec))
        for row in found
    }
    owners: dict[str, KnownApp] = {}  # by deployment
    newest = [each.app.deployment_id for each in known.values()]
    deployments = await session.scalars(
        select(Deployment)
        .where(Deployment.app_id.in_(list(known)), (Deployment.desired_state == "running") | Deployment.id.in_(newest))
        .order_by(Deployment.revision)
        .execution_options(populate_existing=True)
    )
    for deployment in deployments:
        owners[deployment.id] = known[deployment.app_id]
        known[deployment.app_id].deployments[deployment.id] = deployment
    await _read_rows(session, owners)
    for app_id, row in (await active_rollouts(session, list(known))).items():
        known[app_id].rollout = KnownRollout(row, strategy_of_row(row), progress_of_row(row))
    return list(known.values())


async def _read_rows(session: AsyncSession, owners: dict[str, KnownApp]) -> None:
    ids = list(owners)
    rows = await session.scalars(
        select(Topology)
        .where(Topology.deployment_id.in_(ids))
        .order_by(Topology.id)
        .execution_options(populate_existing=True)
    )
    for row in rows:
        known = owners[row.deployment_id]
        row.revision = known.revision(row)  # a control plane of an earlier version does not write it
        known.rows.append(row)
    desired = await session.execute(
        select(
            Desired.cluster_id, Desired.shard, Desired.object_id, Desired.number, Desired.applied_number, Desired.error,
            Desired.observed, Desired.correlation,
        ).where(Desired.kind == "deployment", Desired.object_id.in_(ids), Desired.action == "apply")
        .order_by(Desired.number)
    )  # fmt: skip
    for told in desired:
        owners[told.object_id].correlation = told.correlation or owners[told.object_id].correlation
        owners[told.object_id].reported[told.object_id, Place(told.cluster_id, told.shard)] = ReportedDeployment(
            told.applied_number >= told.number and not told.error, int((told.observed or {}).get("desired") or 0)
        )
    counted = await session.execute(
        select(Instance.deployment_id, Instance.cluster_id, Instance.shard, func.count().label("instances"))
        .where(
            Instance.workspace_id.in_({known.app.workspace_id for known in owners.values()}),
            Instance.deployment_id.in_(ids),
            Instance.ready,
            Instance.status == "running",
            Instance.outdated.is_(False),
        )
        .group_by(Instance.deployment_id, Instance.cluster_id, Instance.shard)
    )
    for each in counted:
        owners[each.deployment_id].ready[each.deployment_id, Place(each.cluster_id, each.shard)] = int(each[3])
