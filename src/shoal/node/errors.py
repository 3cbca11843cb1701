"""Errors that keep a container or a pod from starting, besides those of the runtime."""

from __future__ import annotations

from shoal.errors import ShoalError


class ConfigFault(ShoalError):
    """The pod refers to a missing or invalid object: ``CreateContainerConfigError``."""


class VolumeFault(ShoalError):
    """A volume cannot be set up: ``FailedMount``. Tried again until it can."""

    def __init__(self, volume: str, message: str) -> None:
        super().__init__(message)
        self.volume = volume


class HookFault(ShoalError):
    """A ``postStart`` hook failed: the container is killed."""
