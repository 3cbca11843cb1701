"""Puts the garbage collector together. Add it last: it shares the informers that others have asked for by then."""

from __future__ import annotations

from shoal.controllers.context import ControllerContext
from shoal.controllers.garbagecollector.graph import Graph
from shoal.controllers.garbagecollector.reconcile import Collector


def add(context: ControllerContext) -> None:
    Collector(context, Graph())
