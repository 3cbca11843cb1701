"""Handles one request: authentication, path, verb, authorization; then runs the verb."""

from __future__ import annotations

from collections.abc import Awaitable

import orjson

from shoal.apiserver import paths, read, watch
from shoal.apiserver.aggregator.service import Aggregator
from shoal.apiserver.authn import impersonation
from shoal.apiserver.authn.authenticator import OPEN_PATHS, UnseenCredential
from shoal.apiserver.authn.service import Authentication
from shoal.apiserver.authz.authorizer import Attributes, Authorizer
from shoal.apiserver.compression import LARGE_BYTES, Compression
from shoal.apiserver.context import Call, Core
from shoal.apiserver.delete import Deleter
from shoal.apiserver.http import Answer, Request, Response
from shoal.apiserver.messages import DocumentResponse, RequestTimedOut, duration
from shoal.apiserver.metrics.service import MetricsApi
from shoal.apiserver.negotiate import Query, flag, query
from shoal.apiserver.nodes.service import NodeAccess
from shoal.apiserver.pages import Pages
from shoal.apiserver.patch import Patcher
from shoal.apiserver.paths import ResourcePath
from shoal.apiserver.protection import Protection, RequestContext
from shoal.apiserver.protection_metrics import define_flow_metrics
from shoal.apiserver.request_metrics import RequestMetrics, define_request_metrics
from shoal.apiserver.reviews import Reviews
from shoal.apiserver.store_metrics import define_store_metrics
from shoal.apiserver.subresources import Subresources
from shoal.apiserver.user import User
from shoal.apiserver.watch import WatchHub
from shoal.apiserver.write import Writer
from shoal.base import tracing
from shoal.base.logs import get_logger
from shoal.base.metrics import Metrics
from shoal.errors import ApiError, BadRequest, InternalError, MethodNotAllowed, NotFound, ServiceUnavailable, Timeout
from shoal.store import StoreClosed, StoreReadOnly, StoreUnavailable

log = get_logger("apiserver")

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_PLAIN_SUBRESOURCES = ("", "status")
_MAX_WARNING = 256  # characters of each, once they are too many in all
_ALL_WARNINGS = 4096
_READ_ONLY_RETRY_S = 5  # copying the store takes seconds; afterwards the response says where the copy is
_DOUBTFUL = frozenset({400, 403, 404, 405, 409, 422})  # errors that depend on stored objects
TRACE = b"traceparent"
_NOT_FOUND = "the server could not find the requested resource"


