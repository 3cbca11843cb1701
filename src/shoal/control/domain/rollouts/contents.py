"""What makes two revisions the same: their containers in every region and the versions of their secrets; not what git
says of them, nor how often they were restarted, nor the rules by which agents render them. A revision that was taken
back is remembered by it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import orjson
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from shoal.control.database.tables import BadRevision, Deployment, Secret
from shoal.control.domain.plan import ADOPTED, RENDER, RESTARTS, secrets_of


def same_contents(one: Deployment, other: Deployment) -> bool:
    return _compared(one.template) == _compared(other.template) and _restarts(one) == _restarts(other)


def _restarts(one: Deployment) -> int:
    return int(one.template.get(RESTARTS) or 0)


async def content_digest(session: AsyncSession, deployment: Deployment) -> str:
    """Of a revision, with its secrets as they are now."""
    return await digest_of(session, deployment.template, deployment.environment_id)


async def digest_of(session: AsyncSession, template: Mapping[str, Any], environment_id: str) -> str:
    secrets = await session.execute(
        select(Secret.name, Secret.revision)
        .where(Secret.environment_id == environment_id, Secret.name.in_(secrets_of(template)))
        .order_by(Secret.name)
    )
    found = {"template": _compared(template), "secrets": [[row.name, row.revision] for row in secrets]}
    return hashlib.sha256(orjson.dumps(found, option=orjson.OPT_SORT_KEYS)).hexdigest()


async def bad_revision(session: AsyncSession, app_id: str, digest: str) -> BadRevision | None:
    return await session.get(BadRevision, (app_id, digest))


def _compared(template: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in template.items() if name not in ("git", ADOPTED, RENDER, RESTARTS)}
