"""Builds the garbage collector. Add it last, so that it shares the informers of all others."""

from __future__ import annotations

from shoal.controllers.context import ControllerContext
from shoal.controllers.garbagecollector.graph import Graph
from shoal.controllers.garbagecollector.reconcile import Collector


def add(context: ControllerContext) -> None:
    Collector(context, Graph())
