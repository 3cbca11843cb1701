"""The navigator's REST API: what is known of all clusters, asked over HTTP."""

from shoal.navigator.answers.api.wiring import Authenticate, Caller, make_api

__all__ = ["Authenticate", "Caller", "make_api"]
