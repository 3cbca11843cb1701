"""All topics by name: reads what a page asks for, decides who it is for, and opens the feed."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from shoal.control.api.access import is_workspace
from shoal.control.database.tokens import Principal
from shoal.control.domain.live_reads import LiveReads
from shoal.dashboard.live.feed import Feed, Look, Source, Subscription
from shoal.dashboard.live.hub import Feeds
from shoal.dashboard.navigator import NavigatorUser
from shoal.dashboard.topics.model import Audience, Topic
from shoal.errors import BadRequest, Forbidden, not_supported
from shoal.rest.answers import bad_fields, no_such
from shoal.rest.bodies import BodyReader


@dataclass(frozen=True, slots=True)
class PageUser:
    """Who has a page open. ``runs_the_fleet``: may look at every workspace."""

    principal: Principal
    runs_the_fleet: bool

    def audience(self, workspace: str = "") -> Audience:
        """``Forbidden`` for a workspace that is not the user's."""
        own = self.principal.workspace_id
        asked = workspace or own
        if not is_workspace(asked):
            raise BadRequest(f"workspace is {asked[:64]!r}, which is not the name of a workspace")
        if asked != own and not self.runs_the_fleet:
            raise Forbidden(f"{self.principal.name!r} belongs to another workspace and does not run the fleet")
        return Audience(asked, ("*",) if self.runs_the_fleet and asked == own else (f"workspace={asked}",))

    def asker(self, workspace: str = "") -> NavigatorUser:
        """Whom the navigator is asked for."""
        audience = self.audience(workspace)
        return NavigatorUser(f"user/{self.principal.name}", audience.scopes, may_write=self.runs_the_fleet)


class Topics:
    def __init__(self, topics: Iterable[Topic[Any]], feeds: Feeds, reads: LiveReads) -> None:
        self._topics = {topic.name: (topic, BodyReader(topic.parameters)) for topic in topics}
        self._feeds = feeds
        self._reads = reads

    def subscribe(
        self, user: PageUser, id_: int, asked: dict[str, Any], wake: Callable[[], None]
    ) -> tuple[Feed, Subscription]:
        """Open a topic; raises what is wrong with the request."""
        given = dict(asked)
        name, workspace = given.pop("topic", ""), given.pop("workspace", "")
        if name not in self._topics:
            raise bad_fields([not_supported("topic", name[:64], self._topics)])
        if not isinstance(workspace, str):
            raise BadRequest("workspace must be a text")
        topic, reader = self._topics[name]
        audience, parameters = user.audience(workspace), reader.read(given)
        source = topic.source(audience, parameters)
        if audience.workspace != user.principal.workspace_id:
            source = self._of_existing(audience.workspace, source)
        return self._feeds.subscribe((name, audience, parameters), name, source, id_, wake)

    def _of_existing(self, workspace: str, source: Source) -> Source:
        async def looks() -> AsyncGenerator[Look, None]:
            if not await self._reads.has_workspace(workspace):
                raise no_such("workspace", workspace)
            async with aclosing(source()) as found:
                async for look in found:
                    yield look

        return looks
