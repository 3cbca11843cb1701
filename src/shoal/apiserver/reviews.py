"""Reviews: questions that are answered and not stored (who am I, may they, is this token good)."""

from __future__ import annotations

from collections.abc import Callable

import orjson

from shoal.apiserver.authn.authenticator import Authenticator
from shoal.apiserver.authz.authorizer import Attributes, Authorizer
from shoal.apiserver.body import read_object, write_options
from shoal.apiserver.context import Call, Core, User
from shoal.apiserver.http import Request, Response
from shoal.apiserver.negotiate import representation
from shoal.apiserver.objects import Obj
from shoal.apiserver.write import raise_invalid
from shoal.errors import ApiError, BadRequest


class Reviews:
    """Answers the create-only kinds of authentication.k8s.io and authorization.k8s.io."""

    def __init__(self, core: Core, authenticator: Authenticator, authorizer: Authorizer) -> None:
        self.core = core
        self.authenticator = authenticator
        self.authorizer = authorizer
        self._answers: dict[str, Callable[[Call, Obj], Obj]] = {
            "SelfSubjectReview": self._who_am_i,
            "TokenReview": self._token,
            "SelfSubjectAccessReview": self._may_i,
            "SubjectAccessReview": self._may_they,
            "LocalSubjectAccessReview": self._may_they,
            "SelfSubjectRulesReview": self._my_rules,
        }

    def create(self, call: Call) -> Response:
        representation(call.request.headers.get(b"accept"), collection=False, tables=False)
        obj = read_object(call, write_options(call))
        call.served.rules.default(obj)
        errors = call.served.rules.validate_create(obj)
        if errors:
            raise_invalid(call.served, obj, errors)
        obj["metadata"].setdefault("creationTimestamp", None)
        obj["status"] = self._answers[call.served.resource.kind](call, obj)
        return Response(201, orjson.dumps(obj))

    def _who_am_i(self, call: Call, obj: Obj) -> Obj:
        return {"userInfo": user_info(call.user)}

    def _token(self, call: Call, obj: Obj) -> Obj:
        spec = obj.get("spec") or {}
        token, ours = spec.get("token") or "", self.core.config.issuer
        probe = Request("GET", b"/", {b"authorization": b"Bearer " + token.encode()})
        if ours not in (spec.get("audiences") or [ours]):
            return {"authenticated": False, "user": {}, "error": "the token is not for these audiences"}
        try:
            user = self.authenticator.user_of(probe)
        except ApiError:
            return {"authenticated": False, "user": {}, "error": "the token is not known"}
        return {"authenticated": True, "user": user_info(user), "audiences": [ours]}

    def _may_i(self, call: Call, obj: Obj) -> Obj:
        return self._decide(call.user, obj)

    def _may_they(self, call: Call, obj: Obj) -> Obj:
        spec = obj.get("spec") or {}
        if call.namespace is not None:
            asked = (spec.get("resourceAttributes") or {}).get("namespace")
            if asked != call.namespace:
                raise BadRequest("spec.resourceAttributes.namespace must match metadata.namespace")
        user = User(spec.get("user") or "", tuple(spec.get("groups") or ()), spec.get("uid") or "")
        return self._decide(user, obj)

    def _decide(self, user: User, obj: Obj) -> Obj:
        allowed = self.authorizer.allows(user, _attributes(obj.get("spec") or {}))
        return {"allowed": True} if allowed else {"allowed": False, "reason": "no rule allows it"}

    def _my_rules(self, call: Call, obj: Obj) -> Obj:
        everything = self.authorizer.allows(call.user, Attributes("*", "*", "*"))
        return {
            "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}] if everything else [],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}] if everything else [],
            "incomplete": False,
        }


def user_info(user: User) -> Obj:
    info: Obj = {"username": user.name, "groups": list(user.groups)}
    if user.uid:
        info["uid"] = user.uid
    if user.extra:
        info["extra"] = {name: list(values) for name, values in user.extra}
    return info


def _attributes(spec: Obj) -> Attributes:
    asked = spec.get("resourceAttributes")
    if asked is not None:
        return Attributes(
            asked.get("verb") or "", asked.get("group") or "", asked.get("resource") or "",
            asked.get("subresource") or "", asked.get("namespace") or "", asked.get("name") or "",
        )  # fmt: skip
    path = spec.get("nonResourceAttributes") or {}
    return Attributes(path.get("verb") or "", path=path.get("path") or "/")
