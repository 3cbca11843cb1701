"""The navigator's REST API."""

from shoal.navigator.answers.api.sources import Caller
from shoal.navigator.answers.api.wiring import Authenticate, make_api

__all__ = ["Authenticate", "Caller", "make_api"]
