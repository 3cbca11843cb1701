"""What a gateway that is made now runs: while another version is rolled out, and where it was taken back, the stable
one."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from shoal.control.database.tables import Rollout
from shoal.control.domain.gateway_rollouts.versions import Version, digest_of
from shoal.control.rollout.progress import PROMOTED


async def version_for_new(session: AsyncSession, environment_id: str, wanted: Version) -> Version:
    """``wanted`` is what its environment asks for."""
    row = await session.scalar(
        select(Rollout).where(Rollout.app_id == environment_id).order_by(Rollout.number.desc()).limit(1)
    )
    if row is None or row.outcome == PROMOTED or row.digest != digest_of(wanted):
        return wanted
    stable = (row.contents or {})["stable"]
    return {"image": stable["image"], "resources": stable["resources"]}
