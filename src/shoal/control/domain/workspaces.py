"""Workspaces: the tenants of a fleet. Administrators of the fleet list, create and delete them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import select

from shoal.control.database import tables
from shoal.control.database.engine import Databases
from shoal.control.database.tokens import ApiTokens
from shoal.control.database.transaction import Tx
from shoal.control.domain.access import OPERATORS, authorize
from shoal.control.domain.hosts import HostClaims
from shoal.control.domain.kinds.checks import is_host
from shoal.control.domain.model import Actor
from shoal.control.domain.tenants import TenantPolicy, outbound_faults, quota_faults, used_quotas
from shoal.errors import AlreadyExists, Conflict, Invalid, NotFound, invalid

_GROUP = "shoal.dev"
_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundWorkspace:
    """``tokens`` are those of its users that have not been revoked."""

    name: str
    database: str
    created_at: int
    projects: int
    tokens: int
    policy: TenantPolicy = TenantPolicy()
    used: Mapping[str, int] = field(default_factory=dict)  # of the quotas
    domains: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceChange:
    """None: as it is. A quota of None is the default."""

    quotas: Mapping[str, int | None] | None = None
    domains: Sequence[str] | None = None
    tolerations: Sequence[str] | None = None
    default_tolerations: bool = False
    outbound: Sequence[str] | None = None


class Workspaces:
    def __init__(
        self,
        databases: Databases,
        tokens: ApiTokens,
        hosts: HostClaims,
        operators: Collection[str] = OPERATORS,
    ) -> None:
        self._databases = databases
        self._tokens = tokens
        self._hosts = hosts
        self._operators = operators

    async def list_(self, who: Actor) -> list[FoundWorkspace]:
        authorize(who, "operate", "Workspace", self._operators)
        tokens = Counter(row.workspace_id for row in await self._tokens.list_(kind="user") if not row.revoked_at)
        domains = await self._hosts.domains()
        found: list[FoundWorkspace] = []
        for database in self._databases.all:
            async with database.reading() as session:
                rows = list(await session.scalars(select(tables.Workspace)))
                projects = Counter(await session.scalars(select(tables.Project.workspace_id)))
                used = {row.id: await used_quotas(session, row.id) for row in rows}
            found += [
                FoundWorkspace(
                    name=row.id, database=database.name, created_at=row.created_at, projects=projects[row.id],
                    tokens=tokens[row.id], policy=TenantPolicy.of(row), used=used[row.id],
                    domains=domains.get(row.id, ()),
                )
                for row in rows
                if self._databases.of(row.id) is database  # not one that has been given to another database since
            ]  # fmt: skip
        return sorted(found, key=lambda each: each.name)

    async def get(self, who: Actor, name: str) -> FoundWorkspace:
        for found in await self.list_(who):
            if found.name == name:
                return found
        raise NotFound.of("workspaces", _GROUP, name)

    async def quotas(self, who: Actor) -> tuple[TenantPolicy, dict[str, int]]:
        """Of the caller's own workspace."""
        authorize(who, "read", "Workspace", self._operators)
        async with self._databases.of(who.workspace_id).reading() as session:
            row = await session.get(tables.Workspace, who.workspace_id)
            return TenantPolicy.of(row), await used_quotas(session, who.workspace_id)

    async def change(self, who: Actor, name: str, change: WorkspaceChange) -> FoundWorkspace:
        """Set what a workspace may use. What it has already stays, even if it is more than that."""
        authorize(who, "operate", "Workspace", self._operators)
        await self.get(who, name)
        faults = quota_faults(change.quotas or {})
        faults += outbound_faults(change.outbound or ())
        faults += [
            invalid(f"domains[{index}]", each, "must be a domain such as example.com")
            for index, each in enumerate(change.domains or ())
            if is_host(each) or each.startswith("*")
        ]
        if faults:
            raise Invalid.of("Workspace", _GROUP, name, faults)
        if change.domains is not None:
            await self._hosts.set_domains(name, change.domains)
        async with self._databases.of(name).transaction(
            actor=who.actor, by_user=True, correlation=who.correlation
        ) as tx:
            row = await tx.session.get(tables.Workspace, name)
            if row is None:
                raise NotFound.of("workspaces", _GROUP, name)
            before = TenantPolicy.of(row)
            merged = {**before.quotas, **(change.quotas or {})}
            tolerations = before.tolerations
            if change.tolerations is not None or change.default_tolerations:
                tolerations = None if change.tolerations is None else tuple(change.tolerations)
            policy = TenantPolicy(
                quotas={what: limit for what, limit in merged.items() if limit is not None}, tolerations=tolerations,
                outbound=before.outbound if change.outbound is None else tuple(dict.fromkeys(change.outbound)),
            )  # fmt: skip
            row.policy = policy.as_json()
            diff: list[dict[str, Any]] = [{"path": "policy", "before": before.as_json(), "after": row.policy}]
            if change.domains is not None:
                diff.append({"path": "domains", "before": None, "after": {"domains": sorted(set(change.domains))}})
            _audit(tx, who, "update", name, diff)
        return await self.get(who, name)

    async def create(self, who: Actor, name: str) -> FoundWorkspace:
        authorize(who, "operate", "Workspace", self._operators)
        if name == tables.FLEET:
            raise Conflict.of("workspace", _GROUP, name, "the name is taken by what belongs to the fleet itself")
        database = self._databases.of(name)
        async with database.transaction(actor=who.actor, by_user=True, correlation=who.correlation) as tx:
            await tx.claim()  # two who create it at once do it one after the other
            if await tx.session.get(tables.Workspace, name) is not None:
                raise AlreadyExists.of("workspaces", _GROUP, name)
            tx.session.add(tables.Workspace(id=name, name=name, created_at=tx.now))
            _audit(tx, who, "create", name)
            created_at = tx.now
        return FoundWorkspace(name=name, database=database.name, created_at=created_at, projects=0, tokens=0)

    async def delete(self, who: Actor, name: str) -> list[str]:
        """Delete an empty workspace and revoke the tokens of its users; returns their names. ``Conflict`` says what is
        still in it."""
        authorize(who, "operate", "Workspace", self._operators)
        if name in self._operators:
            raise Conflict.of("workspace", _GROUP, name, "its administrators run the fleet; it cannot be deleted")
        database = self._databases.of(name)
        async with database.transaction(actor=who.actor, by_user=True, correlation=who.correlation) as tx:
            await tx.claim()  # nothing can be applied meanwhile
            row = await tx.session.get(tables.Workspace, name)
            if row is None:
                raise NotFound.of("workspaces", _GROUP, name)
            if inside := await _content(tx, name):
                raise Conflict.of("workspace", _GROUP, name, f"it is not empty: it has {inside}; delete them first")
            await tx.session.delete(row)
            _audit(tx, who, "delete", name)
        await self._hosts.forget(name)
        tokens = [row for row in await self._tokens.list_(workspace_id=name) if not row.revoked_at]
        for token in tokens:
            await self._tokens.revoke(token.id, actor=who.actor)
        return [token.name for token in tokens]


async def _content(tx: Tx, name: str) -> str:
    """What is in a workspace, in words; everything else is in a project."""
    found: list[str] = []
    for table, plural in ((tables.Project, "projects"), (tables.Sentinel, "gateways")):
        names = sorted(await tx.session.scalars(select(table.name).where(table.workspace_id == name)))
        if names:
            more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
            found.append(f"the {plural} {', '.join(names[:_SHOWN])}{more}")
    return " and ".join(found)


def _audit(tx: Tx, who: Actor, action: str, name: str, diff: list[Any] | None = None) -> None:
    tx.audit(workspace_id=who.workspace_id, action=action, kind="Workspace", object_id=name, name=name, diff=diff)
