"""Reload of settings: SIGHUP reads them again and applies those that need no restart.

An invalid file changes nothing; the log names the key, the value and the fix. Settings that need a restart are logged
and keep their value until then.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection
from typing import Any, Generic, TypeVar

from shoal.base import logs
from shoal.base.logs import get_logger
from shoal.errors import ConfigError

T = TypeVar("T")

_log = get_logger("settings")


class Reloading(Generic[T]):
    """``load`` reads the settings as at the start. ``dynamic`` has the dotted names of those that may change;
    ``log_level`` always may. The user of the settings sets ``apply``."""

    def __init__(self, load: Callable[[], T], current: T, dynamic: Collection[str] = ()) -> None:
        self._load = load
        self._dynamic = frozenset(dynamic) | {"log_level"}
        self.current = current
        self.apply: Callable[[T], None] = lambda _settings: None

    def __call__(self) -> None:
        try:
            fresh = self._load()
            changed = differing(self.current, fresh)
            taken = [name for name in changed if name in self._dynamic]
            merged = merge(self.current, fresh, taken)
            logs.configure(level=getattr(merged, "log_level", "info"))
        except ConfigError as error:
            _log.error("settings not reloaded", reason=str(error))
            return
        try:
            self.apply(merged)
        except ConfigError as error:
            _log.error("settings not reloaded", reason=str(error))
            return
        self.current = merged
        _log.info("settings reloaded", changed=taken)
        if waiting := [name for name in changed if name not in taken]:
            _log.warning("some settings need a restart", settings=waiting)


def names_of(settings: Any, prefix: str = "") -> list[str]:
    """The dotted names of all settings."""
    found: list[str] = []
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        name = f"{prefix}{field.name}"
        found += names_of(value, f"{name}.") if dataclasses.is_dataclass(value) else [name]
    return found


def differing(before: Any, after: Any) -> list[str]:
    return [name for name in names_of(before) if _value(before, name) != _value(after, name)]


def merge(before: T, after: T, names: Collection[str]) -> T:
    """``before`` with these settings of ``after``. Raises ``ConfigError`` when they do not go together."""
    own = {name: _value(after, name) for name in names if "." not in name}
    groups = {name.partition(".")[0] for name in names if "." in name}
    for group in groups:
        inner = [name.partition(".")[2] for name in names if name.startswith(f"{group}.")]
        own[group] = merge(getattr(before, group), getattr(after, group), inner)
    return dataclasses.replace(before, **own)  # type: ignore[type-var]


def _value(settings: Any, name: str) -> Any:
    for part in name.split("."):
        settings = getattr(settings, part)
    return settings
