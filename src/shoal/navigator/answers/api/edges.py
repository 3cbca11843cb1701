"""Paths about edges: their options, and the settings that they use."""

from __future__ import annotations

import re
from typing import Any

from shoal.errors import BadRequest, Forbidden, NotFound, ServiceUnavailable
from shoal.navigator.answers.api import bodies
from shoal.navigator.answers.api.sources import ROOT, Caller, SourcesOf
from shoal.navigator.view import EdgeState
from shoal.rest.operations import Operation, RestCall

Json = dict[str, Any]
_is_name = re.compile("[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?").fullmatch


class EdgeOperations:
    def __init__(self, sources: SourcesOf) -> None:
        self._sources = sources

    def operations(self) -> list[Operation]:
        one = f"{ROOT}/edges/{{cluster}}"
        changing = (BadRequest, Forbidden, NotFound, ServiceUnavailable)
        return [
            Operation(
                method="GET", path=f"{ROOT}/edges", id="listEdges", tag="edges", handler=self.edges,
                summary="All edges, with their options and the settings that they use", answers={200: bodies.Edges},
            ),
            Operation(
                method="PATCH", path=f"{ROOT}/edges", id="changeOptionsOfAllEdges", tag="edges", needs="write",
                summary="Set and remove options of all edges", handler=self.change_all, answers={200: bodies.Edges},
                errors=changing,
            ),
            Operation(
                method="GET", path=one, id="getEdge", tag="edges", handler=self.edge, answers={200: bodies.Edge},
                summary="The edge of one cluster", errors=(NotFound,),
            ),
            Operation(
                method="PATCH", path=one, id="changeOptionsOfEdge", tag="edges", needs="write",
                summary="Set and remove options of the edge of one cluster", handler=self.change,
                answers={200: bodies.Edge}, errors=changing,
            ),
            Operation(
                method="POST", path=f"{one}/token", id="createEdgeToken", tag="edges", needs="write",
                summary="A new token for the edge of a cluster; the one before it works for an hour longer",
                handler=self.token, answers={200: bodies.EdgeToken},
                errors=(BadRequest, Forbidden, ServiceUnavailable),
            ),
            Operation(
                method="DELETE", path=f"{one}/token", id="revokeEdgeTokens", tag="edges", needs="write",
                summary="Revoke the tokens of a cluster's edge, which ends its stream", handler=self.revoke,
                answers={200: Json}, errors=(Forbidden, ServiceUnavailable),
            ),
        ]  # fmt: skip

    async def edges(self, call: RestCall[Caller]) -> Json:
        options = self._sources(call).options
        return {"options": dict(options.for_all()), "items": [_edge_json(each) for each in options.edges()]}

    async def edge(self, call: RestCall[Caller]) -> Json:
        return _edge_json(self._sources(call).options.edge(call.path["cluster"]))

    async def change_all(self, call: RestCall[Caller], body: bodies.OptionsWritten) -> Json:
        await self._sources(call).options.change("", body.set, body.unset)
        return await self.edges(call)

    async def change(self, call: RestCall[Caller], body: bodies.OptionsWritten) -> Json:
        await self._sources(call).options.change(call.path["cluster"], body.set, body.unset)
        return await self.edge(call)

    async def token(self, call: RestCall[Caller]) -> Json:
        cluster = call.path["cluster"]
        if not _is_name(cluster):
            raise BadRequest(
                f"cluster is {cluster[:100]!r}: use up to 63 lower-case letters, digits and '-' between them"
            )
        return {"cluster": cluster, "token": await self._sources(call).admin.edge_token(cluster)}

    async def revoke(self, call: RestCall[Caller]) -> Json:
        await self._sources(call).admin.revoke_edge_tokens(call.path["cluster"])
        return {"cluster": call.path["cluster"]}


def _edge_json(edge: EdgeState) -> Json:
    return {
        "cluster": edge.cluster,
        "edge": edge.edge,
        "connected": edge.connected,
        "options": dict(edge.options),
        "taken": edge.taken,
        "error": edge.error,
        "settings": dict(edge.settings),
    }
