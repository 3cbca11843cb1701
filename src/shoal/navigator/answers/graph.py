"""The service graph: requests to the edges of all clusters at once, and their merged answers.

The graph names the clusters that did not answer, with the reason, so that a missing part is visible.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from shoal.errors import ApiError
from shoal.navigator.answers.asking import whole_answer
from shoal.navigator.answers.fleet import Deployments
from shoal.navigator.answers.query.fields import DEPLOYMENT_LABEL
from shoal.navigator.connections import (
    UNKNOWN,
    CallEndpoint,
    ServiceConnection,
    end_json,
    merged,
    read_connections,
    summed,
)
from shoal.navigator.summary_base import Summary
from shoal.navigator.view import Edges, View
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


async def graph(
    edges: Edges, clusters: Sequence[str], request: GraphRequest, *, places: DeploymentPlaces, deadline_s: float
) -> Json:
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
    detail = merged(_placed(answers.connections, places, request))
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


def _placed(
    connections: Iterable[ServiceConnection], places: DeploymentPlaces, request: GraphRequest
) -> Iterator[ServiceConnection]:
    """With the namespaces and apps of the fleet's deployments; those that were not asked for are left out."""
    for each in connections:
        if not each.destination.deployment:
            yield each
            continue
        destination = places.of(each.destination)
        for end in (each.source, destination):
            if request.namespace in ("", end.namespace) and request.service in ("", end.service):
                yield replace(each, destination=destination)
                break


class DeploymentPlaces:
    """Finds where the deployments of the fleet are, by the labels of their pods. A deployment without pods, such as
    one that was replaced a minute ago, has the namespace of its app's other deployments."""

    def __init__(self, view: View, deployments: Deployments) -> None:
        self._view = view
        self._deployments = deployments
        self._found: dict[str, dict[str, CallEndpoint]] = {}  # id → by cluster

    def of(self, end: CallEndpoint) -> CallEndpoint:
        """In the same cluster if it has pods there."""
        found = self._found.get(end.deployment)
        if found is None:
            found = self._found[end.deployment] = self._places(end.deployment) or self._siblings(end.deployment)
        if not found:
            return CallEndpoint(end.cluster, UNKNOWN, self._deployments.app.get(end.deployment, end.deployment))
        return found.get(end.cluster) or found[min(found)]

    def _places(self, id_: str) -> dict[str, CallEndpoint]:
        found: dict[str, CallEndpoint] = {}
        for row in self._view.labelled("pods", DEPLOYMENT_LABEL, id_):
            if row.cluster not in found and isinstance(row.summary, Summary):
                app = self._deployments.app_of(row.summary.labels) or id_
                found[row.cluster] = CallEndpoint(row.cluster, row.namespace, app)
        return found

    def _siblings(self, id_: str) -> dict[str, CallEndpoint]:
        known = self._deployments
        app = (known.project.get(id_), known.environment.get(id_), known.app.get(id_))
        for other in known.having("app", app[2]) if app[2] is not None else ():
            if (known.project.get(other), known.environment.get(other)) == app[:2] and (found := self._places(other)):
                return found
        return {}


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
