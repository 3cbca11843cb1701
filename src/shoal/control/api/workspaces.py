"""Workspaces over the API, for administrators of the fleet."""

from __future__ import annotations

from msgspec import Struct

from shoal.control.api.access import is_workspace
from shoal.control.api.objects import ROOT
from shoal.control.api.parameters import Call, WorkspaceName
from shoal.control.domain.objects import time_text
from shoal.control.domain.workspaces import FoundWorkspace, Workspaces
from shoal.errors import AlreadyExists, Conflict, NotFound
from shoal.rest.answers import no_such
from shoal.rest.operations import Operation

_OPERATE = "operate Workspace"


class NewWorkspace(Struct, forbid_unknown_fields=True):
    name: WorkspaceName


class WorkspaceInfo(Struct, rename="camel"):
    """``tokens`` is the number of its users' tokens that have not been revoked."""

    name: str
    database: str
    created_at: str
    projects: int
    tokens: int


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

    async def delete(self, call: Call) -> DeletedWorkspace:
        name = _named(call)
        return DeletedWorkspace(name, await self._workspaces.delete(call.caller.who, name))


def _named(call: Call) -> str:
    name = call.path["workspace"]
    if not is_workspace(name):
        raise no_such("workspace", name)
    return name


def _shown(found: FoundWorkspace) -> WorkspaceInfo:
    return WorkspaceInfo(found.name, found.database, time_text(found.created_at), found.projects, found.tokens)
