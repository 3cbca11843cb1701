"""Flow control and audit around each request, as the handler uses them.

A ``Visit`` is what is known of a request while it is here. It takes its seats with ``enter``, or waits for them with
``queued``, gives them back with ``leave``, and its answer goes out through ``finished``.
"""

from __future__ import annotations

from functools import partial

import orjson

from shoal.apiserver.audit.auditor import Auditor
from shoal.apiserver.audit.event import Trail
from shoal.apiserver.authz.authorizer import Attributes, Authorizer
from shoal.apiserver.context import Core, User
from shoal.apiserver.flow.gate import Gate, Passage
from shoal.apiserver.http import SLICE
from shoal.apiserver.messages import Answer, LongResponse, Refusal, Request, Response, header_lines
from shoal.apiserver.negotiate import Query
from shoal.apiserver.paths import Target
from shoal.errors import TooManyRequests

_REFUSED = frozenset({401, 403, 429})
_RBAC = tuple(
    f"{plural}.rbac.authorization.k8s.io" for plural in ("roles", "rolebindings", "clusterroles", "clusterrolebindings")
)
_MAX_REASONS = 10_000
# subresources that last as long as their clients wish: they take no seats
_LASTING = frozenset({"log", "exec", "attach", "portforward", "proxy"})
_UNKNOWN_HOLD_S = 0.1  # for clients that keep coming with credentials nobody knows


class Visit:
    """One request. Only what has been found out is set."""

    __slots__ = (
        "asker", "head", "inside", "may", "passage", "request", "target", "trail", "user", "verb", "width",
    )  # fmt: skip

    def __init__(self, request: Request, head: bytes) -> None:
        self.request = request
        self.head = head  # header lines of the answer
        self.asker: User | None = None  # whose credentials these are
        self.user: User | None = None  # as whom they act
        self.target: Target | None = None
        self.verb = ""
        self.passage: Passage | None = None
        self.trail: Trail | None = None
        self.width = 1  # seats it needs
        self.inside = False  # whether it has them
        self.may = False  # whether authorization has let it through


