"""One request from the path to the answer: who asks, what is named, which verb, may they; then the verb."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Awaitable, Callable

import orjson

from shoal.apiserver import paths, read, watch
from shoal.apiserver.authn import impersonation
from shoal.apiserver.authn.authenticator import Authenticator
from shoal.apiserver.authz.authorizer import Attributes, Authorizer
from shoal.apiserver.context import Call, Core
from shoal.apiserver.delete import Deleter
from shoal.apiserver.http import Answer, Request, Response
from shoal.apiserver.negotiate import flag, query
from shoal.apiserver.pages import Pages
from shoal.apiserver.patch import Patcher
from shoal.apiserver.reviews import Reviews
from shoal.apiserver.subresources import Subresources
from shoal.apiserver.write import Writer
from shoal.errors import ApiError, BadRequest, InternalError, MethodNotAllowed, NotFound, ServiceUnavailable
from shoal.store import StoreClosed

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_PLAIN_SUBRESOURCES = ("", "status")
_MAX_WARNING = 256
_NOT_FOUND = "the server could not find the requested resource"

Verb = Callable[[Call], Awaitable[Answer]]


class Handler:
    """Answers requests; the HTTP server and the in-process transport both call ``handle``."""

    def __init__(self, core: Core, writer: Writer, authenticator: Authenticator, authorizer: Authorizer) -> None:
        self.core = core
        self.authenticator = authenticator
        self.authorizer = authorizer
        self.writer = writer
        self.patcher = Patcher(writer)
        self.deleter = Deleter(writer)
        self.subresources = Subresources(writer, self.patcher, self.deleter)
        self.reviews = Reviews(core, authenticator, authorizer)
        self.pages = Pages(core)

    async def handle(self, request: Request) -> Answer:
        try:
            user = self.authenticator.user_of(request)
            if impersonation.wanted(request):
                user = impersonation.impersonated(user, request, self.authorizer)
            target = paths.parse(request.path)
            if target is None:
                verb = "get" if request.method in ("GET", "HEAD") else request.method.lower()
                if user.groups != ("system:unauthenticated",):
                    self.authorizer.check(user, Attributes(verb, path=request.path))
                return self.pages.handle(request)
            served = self.core.registry.get(target.group, target.version, target.plural)
            if served is None or (target.namespace is not None and not served.resource.namespaced):
                raise NotFound(_NOT_FOUND)
            call = Call(request, target, served, query(request.query), user)
            verb = self._verb(call)
            if not self.authorizer.allows_all(user):
                namespace = target.namespace or ""
                asked = Attributes(verb, target.group, target.plural, target.subresource, namespace, target.name)
                self.authorizer.check(user, asked)
            answer = await self._run(call, verb)
            if call.warnings or served.crd is not None:
                _add_warnings(answer, call)
            return answer
        except ApiError as error:
            return error_response(error)
        except StoreClosed:
            return error_response(ServiceUnavailable("the server is stopping", retry_after_s=1))

    def _verb(self, call: Call) -> str:
        """The verb as authorization names it."""
        method, target = call.request.method, call.target
        if method in ("GET", "HEAD"):
            wants_watch = target.deprecated_watch or (not target.name and flag(call.query, "watch"))
            if wants_watch and method == "GET":  # the answer to HEAD has no body to stream
                return "watch"
            return "get" if target.name else "list"
        if method == "DELETE" and not target.name:
            return "deletecollection"
        verb = _VERBS.get(method)
        if verb is None:
            raise self._not_allowed(call)
        return verb

    def _run(self, call: Call, verb: str) -> Awaitable[Answer]:
        """The verb, started; not a coroutine itself, since every level costs each time something is waited for."""
        target, resource = call.target, call.served.resource
        if target.name and resource.namespaced and target.namespace is None and not target.deprecated_watch:
            raise NotFound(_NOT_FOUND)
        if not resource.stored:
            return self._review(call, verb)
        if target.subresource:
            sub = resource.subresource(target.subresource)
            if sub is None:
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
            return watch.watch(self.core, call)
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
        """A fault of ours: the client learns that it happened, the log learns what it was."""
        if isinstance(error, RecursionError):
            return error_response(BadRequest("the object is nested too deeply"))
        print(f"unexpected error in {request.method} {request.path}", file=sys.stderr)
        traceback.print_exception(error, file=sys.stderr)
        return error_response(InternalError(f"Internal error occurred: {type(error).__name__}"))


def error_response(error: ApiError) -> Response:
    headers: list[tuple[bytes, bytes]] = [(b"X-Content-Type-Options", b"nosniff")]
    if error.retry_after_s is not None:
        headers.append((b"Retry-After", b"%d" % error.retry_after_s))
    if error.code == 401:
        headers.append((b"WWW-Authenticate", b'Bearer realm="shoal"'))
    return Response(error.code, orjson.dumps(error.status()), b"application/json", headers)


def _add_warnings(answer: Answer, call: Call) -> None:
    texts = list(dict.fromkeys(call.warnings))
    if call.served.crd is not None and call.served.crd.deprecation:
        texts.append(call.served.crd.deprecation)
    if texts:
        answer.headers = [*answer.headers, *((b"Warning", _warning(text)) for text in texts)]


def _warning(text: str) -> bytes:
    clean = " ".join(text.split())[:_MAX_WARNING].replace("\\", "\\\\").replace('"', '\\"')
    return f'299 - "{clean}"'.encode("ascii", "replace")
