"""Parameters of requests: paging, dry runs, conditions, and the names in the path."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct, field

from shoal.control.api.access import ApiCaller
from shoal.control.domain.kinds.checks import MAX_NAME, is_name
from shoal.control.domain.model import ObjectRef
from shoal.control.domain.objects import not_found
from shoal.errors import (
    AlreadyExists,
    ApiError,
    BadRequest,
    Conflict,
    NotFound,
    TooLarge,
    UnsupportedMediaType,
)
from shoal.rest.answers import PreconditionFailed
from shoal.rest.openapi import CommonHeaders
from shoal.rest.operations import RestCall

MAX_LIMIT = 500
CHANGING: tuple[type[ApiError], ...] = (
    BadRequest, NotFound, AlreadyExists, Conflict, PreconditionFailed, TooLarge, UnsupportedMediaType,
)  # fmt: skip
"""Statuses with which a change of an object may be refused."""

Call = RestCall[ApiCaller]

Name = Annotated[
    str,
    Meta(
        pattern="^[a-z0-9]([a-z0-9-]*[a-z0-9])?$",
        max_length=MAX_NAME,
        extra={"expected": "must be lower case letters, digits and -, and begin and end with a letter or a digit"},
    ),
]
WorkspaceName = Annotated[
    str,
    Meta(
        pattern="^[a-z0-9]([a-z0-9_-]{0,62})$",
        extra={"expected": "must be at most 63 lower case letters, digits, - and _"},
    ),
]
TokenId = Annotated[str, Meta(pattern="^tok_[a-z0-9]{20}$")]
SessionId = Annotated[str, Meta(pattern="^ses_[a-z0-9]{20}$")]
Limit = Annotated[int, Meta(ge=1, le=MAX_LIMIT, description="The largest number of items to return")]
Position = Annotated[
    str,
    Meta(
        pattern=r"^[\x21-\x7e]+$",
        max_length=256,
        description="The `continue` token of the previous page",
        extra={"expected": "is not a valid token: use the one of the previous page"},
    ),
]
WillChange = Annotated[bool, Meta(description="Return what would change in each place, and change nothing")]

PATH_TYPES: dict[str, Any] = {
    **dict.fromkeys(("name", "project", "environment", "cluster", "shard"), Name), "id": TokenId,
    "session": SessionId, "workspace": WorkspaceName,
}  # fmt: skip


class FleetHeaders(CommonHeaders):
    """What every request to the control plane may carry."""

    workspace: Annotated[str | None, Meta(description="For administrators of the fleet: another workspace")] = field(
        name="X-Shoal-Workspace", default=None
    )


class Limited(Struct, frozen=True, kw_only=True):
    limit: Limit = 100


class Paged(Limited, frozen=True, kw_only=True):
    position: Position = field(name="continue", default="")


class DryRun(Struct, frozen=True, kw_only=True):
    dry_run: WillChange = field(name="dryRun", default=False)


class Applying(DryRun, frozen=True, kw_only=True):
    force: Annotated[
        bool, Meta(description="Apply a revision of an app although a rollout took the same contents back")
    ] = False  # fmt: skip


class IdempotencyKey(Struct, frozen=True):
    key: Annotated[
        str | None,
        Meta(description="Chosen by the client: a request repeated with the same key is done once, with one answer"),
    ] = field(name="Idempotency-Key", default=None)


def ref_of(call: Call, kind: str) -> ObjectRef:
    """The object that the path names. What cannot be a name names nothing."""
    path = call.path
    ref = ObjectRef(kind, path.get("name", ""), path.get("project", ""), path.get("environment", ""))
    if any(is_name(part) for part in (ref.name, ref.project, ref.environment) if part):
        raise not_found(ref)
    return ref
