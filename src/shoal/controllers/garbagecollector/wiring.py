"""Puts the garbage collector together. Add it last: it shares the informers that others have asked for by then."""

from __future__ import annotations

from shoal.controllers.garbagecollector.graph import Graph
from shoal.controllers.garbagecollector.reconcile import Collector
from shoal.controllers.kit import Kit


def add(kit: Kit) -> None:
    Collector(kit, Graph())
