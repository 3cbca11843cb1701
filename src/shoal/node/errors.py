"""Errors that prevent the start of a container or pod, besides those of the runtime."""

from __future__ import annotations

from shoal.errors import ShoalError


class ConfigFault(ShoalError):
    """The pod refers to a missing or invalid object: ``CreateContainerConfigError``."""


class VolumeFault(ShoalError):
    """A volume cannot be set up: ``FailedMount``. The worker retries."""

    def __init__(self, volume: str, message: str) -> None:
        super().__init__(message)
        self.volume = volume


class HookFault(ShoalError):
    """A lifecycle hook failed. A container whose ``postStart`` hook failed is killed."""
