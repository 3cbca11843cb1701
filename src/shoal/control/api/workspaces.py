"""Workspaces over the API, for administrators of the fleet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from shoal.control.api.access import is_workspace
from shoal.control.api.objects import ROOT
from shoal.control.api.parameters import Call, WorkspaceName
from shoal.control.domain.objects import time_text
from shoal.control.domain.tenants import DEFAULT_QUOTAS, TenantPolicy
from shoal.control.domain.workspaces import FoundWorkspace, WorkspaceChange, Workspaces
from shoal.errors import AlreadyExists, Conflict, NotFound
from shoal.rest.answers import no_such
from shoal.rest.operations import Operation

_OPERATE = "operate Workspace"


class NewWorkspace(Struct, forbid_unknown_fields=True):
    name: WorkspaceName


class QuotaUse(Struct):
    used: int
    limit: int


class WorkspaceQuotas(Struct):
    """What the caller's workspace uses, and may use; by name."""

    quotas: dict[str, QuotaUse]


class ChangedWorkspace(Struct, forbid_unknown_fields=True, rename="camel"):
    """Fields that are left out stay. A quota of null is the default. The default of tolerations is any taint in the
    workspaces that run the fleet, and none in others."""

    quotas: dict[str, int | None] | UnsetType = UNSET
    domains: Annotated[list[str], Meta(max_length=100)] | UnsetType = UNSET
    tolerations: Annotated[list[str], Meta(max_length=100)] | UnsetType = UNSET
    default_tolerations: bool = False  # takes the list back
    outbound: Annotated[list[str], Meta(max_length=100)] | UnsetType = UNSET


class WorkspaceInfo(Struct, rename="camel"):
    """``tokens`` is the number of its users' tokens that have not been revoked. Routes of other workspaces have no
    hosts in ``domains``, and its own have none outside, if there are any. ``tolerations`` are the keys of taints that
    its apps may tolerate, or ``key=value``, or ``*``. ``outbound`` are the hosts that checks and notifications of its
    rollouts may be sent to."""

    name: str
    database: str
    created_at: str
    projects: int
    tokens: int
    quotas: dict[str, QuotaUse]
    domains: list[str]
    tolerations: list[str] | None
    outbound: list[str]


class WorkspaceList(Struct):
    items: list[WorkspaceInfo]


class DeletedWorkspace(Struct, rename="camel"):
    name: str
    revoked_tokens: list[str]


class WorkspacePaths:
    def __init__(self, workspaces: Workspaces) -> None:
        self._workspaces = workspaces

    def operations(self) -> list[Operation]:
        path = f"{ROOT}/workspaces"
        one = f"{path}/{{workspace}}"
        return [
            Operation(
                method="GET", path=path, id="listWorkspaces", tag="workspaces", handler=self.list_, needs=_OPERATE,
                answers={200: WorkspaceList}, summary="The workspaces of the fleet",
            ),
            Operation(
                method="POST", path=path, id="createWorkspace", tag="workspaces", handler=self.create, needs=_OPERATE,
                answers={201: WorkspaceInfo}, errors=(AlreadyExists, Conflict), summary="Create a workspace",
            ),
            Operation(
                method="GET", path=one, id="getWorkspace", tag="workspaces", handler=self.get, needs=_OPERATE,
                answers={200: WorkspaceInfo}, errors=(NotFound,), summary="One workspace",
            ),
            Operation(
                method="PATCH", path=one, id="changeWorkspace", tag="workspaces", handler=self.change, needs=_OPERATE,
                answers={200: WorkspaceInfo}, errors=(NotFound, Conflict),
                summary="Set the quotas, domains, allowed tolerations and allowed outbound hosts of a workspace",
            ),
            Operation(
                method="GET", path=f"{ROOT}/quotas", id="getQuotas", tag="workspaces", handler=self.quotas,
                answers={200: WorkspaceQuotas}, summary="What the workspace uses, and may use",
            ),
            Operation(
                method="DELETE", path=one, id="deleteWorkspace", tag="workspaces", handler=self.delete,
                needs=_OPERATE, answers={200: DeletedWorkspace}, errors=(NotFound, Conflict),
                summary="Delete an empty workspace and revoke its users' tokens. 409 says what is in it",
            ),
        ]  # fmt: skip

    async def list_(self, call: Call) -> WorkspaceList:
        return WorkspaceList([_shown(each) for each in await self._workspaces.list_(call.caller.who)])

    async def create(self, call: Call, body: NewWorkspace) -> WorkspaceInfo:
        return _shown(await self._workspaces.create(call.caller.who, body.name))

    async def get(self, call: Call) -> WorkspaceInfo:
        return _shown(await self._workspaces.get(call.caller.who, _named(call)))

    async def change(self, call: Call, body: ChangedWorkspace) -> WorkspaceInfo:
        change = WorkspaceChange(
            quotas=None if body.quotas is UNSET else body.quotas,
            domains=None if body.domains is UNSET else [each.lower() for each in body.domains],
            tolerations=None if body.tolerations is UNSET else body.tolerations,
            default_tolerations=body.default_tolerations,
            outbound=None if body.outbound is UNSET else body.outbound,
        )
        return _shown(await self._workspaces.change(call.caller.who, _named(call), change))

    async def quotas(self, call: Call) -> WorkspaceQuotas:
        policy, used = await self._workspaces.quotas(call.caller.who)
        return WorkspaceQuotas(_quotas(policy, used))

    async def delete(self, call: Call) -> DeletedWorkspace:
        name = _named(call)
        return DeletedWorkspace(name, await self._workspaces.delete(call.caller.who, name))


def _named(call: Call) -> str:
    name = call.path["workspace"]
    if not is_workspace(name):
        raise no_such("workspace", name)
    return name


def _shown(found: FoundWorkspace) -> WorkspaceInfo:
    allowed = found.policy.tolerations
    return WorkspaceInfo(
        name=found.name, database=found.database, created_at=time_text(found.created_at), projects=found.projects,
        tokens=found.tokens, quotas=_quotas(found.policy, found.used), domains=list(found.domains),
        tolerations=None if allowed is None else list(allowed), outbound=list(found.policy.outbound),
    )  # fmt: skip


def _quotas(policy: TenantPolicy, used: Mapping[str, int]) -> dict[str, QuotaUse]:
    return {what: QuotaUse(used.get(what, 0), policy.limit(what)) for what in DEFAULT_QUOTAS}
