"""Data sources of the API: the view now or at a past moment, the fleet, and its freshness."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from shoal.base.access import NOTHING, Access
from shoal.base.clock import Clock
from shoal.errors import Expired
from shoal.navigator.answers.api.parameters import moment_of
from shoal.navigator.answers.checks import CheckStore
from shoal.navigator.answers.fleet import Deployments, read_deployments
from shoal.navigator.answers.scoped import (
    ScopedAdmin,
    ScopedChecks,
    ScopedEdges,
    ScopedFleet,
    ScopedHistory,
    ScopedOptions,
    ScopedView,
)
from shoal.navigator.change_signal import ChangeSignal
from shoal.navigator.model import Cluster, Freshness
from shoal.navigator.view import ClusterAdmin, EdgeAdmin, Edges, Fleet, History, View
from shoal.rest.operations import RestCall

ROOT = "/api/v1"


@dataclass(frozen=True, slots=True)
class Caller:
    """The bearer of a token. ``may_write``: may save and remove checks, forget clusters, and set options of edges, as
    far as ``access`` goes."""

    name: str
    may_write: bool = True
    access: Access = NOTHING


@dataclass(frozen=True, slots=True)
class Sources:
    """``view`` returns the current state; ``changes`` tells when that may have changed."""

    view: Callable[[], View]
    history: History
    edges: Edges
    fleet: Fleet
    checks: CheckStore
    clock: Clock
    changes: ChangeSignal
    admin: ClusterAdmin
    options: EdgeAdmin

    async def seen(self, at: str) -> View:
        """The view that a request asks for: now, or at a moment. ``Expired`` for a moment before the first data, whose
        answer would otherwise look like that of an empty fleet."""
        at_s = self.moment("at", at)
        if at_s is None:
            return self.view()
        view = await self.history.at(at_s)
        if not view.clusters():
            raise await self._before_first_data(at_s)
        return view

    async def _before_first_data(self, at_s: float) -> Expired:
        asked, first_s = moment_text(at_s), await self.history.first_s()
        if first_s is None:
            return Expired(f"at is {asked}: there is no history of that time, because no cluster had connected")
        return Expired(f"at is {asked}: the history begins at {moment_text(first_s)}; use that time or a later one")

    def moment(self, parameter: str, text: str) -> float | None:
        """The moment of a parameter; None when it is empty."""
        return moment_of(parameter, text, self.clock.wall_s())

    def deployments(self) -> Deployments:
        return read_deployments(self.fleet)

    def limited(self, access: Access) -> Sources:
        """Only what ``access`` allows."""
        if access.is_everything:
            return self
        now = ScopedView(self.view(), access)
        return replace(
            self,
            view=lambda: ScopedView(self.view(), access),
            history=ScopedHistory(self.history, now, access),
            edges=ScopedEdges(self.edges, now),
            fleet=ScopedFleet(self.fleet, now),
            checks=ScopedChecks(self.checks),
            admin=ScopedAdmin(self.admin, now),
            options=ScopedOptions(self.options, now),
        )


SourcesOf = Callable[[RestCall[Caller]], Sources]
"""The sources of a call's answer: what its caller may read, and nothing else. Handlers have no others."""


def about(view: View) -> dict[str, Any]:
    """The moment of an answer, and the clusters whose state may be outdated."""
    stale = [each for each in view.clusters() if each.freshness is not Freshness.HEALTHY]
    return {
        "at": moment_text(view.at_s),
        "notFresh": [
            {
                "cluster": each.name,
                "freshness": str(each.freshness),
                "heardSecondsAgo": ago_s(view, each),
                "reason": each.reason,
            }
            for each in stale
        ],
    }


def cluster_json(view: View, cluster: Cluster) -> dict[str, Any]:
    return {
        "name": cluster.name,
        "region": cluster.region,
        "environment": cluster.metadata.get("environment", ""),
        "metadata": dict(cluster.metadata),
        "freshness": str(cluster.freshness),
        "edge": cluster.edge,
        "epoch": cluster.epoch,
        "connectedAt": moment_text(cluster.connected_at_s),
        "heardAt": moment_text(cluster.heard_at_s),
        "heardSecondsAgo": ago_s(view, cluster),
        "kinds": [
            {"kind": each.kind, "state": each.state, "error": each.error, "rows": each.rows,
             "since": moment_text(each.since_s)}
            for each in cluster.kinds
        ],
    }  # fmt: skip


def ago_s(view: View, cluster: Cluster) -> float | None:
    return round(max(0.0, view.at_s - cluster.heard_at_s), 3) if cluster.heard_at_s else None


def moment_text(seconds: float) -> str | None:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds") if seconds else None