class Handler:
    """Answers requests; the HTTP server and the in-process transport both call ``handle``."""

    def __init__(
        self,
        core: Core,
        hub: WatchHub,
        writer: Writer,
        authentication: Authentication,
        authorizer: Authorizer,
        metrics: Metrics,
    ) -> None:
        self.core = core
        self.hub = hub
        self.authenticator = authentication.authenticator
        self.authorizer = authorizer
        self.writer = writer
        self.patcher = Patcher(writer)
        self.deleter = Deleter(writer)
        self.nodes = NodeAccess(core, authorizer, writer.admission)
        issue_token = None if authentication.issuer is None else authentication.issuer.issue
        self.subresources = Subresources(writer, self.patcher, self.deleter, self.nodes, issue_token)
        self.metrics = MetricsApi(core, self.nodes)
        self.aggregator = Aggregator(core, writer)
        self.reviews = Reviews(core, self.authenticator, authorizer)
        self._answer = self._serve_shared if core.store.shared else self._serve
        self.protection = Protection(core)
        self.compression = Compression()
        if tracing.is_on():  # else a request costs nothing more
            self.handle = self._traced  # type: ignore[method-assign]
        self._requests = RequestMetrics(core)
        self._now = core.clock.monotonic
        define_flow_metrics(metrics, self.protection)
        define_request_metrics(metrics, self._requests, hub)
        define_store_metrics(metrics, core)
        self.pages = Pages(core, metrics, self.aggregator, self.metrics.schemas, authentication.documents)

    async def handle(self, request: Request) -> Answer:
        """Authenticate, pass flow control, then serve the request."""
        protection, began_s = self.protection, self._now()
        context = protection.begin(request)
        try:
            try:
                user = self.authenticator.user_of(request)
            except UnseenCredential:
                user = await self.authenticator.user_after_all(request)
            context.asker = user
            if impersonation.wanted(request):
                user = impersonation.impersonated(user, request, self.authorizer)
            target = paths.parse(request.path)
            if len(request.path) > paths.LONGEST and paths.is_too_long(request.path, target):
                raise NotFound(_NOT_FOUND)
            asked = query(request.query)
            verb = _verb(request.method, target, asked)
            if protection.enter(context, user, target, verb, asked) or await protection.queued(context):
                if "timeout=" in request.query:
                    _check_timeout(asked)
                answer = await self._answer(context, user, target, verb, asked)
            else:
                answer = protection.too_many()
        except ApiError as error:
            answer = error_response(error)
        except StoreClosed:
            answer = error_response(ServiceUnavailable("the server is stopping", retry_after_s=1))
        except StoreReadOnly as refused:
            answer = error_response(ServiceUnavailable(str(refused), retry_after_s=_READ_ONLY_RETRY_S))
        except StoreUnavailable:
            answer = error_response(ServiceUnavailable("the database does not answer", retry_after_s=1))
        except RequestTimedOut:
            answer = error_response(Timeout("Timeout: request did not complete within the allotted timeout"))
        except Exception:
            protection.panicked(context)
            self._requests.count(context, 500, began_s)
            raise
        finally:
            protection.leave(context)
        series = self._requests.count(context, answer.status, began_s)
        answer = protection.finished(context, answer)
        if not isinstance(answer, Response):
            self._requests.follow(series, answer)
        elif len(answer.body) > LARGE_BYTES and b"accept-encoding" in request.headers:
            return await self.compression.compressed(request, answer)
        return answer

    async def _traced(self, request: Request) -> Answer:
        """Answer a request in a span. What it leads to elsewhere follows from that: the header is passed on."""
        given = request.headers.get(TRACE, b"").decode("latin-1")
        opened = tracing.begin("apiserver.request", parent=given, method=request.method, path=request.path)
        request.headers[TRACE] = opened.text.encode()
        status = 500
        try:
            answer = await Handler.handle(self, request)
            status = answer.status
        finally:
            opened.end(status=status)
        return answer

    async def _serve_shared(
        self, context: RequestContext, user: User, target: ResourcePath | None, verb: str, asked: Query
    ) -> Answer:
        """As ``_serve``, when other servers write too: an error is only final after this server has seen all the writes
        that they have acknowledged."""
        store = self.core.store
        seen = store.revision
        try:
            answer = await self._serve(context, user, target, verb, asked)
            # a kubelet's answer must not be requested twice
            if not isinstance(answer, Response) or answer.status not in _DOUBTFUL or await store.fresh() <= seen:
                return answer
        except ApiError as error:
            if error.code not in _DOUBTFUL or await store.fresh() <= seen:
                raise
        return await self._serve(context, user, target, verb, asked)

    async def _serve(
        self, context: RequestContext, user: User, target: ResourcePath | None, verb: str, asked: Query
    ) -> Answer:
        """Authorize, then run the verb."""
        request, trail = context.request, context.trail
        if target is None:
            if request.path not in OPEN_PATHS:
                self.authorizer.check(user, Attributes(verb, path=request.path))
            context.may = True
            if trail is not None:
                self.protection.allowed(trail, self.authorizer, user, verb, target)
            route = self.aggregator.route_of(request.path) if self.aggregator.routes else None
            if route is not None:
                return await self.aggregator.pass_on(route, request, user, verb)
            return self.pages.handle(request)
        served = self.core.registry.get(target.group, target.version, target.plural)
        if not self.authorizer.allows_all(user):
            self.authorizer.check_target(user, verb, target, asked)
        context.may = True
        if trail is not None:
            self.protection.allowed(trail, self.authorizer, user, verb, target)
        if served is None:
            route = self.aggregator.routes.get((target.group, target.version))
            if route is None:
                raise NotFound(_NOT_FOUND)
            return await self.aggregator.pass_on(route, request, user, verb)
        if target.namespace is not None and not served.resource.namespaced:
            raise NotFound(_NOT_FOUND)
        call = Call(request, target, served, asked, user)
        if not verb and target.subresource != "proxy":
            raise self._not_allowed(call)
        try:
            answer = await self._run(call, verb)
        except ApiError as error:
            if not call.warnings:
                raise
            answer = error_response(error)  # errors are sent with their warnings
        finally:
            if trail is not None and call.annotations:
                trail.annotations = call.annotations
        if call.warnings or served.crd is not None:
            _add_warnings(answer, call)
        return self.protection.until_sent(context, answer) if verb == "list" else answer

    def _run(self, call: Call, verb: str) -> Awaitable[Answer]:
        """Start the verb. Not a coroutine, since every level adds cost to each await."""
        target, resource = call.target, call.served.resource
        if target.name and resource.namespaced and target.namespace is None and not target.deprecated_watch:
            raise NotFound(_NOT_FOUND)
        if not resource.stored:
            return self.metrics.handle(call, verb) if resource.group == MetricsApi.group else self._review(call, verb)
        if target.subresource:
            sub = resource.subresource(target.subresource)
            if sub is None or (target.tail and sub.name != "proxy"):
                raise NotFound(_NOT_FOUND)
            if target.subresource != "status":
                return self.subresources.handle(call, call.request.method)
        elif verb not in resource.verbs:
            raise self._not_allowed(call)
        if verb == "get":
            return read.get(self.core, call)
        if verb == "list":
            return read.list_(self.core, call)
        if verb == "watch":
            return watch.watch(self.hub, call)
        if verb == "create":
            return self._create(call)
        if not target.name:
            if verb == "deletecollection":
                self._check_namespace_given(call)
                return self.deleter.delete_collection(call)
            raise self._not_allowed(call)
        if verb == "patch":
            return self.patcher.patch(call)
        if verb == "update":
            return self.writer.update(call)
        if target.subresource:
            raise self._not_allowed(call)
        return self.deleter.delete(call)

    def _create(self, call: Call) -> Awaitable[Answer]:
        if call.name:
            raise self._not_allowed(call)
        if call.served.resource.namespaced and call.namespace is None:
            raise self._not_allowed(call)
        return self.writer.create(call)

    async def _review(self, call: Call, verb: str) -> Answer:
        if verb != "create" or call.name:
            raise self._not_allowed(call)
        if call.served.resource.plural == "bindings":
            return await self.subresources.bind_by_name(call)
        return self.reviews.create(call)

    def _check_namespace_given(self, call: Call) -> None:
        if call.served.resource.namespaced and call.namespace is None:
            raise self._not_allowed(call)

    @staticmethod
    def _not_allowed(call: Call) -> MethodNotAllowed:
        resource = call.served.resource
        return MethodNotAllowed(
            "the server does not allow this method on the requested resource",
            details={name: value for name, value in (("group", resource.group), ("kind", resource.plural)) if value},
        )

    def on_error(self, request: Request, error: Exception) -> Response:
        """An internal error: the client gets its type, the log the details."""
        if isinstance(error, RecursionError):
            return error_response(BadRequest("the object is nested too deeply"))
        log.error("unexpected error", error=error, method=request.method, path=request.path)
        return error_response(InternalError(f"Internal error occurred: {type(error).__name__}"))


