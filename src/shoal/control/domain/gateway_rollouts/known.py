"""The gateways of an environment as the database has them while another version of them is rolled out.

``Sentinel.rollout`` says where each is: ``{"revision": of the candidate, "image", "resources": its version, "before":
the version to go back to, "count": pods of the candidate beside, "kept": own pods, "promoted": whether those run it}``.
Its row's image and resources are always what its own pods are to run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from shoal.control.database import tables
from shoal.control.database.tables import Agent, Desired, Sentinel
from shoal.control.database.traffic import gateway_version
from shoal.control.domain.app_facts import KnownRollout
from shoal.control.domain.gateway_rollouts.versions import version_of
from shoal.control.domain.gateways import MADE_BY
from shoal.control.domain.rollouts.records import active_rollouts, progress_of_row, strategy_of_row
from shoal.control.domain.silence import outage_of
from shoal.control.rollout.gateways import GatewayFacts, ToldGateway, share
from shoal.control.rollout.goals import FULL, NOTHING, goal_of
from shoal.control.rollout.model import RegionGoal, RevisionFacts
from shoal.control.rollout.progress import CandidateFacts
from shoal.sync.keys import Place

CRASHES = 2  # restarts of one pod, after which it will not come up
_CRASHING = "CrashLoopBackOff"


@dataclass(slots=True)
class KnownGateway:
    row: Sentinel
    observed: Mapping[str, Any]
    is_taken: bool  # the agent has applied the newest version of the object
    error: str  # why it cannot
    is_lost: bool
    changed_at: int = 0  # when its agent was told the last time; 0: not in this transaction

    @property
    def region(self) -> str:
        return str(self.row.spec.get("region") or self.row.name)

    @property
    def told(self) -> ToldGateway:
        at = self.row.rollout or {}
        return ToldGateway(
            count=int(at.get("count") or 0),
            kept=int(at.get("kept", self.row.desired_replicas)),
            promoted=bool(at.get("promoted")),
        )

    @property
    def candidate(self) -> Mapping[str, Any]:
        """What its agent reported of the candidate's pods beside."""
        found = self.observed.get("candidate") or {}
        return found if found.get("revision") == (self.row.rollout or {}).get("revision") else {}

    @property
    def beside(self) -> int:
        """Pods that are not its own, of whatever candidate."""
        return int((self.observed.get("candidate") or {}).get("pods") or 0)

    def facts(self, goal: RegionGoal) -> GatewayFacts:
        return GatewayFacts(
            size=self.row.desired_replicas,
            told=self.told,
            goal=goal,
            ready=int(self.candidate.get("ready") or 0),
            pods=self.beside,
            available=int(self.observed.get("available") or 0),
            is_settled=self.is_settled,
            can_split=bool(self.observed.get("splits")),
        )

    @property
    def is_settled(self) -> bool:
        """Whether its own pods are as many as was told, and all of their version."""
        at, told = self.row.rollout or {}, self.told
        running, wanted = str(self.observed.get("image") or ""), version_of(self.row)["image"]
        other = ((at.get("before") or {}) if told.promoted else at).get("image")
        # which image an agent chooses is not known, only that it is not the other version's
        is_rolled_out = bool(running) and (running == wanted if wanted else running != other)
        kept = told.kept
        return (
            self.is_taken
            and is_rolled_out
            and int(self.observed.get("desired") or 0) == kept <= int(self.observed.get("available") or 0)
        )

    @property
    def failure(self) -> str:
        """Why the candidate will not come up."""
        if not self.is_taken:
            return ""
        at = self.candidate
        restarts = int(at.get("restarts") or 0)
        if self.told.count and restarts >= CRASHES and int(at["ready"]) < self.told.count:
            why = f"{at.get('reason') or 'Error'}: {at.get('message') or ''}".removesuffix(": ")
            return f"{why} (restarted {restarts} times)"
        fault = self.observed.get("fault") or {}
        if self.told.promoted and not self.is_settled and fault.get("reason") == _CRASHING:
            return f"{_CRASHING}: {fault.get('message') or ''}".removesuffix(": ")
        return ""

    @property
    def trouble(self) -> str:
        fault = self.observed.get("fault") or {}
        for found in (self.candidate, fault):
            if found.get("reason"):
                return f"{found['reason']}: {found.get('message') or ''}".removesuffix(": ")
        return self.error


