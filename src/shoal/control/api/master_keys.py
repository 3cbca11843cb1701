"""The master keys over the API: which are in use, and moving everything to the one that seals, a part at a time.

A rotation is a series of calls, each of which moves some secrets and says how many are left. Nothing is remembered in
between: the next call continues, at this control plane or another one.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from shoal.control.api.objects import ROOT
from shoal.control.api.parameters import Call
from shoal.control.database.engine import Databases
from shoal.control.secrets.rotation import master_keys_in_use, rotate_secrets
from shoal.control.secrets.sealer import EnvelopeSealer
from shoal.errors import BadRequest, ConfigError, Conflict
from shoal.rest.operations import Operation

_OPERATE = "operate MasterKey"


class KeyUse(Struct, rename="camel"):
    master_key: str
    secrets: int


class MasterKeys(Struct, rename="camel"):
    """``current`` seals what is new."""

    current: str
    where: str
    in_use: list[KeyUse]


class RotateMasterKey(Struct, forbid_unknown_fields=True, rename="camel"):
    """``newKey`` makes a key first; ``limit`` is how many secrets one call moves."""

    new_key: bool = False
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 500


class UnmovedSecret(Struct, rename="camel"):
    database: str
    id: str
    name: str
    master_key: str
    why: str


class MasterKeyRotation(Struct, rename="camel"):
    master_key: str
    moved: int
    remaining: int
    complete: bool
    unmoved: list[UnmovedSecret]


class MasterKeyPaths:
    def __init__(self, databases: Databases, sealer: EnvelopeSealer | None) -> None:
        self._databases = databases
        self._sealer = sealer

    def operations(self) -> list[Operation]:
        path = f"{ROOT}/master-keys"
        return [
            Operation(
                method="GET", path=path, id="listMasterKeys", tag="secrets", handler=self.list_, needs=_OPERATE,
                answers={200: MasterKeys}, errors=(Conflict,),
                summary="The current master key, and the number of secrets under each key",
            ),
            Operation(
                method="POST", path=f"{path}/rotate", id="rotateMasterKey", tag="secrets", handler=self.rotate,
                needs=_OPERATE, answers={200: MasterKeyRotation}, errors=(BadRequest, Conflict),
                summary="Move secrets to the current master key, or to a new one; call again until complete",
            ),
        ]  # fmt: skip

    async def list_(self, call: Call) -> MasterKeys:
        masters = self._sealing().masters
        in_use = await master_keys_in_use(self._databases)
        return MasterKeys(
            await masters.current(), masters.where, [KeyUse(key, count) for key, count in sorted(in_use.items())]
        )

    async def rotate(self, call: Call, body: RotateMasterKey) -> MasterKeyRotation:
        try:
            done = await rotate_secrets(
                self._databases, self._sealing(), actor=call.caller.who.actor, new_key=body.new_key, limit=body.limit
            )
        except ConfigError as error:
            raise BadRequest(str(error)) from None
        in_use = await master_keys_in_use(self._databases)
        return MasterKeyRotation(
            master_key=done.master_key,
            moved=done.moved,
            remaining=sum(count for key, count in in_use.items() if key != done.master_key),
            complete=done.complete,
            unmoved=[
                UnmovedSecret(each.database, each.secret_id, each.name, each.master_key, each.why)
                for each in done.unmoved
            ],
        )

    def _sealing(self) -> EnvelopeSealer:
        if self._sealer is None:
            raise Conflict("this control plane has no master keys")
        return self._sealer
