"""What keeps a container or a pod from starting, beyond what the runtime itself reports."""

from __future__ import annotations

from shoal.errors import ShoalError


class ConfigFault(ShoalError):
    """The pod names something that does not exist or cannot be: ``CreateContainerConfigError``."""


class VolumeFault(ShoalError):
    """A volume cannot be set up: ``FailedMount``. Tried again until it can."""

    def __init__(self, volume: str, message: str) -> None:
        super().__init__(message)
        self.volume = volume


class HookFault(ShoalError):
    """A ``postStart`` hook failed: the container is killed."""
