"""What topics are made of: who may see their rows, their parameters, and where the rows come from."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from msgspec import Struct

from shoal.base.clock import Clock
from shoal.control.domain.fleet import Fleet
from shoal.control.domain.live_reads import LiveReads
from shoal.control.domain.model import Actor
from shoal.dashboard.live.feed import Source
from shoal.dashboard.live.ticks import Remembered, Ticks
from shoal.dashboard.navigator import NavigatorClient, NavigatorUser
from shoal.sync.keys import Place

P = TypeVar("P", bound=Struct)
_MOST_REMEMBERED = 64


@dataclass(frozen=True, slots=True)
class Audience:
    """Everything that decides which rows may be seen. Pages with the same audience share what is computed.
    ``scopes`` are for the navigator."""

    workspace: str
    scopes: tuple[str, ...]

    @property
    def reader(self) -> Actor:
        """Reads for all of them, with the rights that the least of them has."""
        return Actor(self.workspace, "page", "viewer")

    @property
    def sees_everything(self) -> bool:
        """They run the fleet."""
        return "*" in self.scopes

    @property
    def asker(self) -> NavigatorUser:
        return NavigatorUser("page", self.scopes)


class NoParameters(Struct, frozen=True, forbid_unknown_fields=True):
    pass


@dataclass(frozen=True, slots=True)
class Topic(Generic[P]):
    name: str
    parameters: type[P]
    source: Callable[[Audience, P], Source]


Overview = tuple[int, dict[str, Any]]
"""A moment, and the status of a workspace then."""


@dataclass(slots=True)
class TopicDeps:
    """``navigator`` asks it, where there is one. ``broken``: when the streams of a place's agent ended, in
    milliseconds, unless there are others."""

    fleet: Fleet
    reads: LiveReads
    ticks: Ticks
    clock: Clock
    navigator: NavigatorClient
    broken: Callable[[], Mapping[Place, int]] = dict
    _remembered: dict[Hashable, Remembered[Any]] = field(default_factory=dict)

    def remembered(self, key: Hashable, read: Any) -> Remembered[Any]:
        """What several topics read together, by what it is and for whom."""
        found = self._remembered.get(key)
        if found is None:
            if len(self._remembered) >= _MOST_REMEMBERED:
                self._remembered.pop(next(iter(self._remembered)))
            found = self._remembered[key] = Remembered(self.ticks, self.clock, read)
        return found

    async def overview(self, audience: Audience, *, old_s: float = 0.0) -> Overview:
        """Of the audience's workspace: read once for all topics that show parts of it. ``old_s``: what was read so long
        ago will do."""

        async def read() -> Overview:
            now = self.reads.now_ms()
            return now, await self.fleet.status(audience.reader, now=now)

        found: Overview = await self.remembered(("overview", audience.workspace), read).get(old_s=old_s)
        return found
