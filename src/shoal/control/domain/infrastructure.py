"""Regions, clusters and gateways that people apply by name."""

from __future__ import annotations

from typing import Any, cast

from sqlalchemy import select

from shoal.control.database import tables
from shoal.control.domain import apps, gateways, readiness
from shoal.control.domain.kind_handlers import ApplyRequest, KindHandler
from shoal.control.domain.kinds.places import ClusterSpec, RegionObject, SentinelSpec
from shoal.control.domain.model import GROUP, ObjectRef
from shoal.control.domain.objects import ObjectScope, Row, kind_of
from shoal.control.domain.placement.model import PlacementRequest
from shoal.control.domain.placement.plan import place
from shoal.control.domain.work import PendingWork
from shoal.errors import Conflict, FieldError, forbidden, invalid, not_found
from shoal.sync.keys import Place


class RegionHandler(KindHandler):
    async def columns(self, work: PendingWork, request: ApplyRequest, row: Row | None, new_id: str) -> dict[str, Any]:
        spec = cast(RegionObject, request.doc.spec)
        return {"platform": spec.platform, "can_schedule": spec.can_schedule}

    async def written(self, work: PendingWork, request: ApplyRequest, row: Row, before: dict[str, Any] | None) -> None:
        told = ("gateways", "distances")
        if before is not None and any(before.get(name) != row.spec.get(name) for name in told):
            await work.tx.want_many(
                await gateways.wanted_again(work.session, tables.Sentinel.desired_state == "running")
            )

    async def delete(self, work: PendingWork, row: Row, within: ObjectScope, *, cascade: bool) -> list[ObjectRef]:
        inside = [cluster.name for cluster in work.infrastructure.clusters.values() if cluster.region_id == row.id]
        if inside:
            raise Conflict.of("region", GROUP, row.name, f"it has clusters: {', '.join(sorted(inside))}")
        return await super().delete(work, row, within, cascade=cascade)


class ClusterHandler(KindHandler):
    """Changing labels, taints or whether it takes new things moves nothing that runs."""

    async def check(self, work: PendingWork, request: ApplyRequest, row: Row | None) -> list[FieldError]:
        spec = cast(ClusterSpec, request.doc.spec)
        region = work.infrastructure.region_named(spec.region)
        if region is None:
            return [not_found("spec.region", spec.region)]
        if not isinstance(row, tables.Cluster):
            return []
        faults: list[FieldError] = []
        used = await used_shards(work, row.id)
        if region.id != row.region_id and used:
            faults.append(forbidden("spec.region", "the cluster has deployments; it cannot move to another region"))
        for shard in sorted(used - set(spec.shards)):
            faults.append(invalid("spec.shards", list(spec.shards), f"shard {shard} has deployments"))
        return faults

    async def columns(self, work: PendingWork, request: ApplyRequest, row: Row | None, new_id: str) -> dict[str, Any]:
        spec = cast(ClusterSpec, request.doc.spec)
        region = work.infrastructure.region_named(spec.region)
        assert region is not None  # checked
        return {"region_id": region.id, "can_schedule": spec.can_schedule}

    async def delete(self, work: PendingWork, row: Row, within: ObjectScope, *, cascade: bool) -> list[ObjectRef]:
        used = await used_shards(work, row.id)
        if used:
            raise Conflict.of("cluster", GROUP, row.name, f"it has deployments (shards {', '.join(sorted(used))})")
        agents = await work.session.scalars(select(tables.Agent).where(tables.Agent.cluster_id == row.id))
        for agent in list(agents):
            await work.session.delete(agent)
        return await super().delete(work, row, within, cascade=cascade)


async def used_shards(work: PendingWork, cluster_id: str) -> set[str]:
    """Shards of a cluster on which something is wanted."""
    await work.flush()
    here = await work.session.scalars(
        select(tables.Desired.shard)
        .where(tables.Desired.cluster_id == cluster_id, tables.Desired.action == "apply")
        .distinct()
    )
    return {*here, *work.used_elsewhere}


