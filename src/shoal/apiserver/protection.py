"""Flow control and audit around each request, as the handler uses them.

A ``RequestContext`` is the state of a request while the server answers it. It takes its seats with ``enter``, or
waits for them with ``queued``, gives them back with ``leave``, and its answer goes out through ``finished``.
"""

from __future__ import annotations

from functools import partial

import orjson

from shoal.apiserver.audit.auditor import Auditor
from shoal.apiserver.audit.event import AuditTrail
from shoal.apiserver.authz.authorizer import Attributes, Authorizer
from shoal.apiserver.context import Core
from shoal.apiserver.flow.gate import FlowGate, FlowMatch
from shoal.apiserver.messages import Answer, LongResponse, RefusedRequest, Request, Response, header_lines
from shoal.apiserver.negotiate import Query
from shoal.apiserver.paths import ResourcePath
from shoal.apiserver.user import User
from shoal.errors import TooManyRequests

_REFUSED = frozenset({401, 403, 429})
_RBAC = tuple(
    f"{plural}.rbac.authorization.k8s.io" for plural in ("roles", "rolebindings", "clusterroles", "clusterrolebindings")
)
_MAX_REASONS = 10_000
# long-running subresources: they take no seats
_LONG_BYTES = 256 * 1024  # of a list that counts as being served until it is sent
_LASTING = frozenset({"log", "exec", "attach", "portforward", "proxy"})
_UNKNOWN_HOLD_S = 0.1  # for clients that keep sending unknown credentials


class RequestContext:
    """One request. Fields are set as they become known."""

    __slots__ = (
        "asker", "head", "inside", "may", "match", "request", "target", "trail", "user", "verb", "width",
    )  # fmt: skip

    def __init__(self, request: Request, head: bytes) -> None:
        self.request = request
        self.head = head  # header lines of the answer
        self.asker: User | None = None  # the authenticated user
        self.user: User | None = None  # the impersonated user, or the authenticated one
        self.target: ResourcePath | None = None
        self.verb = ""
        self.match: FlowMatch | None = None
        self.trail: AuditTrail | None = None
        self.width = 1  # seats it needs
        self.inside = False  # whether it has them
        self.may = False  # whether authorization has let it through


class Protection:
    """The gate and the auditor of one server."""

    def __init__(self, core: Core) -> None:
        config = core.config
        self.gate = FlowGate(config.flow, core.clock)
        self.auditor = Auditor(config.audit, core.clock, core.ids.new_uid())
        self._core = core
        self._reasons: dict[tuple[object, ...], str] = {}  # of allowed requests; cleared when roles change
        busy = TooManyRequests("Too many requests, please try again later.", retry_after_s=config.flow.retry_after_s)
        self._busy_body = orjson.dumps(busy.status()) + b"\n"
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

    def begin(self, request: Request) -> RequestContext:
        return RequestContext(request, self.auditor.head(request))

    def enter(self, context: RequestContext, user: User, target: ResourcePath | None, verb: str, asked: Query) -> bool:
        """Whether the request may run at once."""
        context.user, context.target, context.verb = user, target, verb
        if target is None:
            key: tuple[object, ...] = (user.name, user.groups, verb, context.request.path)
        else:
            namespace = target.namespace or ""
            key = (user.name, user.groups, verb, target.group, target.plural, target.subresource, namespace)
        match = context.match = self.gate.match(key)
        if (verb == "list" or verb == "watch") and target is not None and not match.level.exempt:
            context.width = self._width(verb, target, asked)
        context.trail = self.auditor.trail(key, context.head, context.request, context.asker, user, target)
        context.head += match.head
        if target is not None and target.subresource in _LASTING:
            return True
        inside = context.inside = self.gate.enter(match, context.width)
        return inside

    async def queued(self, context: RequestContext) -> bool:
        """Wait for the request's turn; False when it is rejected."""
        assert context.match is not None
        context.inside = await self.gate.queued(context.match, context.width)
        return context.inside

    def leave(self, context: RequestContext) -> None:
        """Give back the seats of a request that was answered or dropped."""
        if context.inside and context.match is not None:
            context.inside = False
            self.gate.leave(context.match, context.width)

    def until_sent(self, context: RequestContext, answer: Answer) -> Answer:
        """A long list keeps its seats until its client has taken it: until then it is in memory."""
        if not isinstance(answer, Response) or not isinstance(answer.body, bytes) or len(answer.body) <= _LONG_BYTES:
            return answer
        assert context.match is not None
        context.inside = False
        held = LongResponse(answer.status, answer.body + answer.end, answer.content_type, answer.headers)
        held.on_sent = partial(self.gate.leave, context.match, context.width)
        return held

    def too_many(self) -> Response:
        """The 429 answer. Clients that retry before ``Retry-After`` are delayed."""
        answer = RefusedRequest(429, self._busy_body, headers=self._busy_headers)
        answer.hold_s = self._busy_hold_s
        return answer

    def finished(self, context: RequestContext, answer: Answer) -> Answer:
        """The answer to send, with its headers; records it in the audit log."""
        trail = context.trail
        if trail is not None:
            if answer.status == 403 and not trail.decision:
                trail.decided(False)
            answer = self.auditor.complete(trail, answer)
        elif answer.status in _REFUSED and isinstance(answer, Response):
            verb = context.verb or context.request.method.lower()
            # only authorization's own 403 counts, not errors before or after it
            forbidden = answer.status == 403 and context.user is not None and not context.may
            self.auditor.refused(
                context.head,
                context.request,
                verb,
                context.asker,
                context.user,
                context.target,
                answer,
                forbidden=forbidden,
            )
        if not isinstance(answer, Response):
            answer.headers = [*answer.headers, *header_lines(context.head)]
            return answer
        if answer.status == 401:
            refusal = RefusedRequest(401, answer.body, answer.content_type, answer.headers)
            refusal.hold_s = _UNKNOWN_HOLD_S
            answer = refusal
        answer.head = context.head
        return answer

    def allowed(
        self, trail: AuditTrail, authorizer: Authorizer, user: User, verb: str, target: ResourcePath | None
    ) -> None:
        """Record in the audit log that the request is allowed, and the reason."""
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

    def panicked(self, context: RequestContext) -> None:
        """Record an internal error of the request."""
        if context.trail is not None:
            self.auditor.panicked(context.trail)

    def _width(self, verb: str, target: ResourcePath, asked: Query) -> int:
        """Seats of a list, or of a watch that begins with one, by the number of objects to read."""
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
