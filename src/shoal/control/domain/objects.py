"""Rows as objects and objects' names as rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from shoal.control.database import tables
from shoal.control.database.tables import FLEET
from shoal.control.domain.model import API_VERSION, GROUP, ObjectRef
from shoal.control.domain.specs import KINDS
from shoal.errors import NotFound

Row = (
    tables.Project | tables.Environment | tables.App | tables.Route | tables.Policy | tables.ApiKey | tables.Secret
    | tables.Credential | tables.Sentinel | tables.Region | tables.Cluster
)  # fmt: skip

TABLES: dict[str, type[Row]] = {
    "Project": tables.Project,
    "Environment": tables.Environment,
    "App": tables.App,
    "Route": tables.Route,
    "Policy": tables.Policy,
    "ApiKey": tables.ApiKey,
    "Secret": tables.Secret,
    "Credential": tables.Credential,
    "Sentinel": tables.Sentinel,
    "Region": tables.Region,
    "Cluster": tables.Cluster,
}
PREFIX = {
    "Project": "prj", "Environment": "env", "App": "app", "Route": "rte", "Policy": "pol", "ApiKey": "key",
    "Secret": "sec", "Credential": "crd", "Sentinel": "sen", "Region": "reg", "Cluster": "clu",
    "Deployment": "dep", "Topology": "top", "Rollout": "rol",
}  # fmt: skip
IN_ENVIRONMENT = ("App", "Route", "Policy", "ApiKey", "Secret", "Credential", "Sentinel")
SEALED = ("Secret", "Credential")  # their values are never shown


@dataclass(frozen=True, slots=True)
class ObjectScope:
    """The project and environment an object is in; None where it is in none."""

    project: tables.Project | None = None
    environment: tables.Environment | None = None

    @property
    def project_name(self) -> str:
        return self.project.name if self.project else ""

    @property
    def environment_name(self) -> str:
        return self.environment.name if self.environment else ""

    @property
    def project_id(self) -> str:
        return self.project.id if self.project else ""

    @property
    def environment_id(self) -> str:
        return self.environment.id if self.environment else ""


def workspace_of(kind: str, workspace_id: str) -> str:
    return FLEET if KINDS[kind].scope == "fleet" else workspace_id


async def find_within(session: AsyncSession, workspace_id: str, project: str, environment: str) -> ObjectScope | str:
    """The rows behind the names, or the field (project or environment) that names nothing."""
    if not project:
        return ObjectScope()
    named = (tables.Environment.project_id == tables.Project.id) & (tables.Environment.name == environment)
    row = (
        await session.execute(
            select(tables.Project, tables.Environment)
            .outerjoin(tables.Environment, named)
            .where(tables.Project.workspace_id == workspace_id, tables.Project.name == project)
        )
    ).first()
    if row is None:
        return "project"
    found: tables.Project = row.Project
    inside: tables.Environment | None = row.Environment
    if environment and inside is None:
        return "environment"
    return ObjectScope(found, inside)


async def find(session: AsyncSession, workspace_id: str, ref: ObjectRef, within: ObjectScope) -> Row | None:
    """The row of an object whose project and environment are known."""
    table = TABLES[ref.kind]
    query = select(table).where(table.workspace_id == workspace_of(ref.kind, workspace_id), table.name == ref.name)
    if ref.kind == "Environment":
        query = query.where(tables.Environment.project_id == within.project_id)
    elif ref.kind in IN_ENVIRONMENT:
        query = query.where(table.environment_id == within.environment_id)  # type: ignore[union-attr]
    found: Row | None = await session.scalar(query)
    return found


async def get(session: AsyncSession, workspace_id: str, ref: ObjectRef) -> tuple[Row, ObjectScope]:
    """The object, or ``NotFound``."""
    within = await find_within(session, workspace_id, ref.project, ref.environment)
    row = await find(session, workspace_id, ref, within) if isinstance(within, ObjectScope) else None
    if row is None or isinstance(within, str):
        raise not_found(ref)
    return row, within


def not_found(ref: ObjectRef) -> NotFound:
    return NotFound.of(KINDS[ref.kind].plural, GROUP, str(ref))


async def withins(session: AsyncSession, rows: Sequence[Row]) -> dict[str, ObjectScope]:
    """By id, what each row is in."""
    projects = {id_ for row in rows if (id_ := getattr(row, "project_id", ""))}
    environments = {id_ for row in rows if (id_ := getattr(row, "environment_id", ""))}
    by_project = {
        row.id: row for row in await session.scalars(select(tables.Project).where(tables.Project.id.in_(projects)))
    }
    by_environment = {
        row.id: row
        for row in await session.scalars(select(tables.Environment).where(tables.Environment.id.in_(environments)))
    }
    return {
        row.id: ObjectScope(
            by_project.get(getattr(row, "project_id", "")), by_environment.get(getattr(row, "environment_id", ""))
        )
        for row in rows
    }


def kind_of(row: Row) -> str:
    return next(kind for kind, table in TABLES.items() if isinstance(row, table))


def ref_of(row: Row, within: ObjectScope) -> ObjectRef:
    return ObjectRef(kind_of(row), row.name, within.project_name, within.environment_name)


def document_of(row: Row, within: ObjectScope, status: dict[str, Any] | None = None) -> dict[str, Any]:
    """The object as people see it."""
    kind = kind_of(row)
    metadata: dict[str, Any] = {"name": row.name}
    if within.project_name:
        metadata["project"] = within.project_name
    if within.environment_name:
        metadata["environment"] = within.environment_name
    metadata |= {
        "labels": row.labels,
        "annotations": row.annotations,
        "id": row.id,
        "version": row.version,
        "generation": row.generation,
        "createdAt": time_text(row.created_at),
        "updatedAt": time_text(row.updated_at),
    }
    if isinstance(row, tables.Environment):
        metadata["namespace"] = row.namespace
    return {
        "apiVersion": API_VERSION,
        "kind": kind,
        "metadata": metadata,
        "spec": visible_spec(kind, row.spec),
        "status": status if status is not None else {},
    }


def visible_spec(kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    """A spec without what the control plane keeps in it for itself."""
    return {name: value for name, value in spec.items() if kind not in SEALED or name != "fingerprint"}


def time_text(ms: int) -> str:
    if not ms:
        return ""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
