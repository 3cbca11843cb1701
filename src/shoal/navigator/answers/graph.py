"""The service graph: requests to the edges of all clusters at once, and their merged answers.

The graph names the clusters that did not answer, with the reason, so that a missing part is visible.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from shoal.errors import ApiError
from shoal.navigator.answers.asking import whole_answer
from shoal.navigator.connections import CallEndpoint, ServiceConnection, end_json, merged, read_connections, summed
from shoal.navigator.view import Edges
from shoal.wire.navigator.v1.navigator_pb import ServiceConnections

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphRequest:
    """A period in wall time; ``service`` limits the graph to calls to and from it."""

    start_s: float
    end_s: float
    namespace: str = ""
    service: str = ""


@dataclass(slots=True)
class _Answers:
    connections: list[ServiceConnection] = field(default_factory=list)
    failed: list[Json] = field(default_factory=list)
    warnings: list[Json] = field(default_factory=list)


async def graph(edges: Edges, clusters: Sequence[str], request: GraphRequest, *, deadline_s: float) -> Json:
    question = ServiceConnections(
        start_ms=round(request.start_s * 1000),
        end_ms=round(request.end_s * 1000),
        namespace=request.namespace,
        service=request.service,
    )
    answers = _Answers()
    async with asyncio.TaskGroup() as tasks:
        for cluster in clusters:
            tasks.create_task(_ask(edges, cluster, question, deadline_s, answers), name=f"graph/{cluster}")
    detail = merged(answers.connections)
    failed = sorted(answers.failed, key=lambda each: str(each["cluster"]))
    names = {str(each["cluster"]) for each in failed}
    return {
        "connections": [_shown(pair, parts) for pair, parts in _by_service(detail).items()],
        "clusters": [name for name in clusters if name not in names],
        "failed": failed,
        "warnings": sorted(answers.warnings, key=lambda each: (each["cluster"], each["message"])),
    }


async def _ask(
    edges: Edges, cluster: str, question: ServiceConnections, deadline_s: float, answers: _Answers
) -> None:  # fmt: skip
    try:
        answer = await whole_answer(edges, cluster, question, deadline_s=deadline_s)
        found, warnings = read_connections(orjson.loads(answer), cluster)
    except ApiError as error:
        answers.failed.append({"cluster": cluster, "code": error.reason, "message": error.message})
    except ValueError as error:
        answers.failed.append({"cluster": cluster, "code": "InternalError", "message": f"malformed answer: {error}"})
    else:
        answers.connections += found
        answers.warnings += [{"cluster": cluster, "message": text} for text in warnings]


def _by_service(
    detail: Sequence[ServiceConnection],
) -> dict[tuple[CallEndpoint, CallEndpoint], list[ServiceConnection]]:
    """By the services at both ends, over all clusters."""
    found: dict[tuple[CallEndpoint, CallEndpoint], list[ServiceConnection]] = {}
    for each in detail:
        found.setdefault((_anywhere(each.source), _anywhere(each.destination)), []).append(each)
    return dict(sorted(found.items()))


def _anywhere(end: CallEndpoint) -> CallEndpoint:
    return CallEndpoint("", end.namespace, end.service)


def _shown(pair: tuple[CallEndpoint, CallEndpoint], parts: Sequence[ServiceConnection]) -> Json:
    source, destination = pair
    total = summed(source, destination, parts)
    return {
        "source": {"namespace": source.namespace, "service": source.service},
        "destination": {"namespace": destination.namespace, "service": destination.service},
        **_numbers(total),
        "between": [
            {"source": end_json(each.source)["cluster"], "destination": end_json(each.destination)["cluster"],
             **_numbers(each)}
            for each in parts
        ],
    }  # fmt: skip


def _numbers(each: ServiceConnection) -> Json:
    p99 = each.p99_ms
    success = each.success_rate
    return {
        "requestsPerSecond": round(each.requests, 4),
        "errorsPerSecond": round(each.errors, 4),
        "successRate": None if success is None else round(success, 6),
        "p99Ms": None if p99 is None else round(p99, 3),
    }
