"""Errors of HTTP exchanges.

    TransportError                no answer came
    ├── Unreachable               nothing was sent: trying again is safe
    └── Disconnected              the request may have been carried out
        ├── InvalidAnswer         the answer is not HTTP/1.1, or could be read in two ways
        ├── AnswerTooLarge        a limit on the head or the body was exceeded
        └── AnswerTimedOut        a deadline passed

Each message names the peer and the cause. The error of the operating system, where there is one, is the ``__cause__``.
"""

from __future__ import annotations

from shoal.errors import ShoalError


class TransportError(ShoalError):
    """No answer came from the server."""

    told = False  # the outage that it shows is in the log already


class Unreachable(TransportError):
    """There is no connection to the server; nothing was sent."""


class Disconnected(TransportError):
    """The connection broke, or time ran out, before the answer was complete; the request may have been carried out."""

    head_arrived = False  # status and headers were there: only the body is incomplete


class InvalidAnswer(Disconnected):
    """The answer is not HTTP/1.1, or its framing is ambiguous: no byte of it can be trusted."""


class AnswerTooLarge(Disconnected):
    """The head or the body of the answer exceeds its limit."""


class AnswerTimedOut(Disconnected):
    """A deadline passed before the answer was complete."""
