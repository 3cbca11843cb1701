"""Structured logs: one JSON object per line on standard error, with correlation ids and without secrets.

A message is constant text; everything that varies is a field. Fields bound to a logger, and those bound to the
current task by ``correlated``, stand on every line. Values under names that look secret are replaced before they are
written. A line below the level costs one comparison.

    log = get_logger("store")
    log.info("compacted", revision=17, took_s=0.2)
    {"time":"2024-01-01T00:00:00.000Z","level":"info","logger":"store","message":"compacted","revision":17,...}
"""

from __future__ import annotations

import json
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TextIO

from shoal.base.clock import Clock, RealClock
from shoal.errors import ConfigError

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40, "off": 100}

REDACTED = "[redacted]"
_SECRET_NAME = re.compile(
    r"(^|[_.-])(authorization|token|password|passwd|secret|credentials?|cookie|private_?key|key_?data|api_?key)$",
    re.IGNORECASE,
)
_BEARER = re.compile(r"\b(Bearer|Basic)\s+[A-Za-z0-9._~+/=-]+", re.IGNORECASE)
_JWT = re.compile(r"\beyJ[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
_URL_PASSWORD = re.compile(r"(://[^/\s:@]*):[^/\s@]+@")

_correlation: ContextVar[Mapping[str, Any]] = ContextVar("shoal_log_fields", default={})  # noqa: B039  (never mutated)


class _Sink:
    """The output and level of the process; changed by ``configure``."""

    __slots__ = ("clock", "level", "write")

    def __init__(self) -> None:
        self.level = LEVELS["info"]
        self.clock: Clock = RealClock()
        self.write: Callable[[str], object] = _write_stderr


def _write_stderr(line: str) -> None:
    sys.stderr.write(line)
    sys.stderr.flush()


_sink = _Sink()


def configure(*, level: str = "info", stream: TextIO | None = None, clock: Clock | None = None) -> None:
    """Set the level, and for tests the stream and the clock, of every logger of the process."""
    if level not in LEVELS:
        raise ConfigError(f"log_level is {level!r}: choose from {', '.join(LEVELS)}")
    _sink.level = LEVELS[level]
    _sink.write = stream.write if stream is not None else _write_stderr
    _sink.clock = clock or RealClock()


@contextmanager
def correlated(**fields: Any) -> Iterator[None]:
    """Put ``fields`` on every line logged inside, also by tasks started there."""
    token = _correlation.set({**_correlation.get(), **fields})
    try:
        yield
    finally:
        _correlation.reset(token)


def bound(name: str) -> str:
    """The text of a field that ``correlated`` put on the lines of this task; empty when there is none."""
    return str(_correlation.get().get(name, ""))


class Logger:
    """Immutable; ``bind`` makes a new one with more fields."""

    __slots__ = ("_fields", "_name")

    def __init__(self, name: str, fields: Mapping[str, Any]) -> None:
        self._name = name
        self._fields = fields

    def bind(self, **fields: Any) -> Logger:
        return Logger(self._name, {**self._fields, **fields})

    def debug(self, message: str, **fields: Any) -> None:
        if _sink.level <= 10:
            self._log("debug", message, fields)

    def info(self, message: str, **fields: Any) -> None:
        if _sink.level <= 20:
            self._log("info", message, fields)

    def warning(self, message: str, **fields: Any) -> None:
        if _sink.level <= 30:
            self._log("warning", message, fields)

    def error(self, message: str, *, error: BaseException | None = None, **fields: Any) -> None:
        """``error`` adds its text and stack."""
        if _sink.level <= 40:
            if error is not None:
                fields["error"] = f"{type(error).__name__}: {error}"
                fields["stack"] = "".join(traceback.format_exception(error))
            self._log("error", message, fields)

    def _log(self, level: str, message: str, fields: Mapping[str, Any]) -> None:
        line = {
            "time": _sink.clock.now().isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": level,
            "logger": self._name,
            "message": message,
        }
        for source in (_correlation.get(), self._fields, fields):
            for name, value in source.items():
                line[name] = REDACTED if is_secret_name(name) else redact(value)
        _sink.write(json.dumps(line, default=str, separators=(",", ":"), ensure_ascii=False) + "\n")


def get_logger(name: str, **fields: Any) -> Logger:
    """The logger of a part of Shoal; ``name`` is the part, such as ``store`` or ``apiserver.watch``."""
    return Logger(name, fields)


def is_secret_name(name: str) -> bool:
    """Whether a value under this name must not be written."""
    return _SECRET_NAME.search(name) is not None


def redact(value: Any) -> Any:
    """``value`` without data that looks like a credential: bearer and JSON web tokens, passwords in URLs, secret-named
    members."""
    if isinstance(value, str):
        if "earer" in value or "asic" in value:
            value = _BEARER.sub(rf"\1 {REDACTED}", value)
        if "eyJ" in value:
            value = _JWT.sub(REDACTED, value)
        return _URL_PASSWORD.sub(rf"\1:{REDACTED}@", value) if "://" in value else value
    if isinstance(value, Mapping):
        return {name: REDACTED if is_secret_name(str(name)) else redact(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [redact(inner) for inner in value]
    return value
