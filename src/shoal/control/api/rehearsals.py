"""Rollouts of apps that are only played, with what may go wrong."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from shoal.base.clock import Clock
from shoal.control.api.bodies import parse_documents
from shoal.control.api.documents import Json
from shoal.control.api.objects import ROOT
from shoal.control.api.parameters import Call
from shoal.control.domain.fleet import Fleet
from shoal.control.domain.model import ObjectRef
from shoal.control.domain.rehearsal_script import read_script
from shoal.control.domain.rehearsals import regions_of, rehearsed
from shoal.control.domain.specs import SpecDocument, parse
from shoal.errors import BadRequest, NotFound, required
from shoal.rest.answers import bad_fields
from shoal.rest.operations import Operation

_YAML = "application/yaml"


class Rehearsal(Struct, forbid_unknown_fields=True):
    """Objects as for apply, as YAML or as documents: Apps, and their Environments where these are not applied yet. The
    script plays faults, bad numbers and approvals; without one everything goes well and is approved at once."""

    text: Annotated[str, Meta(description="YAML")] | UnsetType = UNSET
    documents: list[Any] | UnsetType = UNSET
    script: Annotated[str, Meta(description="YAML")] | UnsetType = UNSET


class Rehearsed(Struct):
    """What `shoal rollout plan -o json` prints: per app its strategy, and the rows of its rollout."""

    items: list[Json]


class RehearsalPaths:
    def __init__(self, fleet: Fleet, clock: Clock) -> None:
        self._fleet = fleet
        self._clock = clock

    def operations(self) -> list[Operation]:
        return [
            Operation(
                method="POST", path=f"{ROOT}/rehearse", id="rehearseRollouts", tag="rollouts", needs="read App",
                handler=self.rehearse, answers={200: Rehearsed}, errors=(BadRequest,),
                summary="Play the rollouts of apps step by step, and change nothing",
            ),
        ]  # fmt: skip

    async def rehearse(self, call: Call, body: Rehearsal) -> Rehearsed:
        given = body.documents if isinstance(body.documents, list) else []
        given = [*given, *(parse_documents(body.text.encode(), _YAML) if body.text else ())]
        wanted = [parse(each) for each in given]
        apps = [each for each in wanted if each.kind.name == "App"]
        if not apps:
            raise bad_fields([required("text", "must have an App")])
        start_ms = round(self._clock.wall_s() * 1000)
        found = []
        for each in apps:
            script, errors = read_script(_script_of(body), regions_of(each))
            if errors:
                raise bad_fields(errors)
            defaults = await self._defaults(call, each, wanted)
            found.append(rehearsed(each, defaults, script, start_ms=start_ms, approves=not body.script))
        return Rehearsed(found)

    async def _defaults(self, call: Call, app: SpecDocument, wanted: list[SpecDocument]) -> Json:
        """The spec of an app's environment: as it comes with the app, else as it was applied."""
        home = ObjectRef("Environment", app.ref.environment, app.ref.project)
        for each in wanted:
            if each.ref == home:
                return dict(each.raw)
        try:
            found: Json = (await self._fleet.get(call.caller.who, home))["spec"]
        except NotFound:
            return {}
        return found


def _script_of(body: Rehearsal) -> Any:
    """A script is one object, or a list of faults, in one document or in several."""
    if not body.script:
        return {}
    found = parse_documents(body.script.encode(), _YAML)
    return found[0] if len(found) == 1 and isinstance(found[0], dict) and "at" not in found[0] else found
