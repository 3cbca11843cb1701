"""Thousands of simulated nodes in one process: no agent per node, no container, the same objects in the API.

manager.add(Fleet(manager, FleetConfig(nodes=1000), clock=clock))
"""

from __future__ import annotations

from shoal.node.simulated.config import FleetConfig
from shoal.node.simulated.fleet import SimulatedFleet
from shoal.node.simulated.model import ANNOTATION_PREFIX, NODE_LABEL, Behaviour, Usage

__all__ = ["ANNOTATION_PREFIX", "NODE_LABEL", "Behaviour", "SimulatedFleet", "FleetConfig", "Usage"]