def _check_timeout(asked: Query) -> None:
    text = asked.get("timeout", "")
    if text and duration(text) is None:
        raise BadRequest(f'invalid timeout specified in the request URL - time: invalid duration "{text[:100]}"')


def _verb(method: str, target: ResourcePath | None, asked: Query) -> str:
    """The verb as authorization names it; empty when there is none for the method."""
    if target is None:
        return "get" if method in ("GET", "HEAD") else method.lower()
    if target.deprecated_watch:
        return "watch" if method == "GET" else ""
    if method in ("GET", "HEAD"):
        if not target.name and flag(asked, "watch") and method == "GET":  # the answer to HEAD has no body to stream
            return "watch"
        return "get" if target.name else "list"
    if method == "DELETE" and not target.name:
        return "deletecollection"
    return _VERBS.get(method, "")


def error_response(error: ApiError) -> Response:
    headers: list[tuple[bytes, bytes]] = []
    if error.retry_after_s is not None:
        headers.append((b"Retry-After", b"%d" % error.retry_after_s))
    if error.code == 401:
        headers.append((b"WWW-Authenticate", b'Bearer realm="shoal"'))
    return DocumentResponse(error.code, orjson.dumps(error.status()), b"application/json", headers)


def _add_warnings(answer: Answer, call: Call) -> None:
    texts = list(dict.fromkeys(call.warnings))
    if call.served.crd is not None and call.served.crd.deprecation:
        texts.append(call.served.crd.deprecation)
    if sum(map(len, texts)) > _ALL_WARNINGS:
        texts = [text[:_MAX_WARNING] for text in texts[: _ALL_WARNINGS // _MAX_WARNING]]
    if texts:
        answer.headers = [*answer.headers, *((b"Warning", _warning(text)) for text in texts)]


def _warning(text: str) -> bytes:
    clean = " ".join(text.split()).replace("\\", "\\\\").replace('"', '\\"')
    return f'299 - "{clean}"'.encode("ascii", "replace")
