"""The AdmissionReview protocol: builds requests and checks responses. Pure."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from shoal.apiserver.admission.model import Admission
from shoal.apiserver.user import User
from shoal.errors import ApiError, ShoalError
from shoal.kube.objects import Obj

GROUP = "admission.k8s.io"
VERSIONS = ("v1", "v1beta1")
JSON_PATCH = "JSONPatch"

Kind = tuple[str, str, str]  # group, version, kind
ResourceOf = tuple[str, str, str]  # group, version, plural


class BadAnswer(ShoalError):
    """A response that does not fit its request; the text says why."""


class Denied(ApiError):
    """A hook's denial, with the hook's code, reason and details."""

    def __init__(self, status: Mapping[str, Any]) -> None:
        details = dict(status.get("details") or {})
        super().__init__(
            status["message"], causes=details.pop("causes", None) or (),
            retry_after_s=details.pop("retryAfterSeconds", None), details=details,
        )  # fmt: skip
        # per rejection; other errors have them per class
        self.code = status["code"]  # type: ignore[misc]
        self.reason = status.get("reason") or ""  # type: ignore[misc]

    def status(self) -> dict[str, Any]:
        shown = super().status()
        if not self.reason:
            del shown["reason"]
        return shown


@dataclass(frozen=True, slots=True)
class HookResponse:
    """A hook's answer."""

    allowed: bool
    status: Mapping[str, Any] | None = None
    patch: list[Any] = field(default_factory=list)
    warnings: tuple[str, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)


def user_info(user: User) -> Obj:
    shown: Obj = {"username": user.name}
    if user.uid:
        shown["uid"] = user.uid
    if user.groups:
        shown["groups"] = list(user.groups)
    if user.extra:
        shown["extra"] = {name: list(values) for name, values in user.extra}
    return shown


def request_of(admission: Admission, kind: Kind, resource: ResourceOf) -> Obj:
    """The request without its objects: the ``request`` variable of expressions, and the base of a review."""
    asked = admission.served.resource
    request: Obj = {
        "kind": _kind(kind),
        "resource": _resource(resource),
        "requestKind": _kind(admission.gvk),
        "requestResource": _resource((asked.group, asked.version, asked.plural)),
        "operation": admission.operation,
        "userInfo": user_info(admission.user),
        "dryRun": admission.dry_run,
        "options": dict(admission.options) or None,
    }
    if admission.subresource:
        request["subResource"] = request["requestSubResource"] = admission.subresource
    if admission.name:
        request["name"] = admission.name
    # a namespace is in itself
    namespace = admission.name if asked.storage_key == "namespaces" else admission.namespace
    if namespace:
        request["namespace"] = namespace
    return request


def review(version: str, uid: str, request: Obj, obj: Obj | None, old: Obj | None) -> Obj:
    body = {"uid": uid, **request, "object": obj, "oldObject": old}
    return {"kind": "AdmissionReview", "apiVersion": f"{GROUP}/{version}", "request": body}


def verdict(answer: Any, version: str, uid: str, *, mutating: bool) -> HookResponse:
    """The parsed response; ``BadAnswer`` when it does not fit the review of this version and uid."""
    response = answer.get("response") if isinstance(answer, dict) else None
    if not isinstance(response, dict):
        raise BadAnswer("webhook response was absent")
    if version == "v1":
        _check_identity(answer, response, uid)
        _check_patch(response, mutating=mutating)
    status = response.get("status")
    return HookResponse(
        response.get("allowed") is True,
        status if isinstance(status, dict) else None,
        _patch(response) if mutating else [],
        tuple(text for text in response.get("warnings") or () if isinstance(text, str) and text),
        {str(name): str(value) for name, value in (response.get("auditAnnotations") or {}).items()},
    )


def _check_identity(answer: Obj, response: Obj, uid: str) -> None:
    if response.get("uid") != uid:
        raise BadAnswer(f'expected response.uid="{uid}", got "{response.get("uid") or ""}"')
    api_version, kind = answer.get("apiVersion") or "", answer.get("kind") or ""
    if (api_version, kind) != (f"{GROUP}/v1", "AdmissionReview"):
        raise BadAnswer(
            f"expected webhook response of {GROUP}/v1, Kind=AdmissionReview, got {api_version}, Kind={kind}"
        )


def _check_patch(response: Obj, *, mutating: bool) -> None:
    patch, kind = response.get("patch"), response.get("patchType")
    if not mutating:
        if patch:
            raise BadAnswer("validating webhook may not return response.patch")
        if kind is not None:
            raise BadAnswer("validating webhook may not return response.patchType")
    elif patch and kind is None:
        raise BadAnswer("webhook returned response.patch but not response.patchType")
    elif not patch and kind is not None:
        raise BadAnswer("webhook returned response.patchType but not response.patch")
    elif kind == "":
        raise BadAnswer('webhook returned invalid response.patchType of ""')


class BadPatch(ShoalError):
    """A patch that cannot be decoded, or has an unknown type."""


def _patch(response: Obj) -> list[Any]:
    encoded = response.get("patch")
    if not encoded or response.get("allowed") is not True:
        return []
    if response.get("patchType") not in (JSON_PATCH, None):
        raise BadPatch(f'unsupported patch type "{response["patchType"]}"')
    try:
        patch = orjson.loads(base64.b64decode(encoded, validate=True))
    except (binascii.Error, ValueError, TypeError) as error:
        raise BadPatch(f"received undecodable patch in webhook response: {error}") from None
    if not isinstance(patch, list):
        raise BadPatch("received undecodable patch in webhook response: it is not a list of operations")
    return patch


def denial(hook: str, status: Mapping[str, Any] | None) -> Denied:
    """The denial as the client gets it."""
    given = dict(status or {})
    text = f'admission webhook "{hook}" denied the request'
    message, reason = given.get("message"), given.get("reason")
    why = f": {message}" if message else f": {reason}" if reason else " without explanation"
    code = given.get("code")
    given["message"] = text + why
    given["code"] = code if isinstance(code, int) and code >= 400 else 400
    return Denied(given)


def _kind(kind: Kind) -> Obj:
    group, version, name = kind
    return {"group": group, "version": version, "kind": name}


def _resource(resource: ResourceOf) -> Obj:
    group, version, name = resource
    return {"group": group, "version": version, "resource": name}
