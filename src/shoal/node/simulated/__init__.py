"""Thousands of simulated nodes in one process: the API objects of nodes and pods, without agents and containers.

manager.add(SimulatedFleet(manager, FleetConfig(nodes=1000), clock=clock))
"""

from __future__ import annotations

from shoal.node.simulated.config import FleetConfig
from shoal.node.simulated.fleet import SimulatedFleet
from shoal.node.simulated.model import ANNOTATION_PREFIX, NODE_LABEL, Behaviour, Usage

__all__ = ["ANNOTATION_PREFIX", "NODE_LABEL", "Behaviour", "SimulatedFleet", "FleetConfig", "Usage"]
