"""The master keys over the API: which are in use, and moving everything to the one that seals, a part at a time.

A rotation is a series of calls, each of which moves some secrets and says how many are left. Nothing is remembered in
between: whoever calls again goes on, at this control plane or another one.
"""

from __future__ import annotations

from collections.abc import Collection

from starlette.responses import Response

from shoal.control.api.answers import json_answer
from shoal.control.api.bodies import read_optional
from shoal.control.api.calls import Call, Operation, bad_fields
from shoal.control.api.objects import ROOT
from shoal.control.database.engine import Databases
from shoal.control.domain.access import authorize
from shoal.control.domain.fields import Reader
from shoal.control.secrets.rotation import master_keys_in_use, rotate_secrets
from shoal.control.secrets.sealer import EnvelopeSealer
from shoal.errors import BadRequest, ConfigError, Conflict, FieldError

_LIMIT = 500


class MasterKeyPaths:
    def __init__(self, databases: Databases, sealer: EnvelopeSealer | None, *, operators: Collection[str]) -> None:
        self._databases = databases
        self._sealer = sealer
        self._operators = operators

    def operations(self) -> list[Operation]:
        path = f"{ROOT}/master-keys"
        return [
            Operation(
                method="GET", path=path, id="listMasterKeys", tag="secrets", handler=self.list_,
                answers={200: "MasterKeys"}, errors=(409,),
                summary="The master key that seals, and how many secrets are under each",
            ),
            Operation(
                method="POST", path=f"{path}/rotate", id="rotateMasterKey", tag="secrets", handler=self.rotate,
                body="RotateMasterKey", body_optional=True, answers={200: "MasterKeyRotation"},
                errors=(400, 409, 413, 415),
                summary="Move secrets to the master key that seals, or to a new one; call again until complete",
            ),
        ]  # fmt: skip

    async def list_(self, call: Call) -> Response:
        authorize(call.who, "operate", "MasterKey", self._operators)
        masters = self._sealing().masters
        in_use = await master_keys_in_use(self._databases)
        return json_answer(
            {
                "current": await masters.current(),
                "where": masters.where,
                "inUse": [{"masterKey": key, "secrets": count} for key, count in sorted(in_use.items())],
            }
        )

    async def rotate(self, call: Call) -> Response:
        authorize(call.who, "operate", "MasterKey", self._operators)
        errors: list[FieldError] = []
        body = Reader(await read_optional(call.request), "", errors)
        new_key = body.flag("newKey")
        limit = body.integer("limit", _LIMIT, 1, 10_000)
        body.close()
        if errors:
            raise bad_fields(errors)
        try:
            done = await rotate_secrets(
                self._databases, self._sealing(), actor=call.who.actor, new_key=new_key, limit=limit
            )
        except ConfigError as error:
            raise BadRequest(str(error)) from None
        in_use = await master_keys_in_use(self._databases)
        return json_answer(
            {
                "masterKey": done.master_key,
                "moved": done.moved,
                "remaining": sum(count for key, count in in_use.items() if key != done.master_key),
                "complete": done.complete,
                "unmoved": [
                    {"database": each.database, "id": each.secret_id, "name": each.name, "masterKey": each.master_key,
                     "why": each.why}
                    for each in done.unmoved
                ],
            }
        )  # fmt: skip

    def _sealing(self) -> EnvelopeSealer:
        if self._sealer is None:
            raise Conflict("this control plane has no master keys")
        return self._sealer