@dataclass(slots=True)
class KnownGateways:
    environment: tables.Environment
    name: str  # project/environment
    gateways: list[KnownGateway]
    rollout: KnownRollout | None = None

    def goal(self, gateway: KnownGateway) -> RegionGoal:
        assert self.rollout is not None
        size = gateway.row.desired_replicas
        found = goal_of(self.rollout.strategy, self.rollout.progress, gateway.row.region_id, size)
        return found if found is not None else NOTHING

    def facts(self) -> dict[str, CandidateFacts]:
        """The candidate in every region, by region's id."""
        return {each.row.region_id: self._facts(each) for each in self.gateways}

    def revisions(self) -> dict[str, dict[str, RevisionFacts]]:
        """Both versions in every region, by region's id, as they are shown."""
        assert self.rollout is not None
        row = self.rollout.row
        found: dict[str, dict[str, RevisionFacts]] = {}
        for each in self.gateways:
            facts = each.facts(self.goal(each))
            told, now = facts.told, share(facts)
            new, old = (facts.available, 0) if told.promoted else (facts.ready, facts.available)
            found[each.row.region_id] = {
                "candidate": RevisionFacts(
                    id=gateway_version(row.revision), revision=row.revision, weight=now.weight, routed=now.routed,
                    count=told.kept if told.promoted else told.count, ready=new, is_wanted=True,
                ),
                "stable": RevisionFacts(
                    id=gateway_version(0), revision=row.stable_revision, weight=FULL - now.weight,
                    routed=FULL - now.weight, count=0 if told.promoted else told.kept, ready=old, is_wanted=False,
                ),
            }  # fmt: skip
        return found

    def _facts(self, gateway: KnownGateway) -> CandidateFacts:
        facts = gateway.facts(self.goal(gateway))
        found = share(facts)
        return CandidateFacts(
            region=gateway.region,
            size=facts.size,
            weight=found.weight,
            routed=found.routed,
            count=facts.told.kept if facts.told.promoted else facts.told.count,
            ready=found.ready,
            has_stable=True,
            is_lost=gateway.is_lost,
            is_done=facts.told.promoted and facts.is_settled and not facts.told.count,
            failure=gateway.failure,
            trouble=gateway.trouble,
        )


async def gateways_of(session: AsyncSession, environment_id: str) -> list[Sentinel]:
    """Those that Shoal made for an environment and that are to run, by region."""
    rows = await session.scalars(
        select(Sentinel)
        .where(Sentinel.environment_id == environment_id, Sentinel.desired_state == "running")
        .order_by(Sentinel.name)
        .execution_options(populate_existing=True)
    )
    return [row for row in rows if MADE_BY in row.annotations]


async def load_gateways(session: AsyncSession, environment_id: str) -> KnownGateways | None:
    """None where the environment is gone."""
    environment = await session.get(tables.Environment, environment_id)
    if environment is None:
        return None
    project = await session.get(tables.Project, environment.project_id)
    rows = await gateways_of(session, environment_id)
    desired = await session.scalars(
        select(Desired)
        .where(Desired.kind == "sentinel", Desired.object_id.in_([row.id for row in rows]), Desired.action == "apply")
        .execution_options(populate_existing=True)
    )
    reported = {(each.object_id, Place(each.cluster_id, each.shard)): each for each in desired}
    agents = await session.scalars(select(Agent).where(Agent.cluster_id.in_({row.cluster_id for row in rows})))
    lost = {Place(each.cluster_id, each.shard) for each in agents if each.lost or outage_of(each)}
    known = KnownGateways(environment, f"{project.name if project else ''}/{environment.name}", [])
    for row in rows:
        place = Place(row.cluster_id, row.shard)
        told = reported.get((row.id, place))
        error = (told.error or {}) if told is not None else {}
        known.gateways.append(
            KnownGateway(
                row=row,
                observed=(told.observed or {}) if told is not None else {},
                is_taken=told is not None and told.applied_number >= told.number and not error,
                error=f"{error['reason']}: {error['message']}" if error else "",
                is_lost=place in lost,
            )
        )
    found = (await active_rollouts(session, [environment_id])).get(environment_id)
    if found is not None:
        known.rollout = KnownRollout(found, strategy_of_row(found), progress_of_row(found))
    return known
