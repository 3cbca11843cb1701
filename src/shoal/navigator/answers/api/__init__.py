"""The navigator's REST API."""

from shoal.navigator.answers.api.wiring import Authenticate, Caller, make_api

__all__ = ["Authenticate", "Caller", "make_api"]