class Protection:
    """The gate and the auditor of one server."""

    def __init__(self, core: Core) -> None:
        config = core.config
        self.gate = Gate(config.flow, core.clock)
        self.auditor = Auditor(config.audit, core.clock, core.ids.new_uid())
        self._core = core
        self._reasons: dict[tuple[object, ...], str] = {}  # why what is allowed is; until a role or binding changes
        busy = TooManyRequests("Too many requests, please try again later.", retry_after_s=config.flow.retry_after_s)
        self._busy_body = orjson.dumps(busy.status())
        self._busy_headers = ((b"Retry-After", b"%d" % config.flow.retry_after_s),)
        self._busy_hold_s = float(config.flow.retry_after_s)

    def start(self) -> None:
        """Follow the store's levels and schemas, which must be there."""
        self.gate.follow(self._core.store)
        for resource in _RBAC:
            self._core.store.subscribe(resource, lambda _: self._reasons.clear())
        self.auditor.start()

    def stop(self) -> None:
        self.auditor.stop()

    def visit(self, request: Request) -> Visit:
        return Visit(request, self.auditor.head(request))

    def enter(self, visit: Visit, user: User, target: Target | None, verb: str, asked: Query) -> bool:
        """Whether the request may go on at once."""
        visit.user, visit.target, visit.verb = user, target, verb
        if target is None:
            key: tuple[object, ...] = (user.name, user.groups, verb, visit.request.path)
        else:
            namespace = target.namespace or ""
            key = (user.name, user.groups, verb, target.group, target.plural, target.subresource, namespace)
        passage = visit.passage = self.gate.passage(key)
        if (verb == "list" or verb == "watch") and target is not None and not passage.level.exempt:
            visit.width = self._width(verb, target, asked)
        visit.trail = self.auditor.trail(key, visit.head, visit.request, visit.asker, user, target)
        visit.head += passage.head
        if target is not None and target.subresource in _LASTING:
            return True
        inside = visit.inside = self.gate.enter(passage, visit.width)
        return inside

    async def queued(self, visit: Visit) -> bool:
        """Wait for the request's turn; False when it is refused."""
        assert visit.passage is not None
        visit.inside = await self.gate.queued(visit.passage, visit.width)
        return visit.inside

    def leave(self, visit: Visit) -> None:
        """The request is answered, or will never be."""
        if visit.inside and visit.passage is not None:
            visit.inside = False
            self.gate.leave(visit.passage, visit.width)

    def until_sent(self, visit: Visit, answer: Answer) -> Answer:
        """A long list keeps its seats until its client has taken it: until then it is in memory."""
        if not isinstance(answer, Response) or not isinstance(answer.body, bytes) or len(answer.body) <= SLICE:
            return answer
        assert visit.passage is not None
        visit.inside = False
        held = LongResponse(answer.status, answer.body, answer.content_type, answer.headers)
        held.on_sent = partial(self.gate.leave, visit.passage, visit.width)
        return held

    def too_many(self) -> Response:
        """Come back later; who does not wait is made to."""
        answer = Refusal(429, self._busy_body, headers=self._busy_headers)
        answer.hold_s = self._busy_hold_s
        return answer

    def finished(self, visit: Visit, answer: Answer) -> Answer:
        """The answer as it goes out: with its headers, and on record."""
        trail = visit.trail
        if trail is not None:
            if answer.status == 403 and not trail.decision:
                trail.decided(False)
            answer = self.auditor.complete(trail, answer)
        elif answer.status in _REFUSED and isinstance(answer, Response):
            verb = visit.verb or visit.request.method.lower()
            # what comes after authorization refuses for reasons of its own, and what comes before is not its decision
            forbidden = answer.status == 403 and visit.user is not None and not visit.may
            self.auditor.refused(
                visit.head, visit.request, verb, visit.asker, visit.user, visit.target, answer, forbidden=forbidden
            )
        if not isinstance(answer, Response):
            answer.headers = [*answer.headers, *header_lines(visit.head)]
            return answer
        if answer.status == 401:
            refusal = Refusal(401, answer.body, answer.content_type, answer.headers)
            refusal.hold_s = _UNKNOWN_HOLD_S
            answer = refusal
        answer.head = visit.head
        return answer

    def allowed(self, trail: Trail, authorizer: Authorizer, user: User, verb: str, target: Target | None) -> None:
        """Put on record that the request is allowed, and by what."""
        if target is None or authorizer.allows_all(user):
            trail.decided(True)
            return
        namespace, name = target.namespace or "", target.name
        if target.plural == "namespaces" and target.namespace is None:
            namespace = name
        key = (user.name, user.groups, verb, target.group, target.plural, target.subresource, namespace, name)
        reason = self._reasons.get(key)
        if reason is None:
            if len(self._reasons) >= _MAX_REASONS:
                self._reasons.clear()
            asked = Attributes(verb, target.group, target.plural, target.subresource, namespace, name)
            reason = self._reasons[key] = authorizer.authorize(user, asked).reason
        trail.decided(True, reason)

    def panicked(self, visit: Visit) -> None:
        """A fault of ours ended the request."""
        if visit.trail is not None:
            self.auditor.panicked(visit.trail)

    def _width(self, verb: str, target: Target, asked: Query) -> int:
        """Seats of a list, or of a watch that begins with one: by the objects that must be looked at."""
        if target.name:
            return 1
        if verb == "watch" and asked.get("resourceVersion", "0") != "0" and "sendInitialEvents" not in asked:
            return 1
        served = self._core.registry.get(target.group, target.version, target.plural)
        if served is None:
            return 1
        count = self._core.store.count(served.key, target.namespace)
        limit = asked.get("limit", "")
        if limit.isdigit() and len(limit) < 10 and "labelSelector" not in asked and "fieldSelector" not in asked:
            count = min(count, int(limit) or count)
        return self.gate.list_width(count)
