"""Calls on behalf of a workspace: only to hosts that it may call, with a credential of the environment.

The list of hosts is read for each call, so a host that is taken from it is not called again. The values of a
credential are opened here, become headers and are kept nowhere.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

from sqlalchemy import select

from shoal.base.destinations import OutboundRefused, OutboundUrl
from shoal.base.http1.errors import AnswerTooLarge, TransportError
from shoal.base.http1.messages import HttpReply
from shoal.base.outbound import InvalidAuthority, OutboundCall, OutboundCaller
from shoal.control.database.engine import Databases
from shoal.control.database.tables import Credential, Workspace
from shoal.control.domain.model import Sealed
from shoal.control.domain.outbound import OutboundRules
from shoal.control.domain.tenants import TenantPolicy
from shoal.errors import ServiceUnavailable, ShoalError
from shoal.sync.sealing import CannotOpen


class Opener(Protocol):
    """Reads what the control plane has sealed."""

    async def open(self, sealed: Sealed) -> dict[str, str]:
        """The values. Raises ``CannotOpen``, or ``ServiceUnavailable`` while the master key is away."""


class WorkspaceCallFailed(ShoalError):
    """No answer; the text says why, and has no value of a credential."""


@dataclass(frozen=True, slots=True)
class CallScope:
    """For whom a call is made."""

    workspace_id: str
    environment_id: str
    credential: str = ""  # its name


class WorkspaceCalls:
    def __init__(self, databases: Databases, opener: Opener, caller: OutboundCaller) -> None:
        self._databases = databases
        self._opener = opener
        self._caller = caller

    async def send(self, scope: CallScope, call: OutboundCall) -> HttpReply:
        """The answer, whatever its status; raises ``WorkspaceCallFailed``."""
        async with self._databases.of(scope.workspace_id).reading() as session:
            workspace = await session.get(Workspace, scope.workspace_id)
            named = (
                Credential.workspace_id == scope.workspace_id,
                Credential.environment_id == scope.environment_id,
                Credential.name == scope.credential,
            )
            row = await session.scalar(select(Credential).where(*named)) if scope.credential else None
        rules = OutboundRules.of(TenantPolicy.of(workspace).outbound)
        if why := rules.url_fault(call.url):  # before the credential is opened for it
            raise WorkspaceCallFailed(why)
        if scope.credential:
            call = replace(call, headers=(*call.headers, *await self._headers(scope.credential, row)))
        where = OutboundUrl.parse(call.url).netloc  # the rest of a URL may be a secret
        try:
            return await self._caller.send(call, rules.address_fault)
        except TimeoutError:
            raise WorkspaceCallFailed(f"{where} did not answer within {call.timeout_s:g} s") from None
        except AnswerTooLarge:
            raise WorkspaceCallFailed(f"the answer of {where} is larger than {call.answer_bytes} bytes") from None
        except TransportError as error:
            raise WorkspaceCallFailed(f"{where}: {error}") from error
        except InvalidAuthority as error:
            raise WorkspaceCallFailed(f"ca is invalid: {error}") from error
        except OutboundRefused as error:
            raise WorkspaceCallFailed(str(error)) from error

    async def _headers(self, name: str, row: Credential | None) -> list[tuple[str, str]]:
        if row is None:
            raise WorkspaceCallFailed(f"credential {name!r} does not exist in the environment")
        try:
            values = await self._opener.open(Sealed(row.ciphertext, row.data_key, row.master_key))
        except (CannotOpen, ServiceUnavailable) as error:
            raise WorkspaceCallFailed(f"credential {name!r} cannot be opened: {error}") from error
        return sorted(values.items())
