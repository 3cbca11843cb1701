"""What a workspace may use: quotas, taints that its apps may tolerate, and hosts that may be called for it. Checked in
a change's transaction."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from shoal.control.database import tables
from shoal.control.domain.kinds.app import AppSpec, Toleration
from shoal.control.domain.kinds.scopes import EnvironmentSpec
from shoal.control.domain.model import Actor
from shoal.control.domain.objects import Row
from shoal.control.domain.outbound import MOST as MOST_OUTBOUND
from shoal.control.domain.outbound import entry_fault
from shoal.control.domain.specs import SpecDocument, read_app_spec
from shoal.control.domain.work import PendingWork
from shoal.errors import FieldError, Forbidden, Invalid, forbidden, invalid, too_many

DEFAULT_QUOTAS: Mapping[str, int] = {
    "apps": 1000, "regions": 50, "routes": 1000, "keys": 5000, "secrets": 2000,
    "credentials": 200,
}  # fmt: skip
MOST = 1_000_000
ANY = "*"
_COUNTED = {
    "App": ("apps", tables.App),
    "Route": ("routes", tables.Route),
    "ApiKey": ("keys", tables.ApiKey),
    "Secret": ("secrets", tables.Secret),
    "Credential": ("credentials", tables.Credential),
}


class QuotaExceeded(Forbidden):
    """The workspace has as many of something as it may."""

    reason = "QuotaExceeded"


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantPolicy:
    """``quotas`` has those that differ from the defaults. ``tolerations`` are keys of taints, or ``key=value``, or
    ``*``; None: any in the workspaces that run the fleet, none in others. ``outbound`` are hosts that checks and
    notifications of its rollouts may be sent to (``shoal.control.domain.outbound``)."""

    quotas: Mapping[str, int] = field(default_factory=dict)
    tolerations: tuple[str, ...] | None = None
    outbound: tuple[str, ...] = ()

    @classmethod
    def of(cls, row: tables.Workspace | None) -> TenantPolicy:
        known = (row.policy if row is not None else None) or {}
        listed = known.get("tolerations")
        return cls(
            quotas=known.get("quotas") or {}, tolerations=tuple(listed) if listed is not None else None,
            outbound=tuple(known.get("outbound") or ()),
        )  # fmt: skip

    def as_json(self) -> dict[str, Any]:
        return {
            "quotas": dict(self.quotas),
            "tolerations": None if self.tolerations is None else list(self.tolerations),
            "outbound": list(self.outbound),
        }

    def limit(self, what: str) -> int:
        return self.quotas.get(what, DEFAULT_QUOTAS[what])

    def allows(self, toleration: Toleration) -> bool:
        if self.tolerations is None or ANY in self.tolerations:
            return self.tolerations is not None
        exact = f"{toleration.key}={toleration.value}"
        is_one = toleration.operator == "Equal" and exact in self.tolerations
        return bool(toleration.key) and (toleration.key in self.tolerations or is_one)


async def check_tenant(
    work: PendingWork, who: Actor, document: SpecDocument, row: Row | None, operators: Collection[str]
) -> None:
    """Raise ``QuotaExceeded`` for one object too many, ``Invalid`` for a toleration or a namespace that is not
    allowed."""
    kind, spec = document.kind.name, document.spec
    if isinstance(spec, EnvironmentSpec) and spec.namespace and row is None and who.workspace_id not in operators:
        text = "only the workspaces that run the fleet choose namespaces: leave it out, or ask its administrators"
        raise Invalid.of(kind, "shoal.dev", document.ref.name, [forbidden("spec.namespace", text)])
    if kind not in _COUNTED:
        return
    policy = TenantPolicy.of(await work.session.get(tables.Workspace, who.workspace_id))
    if isinstance(spec, AppSpec):
        faults = _toleration_faults(policy, spec, who.workspace_id in operators)
        if faults:
            raise Invalid.of(kind, "shoal.dev", document.ref.name, faults)
        await _check_regions(work, policy, spec, row, who.workspace_id)
    if row is None:
        what, table = _COUNTED[kind]
        count = await _count(work.session, table, who.workspace_id)
        _check(policy, what, count + 1, who.workspace_id, before=count)


async def _check_regions(
    work: PendingWork, policy: TenantPolicy, spec: AppSpec, row: Row | None, workspace_id: str
) -> None:
    known = {each.region for each in read_app_spec(row.spec).topology} if row is not None else set()
    named = {each.region for each in spec.topology} - known
    wanted = {region.id for name in named if (region := work.infrastructure.region_named(name)) is not None}
    if not wanted:
        return
    before = await _regions(work.session, workspace_id)
    if wanted - before:
        _check(policy, "regions", len(before | wanted), workspace_id, before=len(before))


async def used_quotas(session: AsyncSession, workspace_id: str) -> dict[str, int]:
    """How much of each quota a workspace uses."""
    found = {what: await _count(session, table, workspace_id) for what, table in _COUNTED.values()}
    return {**found, "regions": len(await _regions(session, workspace_id))}


def quota_faults(quotas: Mapping[str, int | None]) -> list[FieldError]:
    faults: list[FieldError] = []
    for name, limit in quotas.items():
        if name not in DEFAULT_QUOTAS:
            faults.append(forbidden(f"quotas.{name}", f"unknown quota; known are {', '.join(DEFAULT_QUOTAS)}"))
        elif limit is not None and not 0 <= limit <= MOST:
            faults.append(invalid(f"quotas.{name}", limit, f"must be 0 to {MOST}, or null for the default"))
    return faults


def outbound_faults(entries: Sequence[str]) -> list[FieldError]:
    if len(entries) > MOST_OUTBOUND:
        return [too_many("outbound", len(entries), MOST_OUTBOUND)]
    found = ((index, each, entry_fault(each)) for index, each in enumerate(entries))
    return [invalid(f"outbound[{index}]", each, fault) for index, each, fault in found if fault]


def _check(policy: TenantPolicy, what: str, wanted: int, workspace_id: str, *, before: int) -> None:
    limit = policy.limit(what)
    if wanted > limit:
        raise QuotaExceeded(
            f"quota exceeded: workspace {workspace_id!r} uses {before} of {limit} {what} and would use {wanted}; "
            "delete some, or ask an administrator of the fleet for more",
            details={"quota": what, "used": before, "limit": limit},
        )


def _toleration_faults(policy: TenantPolicy, spec: AppSpec, is_operator: bool) -> list[FieldError]:
    if policy.tolerations is None and is_operator:
        return []
    allowed = ", ".join(policy.tolerations or ()) or "none"
    return [
        forbidden(
            f"spec.placement.tolerations[{index}]",
            f"the workspace may not tolerate {each.key or 'every taint'} (allowed: {allowed}); ask an administrator of "
            "the fleet",
        )
        for index, each in enumerate(spec.placement.tolerations)
        if not policy.allows(each)
    ]


async def _count(session: AsyncSession, table: Any, workspace_id: str) -> int:
    asked = select(func.count()).select_from(table).where(table.workspace_id == workspace_id)
    return int((await session.execute(asked)).scalar_one())


async def _regions(session: AsyncSession, workspace_id: str) -> set[str]:
    """The regions that apps of a workspace are in."""
    return set(
        await session.scalars(
            select(tables.Topology.region_id)
            .where(tables.Topology.workspace_id == workspace_id, tables.Topology.desired_status != "gone")
            .distinct()
        )
    )
