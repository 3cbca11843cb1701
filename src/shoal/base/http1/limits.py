"""Bounds of an exchange: how large an answer may be, and how long each part of it may take."""

from __future__ import annotations

from dataclasses import dataclass

from shoal.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerLimits:
    """How much of an answer a connection accepts."""

    head_bytes: int = 256 * 1024  # of names and values, trailers included; also of bytes that bring no body
    headers: int = 1000  # trailers included
    body_bytes: int | None = None  # None: no limit
    buffered_bytes: int = 4 * 1024 * 1024  # of a streamed body that is not read yet; more pauses reading the socket

    def __post_init__(self) -> None:
        if min(self.head_bytes, self.headers, self.buffered_bytes) < 1:
            raise ConfigError("the limits of an answer must be 1 or more")
        if self.body_bytes is not None and self.body_bytes < 0:
            raise ConfigError(f"body_bytes is {self.body_bytes}: use 0 or more, or None for no limit")


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """How long an answer may take; None: no limit. Connecting has its own (``dial``)."""

    head_s: float | None = None  # from sending to the status and headers
    total_s: float | None = None  # from sending to the last byte
    idle_s: float | None = None  # without a byte of the body; time in which reading is paused does not count

    def __post_init__(self) -> None:
        if any(each is not None and each <= 0 for each in (self.head_s, self.total_s, self.idle_s)):
            raise ConfigError("deadlines must be more than 0 seconds")


DEFAULT_LIMITS = AnswerLimits()
NO_DEADLINES = Deadlines()
