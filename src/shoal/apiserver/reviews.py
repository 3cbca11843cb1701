"""Reviews: create-only kinds that are answered and not stored (access, token and subject reviews)."""

from __future__ import annotations

from collections.abc import Callable

import orjson

from shoal.apiserver.authn.authenticator import Authenticator
from shoal.apiserver.authn.credential import Rejected
from shoal.apiserver.authz.authorizer import Attributes, Authorizer
from shoal.apiserver.body import read_object, write_options
from shoal.apiserver.context import Call, Core
from shoal.apiserver.http import Response
from shoal.apiserver.messages import DocumentResponse
from shoal.apiserver.negotiate import representation
from shoal.apiserver.user import User
from shoal.apiserver.writing.content import invalid_object
from shoal.errors import BadRequest
from shoal.kube import fieldselector, labels
from shoal.kube.objects import Obj

_SIGNS = {"In": "=", "NotIn": "!="}
_LABEL_OPERATORS = frozenset({"In", "NotIn", "Exists", "DoesNotExist"})


class Reviews:
    """Answers the create-only kinds of authentication.k8s.io and authorization.k8s.io."""

    def __init__(self, core: Core, authenticator: Authenticator, authorizer: Authorizer) -> None:
        self.core = core
        self.authenticator = authenticator
        self.authorizer = authorizer
        self._answers: dict[str, Callable[[Call, Obj], Obj]] = {
            "SelfSubjectReview": self._self_subject,
            "TokenReview": self._token,
            "SelfSubjectAccessReview": self._self_subject_access,
            "SubjectAccessReview": self._subject_access,
            "LocalSubjectAccessReview": self._subject_access,
            "SelfSubjectRulesReview": self._self_subject_rules,
        }

    def create(self, call: Call) -> Response:
        representation(call.request.headers.get(b"accept"), collection=False, tables=False)
        obj = read_object(call, write_options(call))
        call.served.default(obj)
        errors = call.served.rules.validate_create(obj)
        if errors:
            raise invalid_object(call.served, obj, errors)
        obj["metadata"].setdefault("creationTimestamp", None)
        obj["status"] = self._answers[call.served.resource.kind](call, obj)
        call.served.default_status(obj)
        return DocumentResponse(201, orjson.dumps(obj))

    def _self_subject(self, call: Call, obj: Obj) -> Obj:
        return {"userInfo": user_info(call.user)}

    def _token(self, call: Call, obj: Obj) -> Obj:
        spec = obj.get("spec") or {}
        try:
            found = self.authenticator.review(spec.get("token") or "", spec.get("audiences") or ())
        except Rejected as why:
            return {"authenticated": False, "user": {}, "error": str(why)}
        return {"authenticated": True, "user": user_info(found.user), "audiences": list(found.audiences)}

    def _self_subject_access(self, call: Call, obj: Obj) -> Obj:
        return self._decide(call.user, obj)

    def _subject_access(self, call: Call, obj: Obj) -> Obj:
        spec = obj.get("spec") or {}
        if call.namespace is not None:
            asked = (spec.get("resourceAttributes") or {}).get("namespace")
            if asked != call.namespace:
                raise BadRequest("spec.resourceAttributes.namespace must match metadata.namespace")
        user = User(spec.get("user") or "", tuple(spec.get("groups") or ()), spec.get("uid") or "")
        return self._decide(user, obj)

    def _decide(self, user: User, obj: Obj) -> Obj:
        faults: list[str] = []
        decision = self.authorizer.authorize(user, _attributes(obj.get("spec") or {}, faults))
        status: Obj = {"allowed": decision.allowed}
        if decision.reason:
            status["reason"] = decision.reason
        if faults:
            status["evaluationError"] = "; ".join(faults)
        return status

    def _self_subject_rules(self, call: Call, obj: Obj) -> Obj:
        rules = self.authorizer.listed_rules(call.user, obj["spec"]["namespace"])
        obj["spec"] = {}
        status: Obj = {
            "resourceRules": rules.resource, "nonResourceRules": rules.non_resource, "incomplete": rules.incomplete,
        }  # fmt: skip
        if rules.error:
            status["evaluationError"] = rules.error
        return status


def user_info(user: User) -> Obj:
    info: Obj = {"username": user.name, "groups": list(user.groups)}
    if user.uid:
        info["uid"] = user.uid
    if user.extra:
        info["extra"] = {name: list(values) for name, values in user.extra}
    return info


def _attributes(spec: Obj, faults: list[str]) -> Attributes:
    """The attributes of a review. Invalid selectors are left out, which widens the request, and reported."""
    asked = spec.get("resourceAttributes")
    if asked is None:
        path = spec.get("nonResourceAttributes") or {}
        return Attributes(path.get("verb") or "", path=path.get("path") or "/")
    fields = _field_selector(asked.get("fieldSelector") or {}, faults)
    _check_label_selector(asked.get("labelSelector") or {}, faults)
    return Attributes(
        asked.get("verb") or "", asked.get("group") or "", asked.get("resource") or "",
        asked.get("subresource") or "", asked.get("namespace") or "", asked.get("name") or "", fields=fields,
    )  # fmt: skip


def _field_selector(selector: Obj, faults: list[str]) -> str:
    raw: str = selector.get("rawSelector") or ""
    if raw:
        try:
            fieldselector.parse(raw)
        except BadRequest:
            faults.append(_ignored("fieldSelector", partially=False))
            return ""
        return raw
    requirements: list[Obj] = selector.get("requirements") or []
    terms = []
    for requirement in requirements:
        sign = _SIGNS.get(requirement.get("operator") or "")
        values: list[str] = requirement.get("values") or []
        if sign is not None and len(values) == 1:
            terms.append(f"{requirement['key']}{sign}{fieldselector.escape(values[0])}")
    if len(terms) < len(requirements):
        faults.append(_ignored("fieldSelector", partially=bool(terms)))
    return ",".join(terms)


def _check_label_selector(selector: Obj, faults: list[str]) -> None:
    """No rule here uses labels; an invalid selector is still reported."""
    if selector.get("rawSelector"):
        try:
            labels.parse(selector["rawSelector"])
        except BadRequest:
            faults.append(_ignored("labelSelector", partially=False))
    known = [each.get("operator") in _LABEL_OPERATORS for each in selector.get("requirements") or ()]
    if not all(known):
        faults.append(_ignored("labelSelector", partially=any(known)))


def _ignored(name: str, *, partially: bool) -> str:
    how = "partially ignored" if partially else "ignored"
    return f"spec.resourceAttributes.{name} {how} due to parse error"
