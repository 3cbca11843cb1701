"""Hosts of routes, and preview hosts of apps, belong to one workspace, over all databases of the fleet.

A host is reserved in the fleet's own database before the transaction of its object, which may be in another database.
A reservation without an object is removed once no transaction can be under way that needs it. A workspace may have
domains: then its routes have hosts in these only, and no other workspace has hosts in them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import delete, select
from sqlalchemy.ext.asyncio import AsyncSession

from shoal.base.logs import get_logger
from shoal.control.database.engine import Databases
from shoal.control.database.tables import App, Domain, Host, Route
from shoal.control.database.transaction import Tx
from shoal.errors import Conflict, FieldError, invalid

GRACE_MS = 60_000  # longer than any transaction may take
_EVERY_MS = 30_000
PREVIEW_HOST = "spec.rollout.previewHost"

_log = get_logger("control.hosts")


class HostClaims:
    def __init__(self, databases: Databases) -> None:
        self._databases = databases
        self._looked_ms = 0

    async def reserve(
        self, workspace_id: str, host: str, *, dry_run: bool, field: str = "spec.host"
    ) -> FieldError | None:
        """Reserve a host for a workspace, or say why it cannot have it. ``field`` is where it was asked for."""
        if dry_run:
            async with self._databases.fleet.reading() as session:
                return await _refusal(session, workspace_id, host, field)

        async def write(tx: Tx) -> FieldError | None:
            fault = await _refusal(tx.session, workspace_id, host, field)
            if fault is None:
                row = await tx.session.get(Host, host)
                if row is None:
                    tx.session.add(Host(host=host, workspace_id=workspace_id, reserved_at=tx.now))
                else:
                    row.reserved_at = tx.now
            return fault

        return await self._databases.fleet.run(write, short=True)

    async def domains(self) -> dict[str, list[str]]:
        """By workspace."""
        found: dict[str, list[str]] = {}
        async with self._databases.fleet.reading() as session:
            for row in await session.scalars(select(Domain).order_by(Domain.domain)):
                found.setdefault(row.workspace_id, []).append(row.domain)
        return found

    async def set_domains(self, workspace_id: str, domains: Iterable[str]) -> None:
        """Replace the domains of a workspace."""
        wanted = sorted(set(domains))
        async with self._databases.fleet.transaction() as tx:
            for row in list(await tx.session.scalars(select(Domain).where(Domain.domain.in_(wanted)))):
                if row.workspace_id != workspace_id:
                    raise Conflict.of(
                        "workspace", "shoal.dev", workspace_id, f"{row.domain} belongs to another workspace"
                    )
            await tx.session.execute(delete(Domain).where(Domain.workspace_id == workspace_id))
            for domain in wanted:
                tx.session.add(Domain(domain=domain, workspace_id=workspace_id, created_at=tx.now))

    async def forget(self, workspace_id: str) -> None:
        """The workspace is deleted."""
        async with self._databases.fleet.transaction() as tx:
            for table in (Domain, Host):
                await tx.session.execute(delete(table).where(table.workspace_id == workspace_id))

    async def clean_up(self) -> None:
        """Remove reservations whose route was never written or is deleted, and add those that routes of an earlier
        version lack. To be called often; looks now and then."""
        now_ms = self._databases.fleet.time.now_ms()
        if now_ms - self._looked_ms < _EVERY_MS:
            return
        self._looked_ms = now_ms
        async with self._databases.fleet.reading() as session:
            reserved = {row.host: row for row in await session.scalars(select(Host))}
        used: dict[str, set[str]] = {}
        for database in self._databases.all:  # after the reservations, so that a new route is not overlooked
            async with database.reading() as session:
                routes = select(Route.host, Route.workspace_id).distinct()
                previews = select(App.preview_host.label("host"), App.workspace_id).where(App.preview_host != "")
                for query in (routes, previews):
                    for row in await session.execute(query):
                        used.setdefault(row.host, set()).add(row.workspace_id)
        stale = [
            row
            for row in reserved.values()
            if row.reserved_at < now_ms - GRACE_MS and row.workspace_id not in used.get(row.host, ())
        ]
        missing = {host: min(owners) for host, owners in used.items() if host not in reserved}
        for host, owners in used.items():
            if len(owners) > 1:
                _log.warning("a host is used by several workspaces", host=host, workspaces=sorted(owners))
        if stale or missing:
            await self._correct(stale, missing)

    async def _correct(self, stale: list[Host], missing: dict[str, str]) -> None:
        async with self._databases.fleet.transaction() as tx:
            for row in stale:  # only if it was not reserved again meanwhile
                await tx.session.execute(delete(Host).where(Host.host == row.host, Host.reserved_at == row.reserved_at))
            for host, workspace_id in missing.items():
                if await tx.session.get(Host, host) is None:
                    tx.session.add(Host(host=host, workspace_id=workspace_id, reserved_at=tx.now))


def domains_of(host: str) -> list[str]:
    """The domains that a host is in, the longest first."""
    labels = host.removeprefix("*.").split(".")
    return [".".join(labels[start:]) for start in range(len(labels))]


def preview_host_of(spec: Mapping[str, Any]) -> str:
    """The preview host that an app's spec, as it was written, asks for; empty if it does not."""
    rollout = spec.get("rollout")
    host = rollout.get("previewHost") if isinstance(rollout, Mapping) else None
    return host.lower() if isinstance(host, str) else ""


async def _refusal(session: AsyncSession, workspace_id: str, host: str, field: str) -> FieldError | None:
    """Says nothing about who has it."""
    claims = {
        row.domain: row.workspace_id
        for row in await session.scalars(select(Domain).where(Domain.domain.in_(domains_of(host))))
    }
    owner = next((claims[domain] for domain in domains_of(host) if domain in claims), None)
    if owner is None:
        mine = list(await session.scalars(select(Domain.domain).where(Domain.workspace_id == workspace_id)))
        if mine:
            return invalid(field, host, f"is not in a domain of this workspace ({', '.join(sorted(mine))})")
    elif owner != workspace_id:
        return invalid(field, host, "is in a domain of another workspace")
    row = await session.get(Host, host)
    if row is not None and row.workspace_id != workspace_id:
        return invalid(field, host, "is used by another workspace, or was until a minute ago")
    return None
