"""What is wanted becomes the stable revision again, once a rollout goes back: so the app's spec is what runs."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.control.database import tables
from shoal.control.database.tables import Deployment, Rollout
from shoal.control.domain import apps
from shoal.control.domain.model import Diff
from shoal.control.domain.objects import ObjectScope, ref_of
from shoal.control.domain.plan import differences, spec_of_revision
from shoal.control.domain.specs import read_app_spec
from shoal.control.domain.work import PendingWork
from shoal.control.rollout.progress import GOING_BACK


def needs_revert(app: tables.App, row: Rollout | None) -> bool:
    return row is not None and row.phase == GOING_BACK and row.revision == app.revision


async def revert(work: PendingWork, app: tables.App, within: ObjectScope, row: Rollout) -> None:
    """Apply the template of the stable revision; how many and where stay."""
    stable = await work.session.get(Deployment, row.stable_id)
    assert stable is not None  # a revision that runs is never forgotten
    before = app.spec
    app.spec = spec_of_revision(before, stable.template)
    app.generation += 1
    app.version, app.updated_at = await work.tx.number(), work.now
    await work.session.flush()
    await apps.apply_app(work, app, within, read_app_spec(app.spec), before, is_going_back=True)
    _audit(work, app, within, differences({"spec": before}, {"spec": app.spec}))


def _audit(work: PendingWork, app: tables.App, within: ObjectScope, changed: Sequence[Diff]) -> None:
    work.tx.audit(
        workspace_id=app.workspace_id,
        action="rollback",
        kind="App",
        object_id=app.id,
        name=str(ref_of(app, within)),
        diff=[each.as_json() for each in changed],
    )
