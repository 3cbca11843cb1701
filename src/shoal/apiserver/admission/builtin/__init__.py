"""The admission plugins that are part of the server."""

from __future__ import annotations

from shoal.apiserver.admission.builtin.wiring import BuiltIn, builtin_chain

__all__ = ["BuiltIn", "builtin_chain"]
