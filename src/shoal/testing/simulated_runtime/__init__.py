"""A container runtime for tests that runs no processes: the whole runtime interface, on the injected clock.

The command of a container says what it does, in a small part of the shell (``shell``); without one, its image does
(``Program``). The state is in a ``Machine``, which outlives the runtime as a real machine outlives its agent.
"""

from __future__ import annotations

from shoal.testing.simulated_runtime.machine import Machine, Program, SimulatedConfig
from shoal.testing.simulated_runtime.runtime import SimulatedRuntime

__all__ = ["Machine", "Program", "SimulatedConfig", "SimulatedRuntime"]
