"""A runtime without containers: the whole seam as a state machine on the injected clock.

What containers do is told by their command, in a very small part of the shell (``shell``), or by the image
(``Program``). State lives in a ``Machine``, which outlasts the runtime as a real machine outlasts an agent.
"""

from __future__ import annotations

from shoal.testing.simulated_runtime.machine import Machine, Program, SimulatedConfig
from shoal.testing.simulated_runtime.runtime import SimulatedRuntime

__all__ = ["Machine", "Program", "SimulatedConfig", "SimulatedRuntime"]
