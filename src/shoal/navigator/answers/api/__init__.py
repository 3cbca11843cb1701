"""The navigator's REST API: what is known of all clusters, asked over HTTP."""

from shoal.navigator.answers.api.gate import Authenticate, Caller, Gate
from shoal.navigator.answers.api.wiring import make_api

__all__ = ["Authenticate", "Caller", "Gate", "make_api"]