class SentinelHandler(KindHandler):
    async def check(self, work: PendingWork, request: ApplyRequest, row: Row | None) -> list[FieldError]:
        spec = cast(SentinelSpec, request.doc.spec)
        region = work.infrastructure.region_named(spec.region)
        if region is None:
            return [not_found("spec.region", spec.region)]
        if isinstance(row, tables.Sentinel):
            same = row.region_id == region.id
            return [] if same else [forbidden("spec.region", "a sentinel stays in its region; make another one")]
        other = await self._in_region(work, request, region.id)
        if other is not None:
            return [invalid("spec.region", spec.region, f"already has the sentinel {other.name}")]
        found, why = await self._place(work, spec)
        return [] if found else [invalid("spec.region", spec.region, why)]

    async def columns(self, work: PendingWork, request: ApplyRequest, row: Row | None, new_id: str) -> dict[str, Any]:
        spec = cast(SentinelSpec, request.doc.spec)
        found: dict[str, Any] = {
            "image": spec.image or work.gateways.image,
            "desired_replicas": spec.replicas or work.gateways.replicas,
            "desired_state": "running" if spec.desired == "running" else "standby",
        }
        if row is not None:
            return found
        region = work.infrastructure.region_named(spec.region)
        at, _ = await self._place(work, spec)
        assert region is not None and at is not None  # checked
        return {
            **found,
            "project_id": request.within.project_id,
            "environment_id": request.within.environment_id,
            "region_id": region.id,
            "cluster_id": at.cluster,
            "shard": at.shard,
            "k8s_name": gateways.sentinel_name(request.doc.ref.name, new_id),
        }

    async def written(self, work: PendingWork, request: ApplyRequest, row: Row, before: dict[str, Any] | None) -> None:
        gateways.want_sentinel(work, cast(tables.Sentinel, row))
        if request.within.environment is not None:
            await apps.settle_environment(work, request.within.environment_id)

    async def delete(self, work: PendingWork, row: Row, within: ObjectScope, *, cascade: bool) -> list[ObjectRef]:
        sentinel = cast(tables.Sentinel, row)
        at = Place(sentinel.cluster_id, sentinel.shard)
        served = await self._served(work, sentinel, at)
        if served and not sentinel.environment_id and not cascade:
            raise Conflict.of(
                kind_of(row).lower(),
                GROUP,
                row.name,
                "it serves environments; delete with cascade to stop serving them",
            )
        await gateways.remove(work, sentinel)
        for environment_id in served:
            await readiness.settle_gateways(work, environment_id)
        return []

    async def _served(self, work: PendingWork, sentinel: tables.Sentinel, at: Place) -> list[str]:
        """The environments that a sentinel serves."""
        if sentinel.environment_id:
            return [sentinel.environment_id]
        await work.flush()
        own = set(
            await work.session.scalars(
                select(tables.Sentinel.environment_id).where(tables.Sentinel.region_id == sentinel.region_id)
            )
        )
        marked = await work.session.scalars(
            select(tables.Desired.object_id).where(
                tables.Desired.cluster_id == at.cluster,
                tables.Desired.shard == at.shard,
                tables.Desired.kind == "keys",
                tables.Desired.action == "apply",
                tables.Desired.workspace_id == sentinel.workspace_id,
            )
        )
        return sorted(set(marked) - own)

    async def _in_region(self, work: PendingWork, request: ApplyRequest, region_id: str) -> tables.Sentinel | None:
        return await work.session.scalar(
            select(tables.Sentinel).where(
                tables.Sentinel.workspace_id == work.workspace_id,
                tables.Sentinel.environment_id == request.within.environment_id,
                tables.Sentinel.region_id == region_id,
            )
        )

    async def _place(self, work: PendingWork, spec: SentinelSpec) -> tuple[Place | None, str]:
        facts = [each for each in await work.facts(spec.region) if not spec.cluster or each.name == spec.cluster]
        found = place(PlacementRequest(region=spec.region), facts)
        refused = "; ".join(f"{name}: {why}" for name, why in found.reason["refused"].items())
        return found.place, f"{found.reason['because']} ({refused})" if refused else str(found.reason["because"])
