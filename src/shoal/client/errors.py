"""Errors between a client and a server, besides the server's own errors (``shoal.errors``).

ShoalError
├── TransportError            no answer came
│   ├── Unreachable           nothing was sent: trying again is safe
│   └── Disconnected          the request may have been carried out
└── LostLease                 a write was dropped here because the lease it needs is not held any more
"""

from __future__ import annotations

from shoal.base.http1.errors import Disconnected, TransportError, Unreachable
from shoal.errors import ShoalError

__all__ = ["Disconnected", "LostLease", "TransportError", "Unreachable"]


class LostLease(ShoalError):
    """The lease that fences this client's writes is not held, or may not be by now; the write was not sent or its
    outcome is not known."""
