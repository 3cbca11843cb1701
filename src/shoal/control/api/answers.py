"""Answers of the API: objects with their ETags, results of changes, and public error messages."""

from __future__ import annotations

from typing import Any

from shoal.control.database.failures import DatabaseAway, Unsure
from shoal.control.domain.model import Applied, Deleted, ObjectRef
from shoal.errors import ApiError
from shoal.rest.answers import RestAnswer, json_answer
from shoal.rest.conditions import etag


def object_answer(obj: dict[str, Any]) -> RestAnswer:
    return json_answer(obj, headers={"ETag": etag(obj["metadata"]["version"])})


def applied_answer(applied: Applied) -> RestAnswer:
    status = 201 if applied.created and not applied.dry_run else 200
    return json_answer(applied_json(applied), status, {"ETag": etag(applied.object["metadata"]["version"])})


def applied_json(applied: Applied) -> dict[str, Any]:
    return {
        "object": applied.object,
        "created": applied.created,
        "changed": [diff.as_json() for diff in applied.changed],
        "effects": [effect.as_json() for effect in applied.effects],
        "warnings": applied.warnings,
        "dryRun": applied.dry_run,
    }


def deleted_json(deleted: Deleted) -> dict[str, Any]:
    return {
        "object": deleted.object,
        "also": [ref_json(ref) for ref in deleted.also],
        "effects": [effect.as_json() for effect in deleted.effects],
        "dryRun": deleted.dry_run,
    }


def ref_json(ref: ObjectRef) -> dict[str, str]:
    return {"kind": ref.kind, "name": ref.name, "project": ref.project, "environment": ref.environment}


def public_message(error: ApiError) -> str:
    """Return the message for clients. Driver messages name hosts and users, so they go to the log only."""
    if isinstance(error, Unsure):
        return "the database was lost during the commit: check whether the change was made, then try again"
    if isinstance(error, DatabaseAway):
        return f"the database is unavailable, so nothing was changed: try again in {error.retry_after_s or 1} s"
    return error.message
