"""What the bearer of a token may read: clusters, namespaces and workspaces, as a value that can travel.

A *scope* is a text such as ``cluster=eu-1,namespace=team-*``. Within a scope every key that is named must match, and of
several values of one key one must; ``*`` and ``?`` stand for any text and any character. ``*`` alone is everything.
An *access* is several scopes, of which one must match; without any it allows nothing. Tokens store these texts, and a
grant that one process signs for another carries them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import translate
from functools import lru_cache
from re import Pattern
from re import compile as pattern_of

from shoal.errors import ConfigError

_ALL = "*"
_KEYS = {"cluster": "clusters", "namespace": "namespaces", "workspace": "workspaces"}
_ALLOWED = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._*?")
_LONGEST = 253
_MOST_VALUES = 64
_MOST_SCOPES = 64


@dataclass(frozen=True, slots=True)
class AccessScope:
    """Patterns by key; none: any value."""

    clusters: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    workspaces: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> AccessScope:
        """``ConfigError`` says what is wrong with the text."""
        if text.strip() == _ALL:
            return cls()
        found: dict[str, list[str]] = {}
        for part in text.split(","):
            key, sign, value = (each.strip() for each in part.partition("="))
            if not sign or key not in _KEYS:
                raise ConfigError(
                    f"scope {text[:200]!r}: {part.strip()[:100]!r} must be KEY=VALUE with one of the keys "
                    f"{', '.join(_KEYS)}; for everything use {_ALL!r}"
                )
            if not value or len(value) > _LONGEST or not _ALLOWED.issuperset(value):
                raise ConfigError(
                    f"scope {text[:200]!r}: the value of {key} is {value[:100]!r}; use a name, with * for any text and "
                    "? for any character"
                )
            found.setdefault(_KEYS[key], []).append(value)
        if sum(len(values) for values in found.values()) > _MOST_VALUES:
            raise ConfigError(f"scope {text[:200]!r}: use at most {_MOST_VALUES} values, or several scopes")
        return cls(**{key: tuple(dict.fromkeys(values)) for key, values in found.items()})

    def __str__(self) -> str:
        parts = [f"{key}={value}" for key, field in _KEYS.items() for value in getattr(self, field)]
        return ",".join(parts) or _ALL

    @property
    def is_everything(self) -> bool:
        return not (self.clusters or self.namespaces or self.workspaces)

    @property
    def is_of_whole_clusters(self) -> bool:
        return not (self.namespaces or self.workspaces)


@dataclass(frozen=True, slots=True)
class Access:
    scopes: tuple[AccessScope, ...] = ()

    @classmethod
    def parse(cls, texts: Iterable[str]) -> Access:
        scopes = tuple(dict.fromkeys(AccessScope.parse(text) for text in texts))
        if len(scopes) > _MOST_SCOPES:
            raise ConfigError(f"{len(scopes)} scopes: use at most {_MOST_SCOPES}")
        return cls(scopes)

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(str(scope) for scope in self.scopes)

    @property
    def is_everything(self) -> bool:
        return any(scope.is_everything for scope in self.scopes)

    def of_cluster(self, cluster: str) -> tuple[AccessScope, ...]:
        """The scopes that matter in a cluster."""
        return tuple(scope for scope in self.scopes if not scope.clusters or matches(scope.clusters, cluster))


NOTHING = Access()
EVERYTHING = Access((AccessScope(),))


def matches(patterns: Iterable[str], name: str) -> bool:
    return any(_compiled(pattern).match(name) is not None for pattern in patterns)


@lru_cache(maxsize=4096)
def _compiled(pattern: str) -> Pattern[str]:
    return pattern_of(translate(pattern))
