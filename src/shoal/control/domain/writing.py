"""What an apply writes into an object's row: the check of its version, the differences, and the row itself."""

from __future__ import annotations

from typing import Any

from shoal.control.domain.model import GROUP, Actor, Diff, ObjectRef
from shoal.control.domain.objects import TABLES, Row, visible_spec, workspace_of
from shoal.control.domain.plan import differences
from shoal.control.domain.specs import KINDS, SpecDocument
from shoal.control.domain.work import PendingWork
from shoal.errors import AlreadyExists, Conflict


def check_version(ref: ObjectRef, row: Row | None, if_match: int | None, *, create_only: bool) -> None:
    plural = KINDS[ref.kind].plural
    if row is not None and create_only:
        raise AlreadyExists.of(plural, GROUP, str(ref))
    if if_match is None:
        return
    actual = row.version if row is not None else 0
    if actual != if_match:
        why = f"it has version {actual}, not {if_match}" if actual else "it no longer exists"
        raise Conflict.of(plural, GROUP, str(ref), f"{why}; read it again")


def changes(document: SpecDocument, row: Row | None, stored: dict[str, Any]) -> list[Diff]:
    kind = document.kind.name
    after = {
        "metadata": {"labels": document.labels, "annotations": document.annotations},
        "spec": visible_spec(kind, stored),
    }
    if row is None:
        return [Diff("spec", None, after["spec"])]
    before = {
        "metadata": {"labels": row.labels, "annotations": row.annotations},
        "spec": visible_spec(kind, row.spec),
    }
    changed = differences(before, after)
    if "fingerprint" in stored and stored["fingerprint"] != row.spec.get("fingerprint"):
        changed.append(Diff("spec.values", "(sealed)", "(sealed)"))
    return changed


def new_row(work: PendingWork, who: Actor, document: SpecDocument, new_id: str) -> Row:
    kind = document.kind.name
    row = TABLES[kind](
        id=new_id,
        workspace_id=workspace_of(kind, who.workspace_id),
        name=document.ref.name,
        generation=0,
        created_at=work.now,
    )
    work.session.add(row)
    return row


def fill(row: Row, document: SpecDocument, spec: dict[str, Any], columns: dict[str, Any]) -> None:
    """Write a document into its row. A different spec is a new generation."""
    for name, value in columns.items():
        setattr(row, name, value)
    row.generation += 0 if row.spec == spec else 1
    row.labels, row.annotations, row.spec = document.labels, document.annotations, spec


def kept(before: dict[str, Any] | None, stored: dict[str, Any]) -> dict[str, Any]:
    """What the control plane keeps in a spec stays when the values were not given again."""
    if before is None or "fingerprint" not in before or "fingerprint" in stored:
        return {}
    return {"fingerprint": before["fingerprint"]}
