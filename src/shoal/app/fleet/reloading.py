"""Settings that change while a process runs: SIGHUP reads them again, and what may change without a restart does.

A file that is wrong is refused as a whole, with the key, the value and the fix, and nothing changes. Settings that
cannot change now are named and stay as they are until the next start.
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
    """``load`` makes the settings as the start did. ``dynamic`` are the dotted names of those that may change;
    ``log_level`` always may. Whoever uses the settings sets ``apply``."""

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
            _log.error("settings not taken over", reason=str(error))
            return
        self.current = merged
        self.apply(merged)
        _log.info("settings taken over", changed=taken)
        if waiting := [name for name in changed if name not in taken]:
            _log.warning("some settings change at the next start only", settings=waiting)


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
