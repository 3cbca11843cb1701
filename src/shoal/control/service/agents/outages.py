"""What agents say of the API servers of their clusters: kept with their heartbeats, and told as events of the beginning
and the end, as far as this process has heard of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shoal.control.database.plain import clean
from shoal.sync.keys import Place
from shoal.wire.fleet.v1 import cluster_pb as pb

_REASON_LENGTH = 300

News = Mapping[Place, tuple[str, str, str]]  # reason, type and message of an event


class Outages:
    def __init__(self) -> None:
        self._known: set[Place] = set()
        self._news: dict[Place, tuple[str, str, str]] = {}  # not stored yet

    def note(self, place: Place, outage: pb.ClusterOutage | None, now_ms: int) -> dict[str, Any]:
        """What is to be stored with the heartbeat, by the clock of the control plane: the agent's may be wrong."""
        if outage is None:
            if place in self._known:
                self._known.discard(place)
                self._news[place] = ("ClusterReachable", "Normal", "the cluster's API server answers again")
            return {}
        reason = clean(outage.reason, _REASON_LENGTH)
        if place not in self._known:
            self._known.add(place)
            self._news[place] = ("ClusterUnreachable", "Warning", reason)
        return {"outage": {"reason": reason, "sinceMs": now_ms - round(max(0.0, outage.seconds) * 1000)}}

    def take(self) -> News:
        news, self._news = self._news, {}
        return news

    def put_back(self, news: News) -> None:
        """They could not be stored; newer ones go before."""
        self._news = {**news, **self._news}
