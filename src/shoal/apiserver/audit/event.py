"""One audit event: the data recorded during the request, and its JSON line, built later by the writer."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from json.encoder import encode_basestring_ascii
from typing import Any, NamedTuple
from urllib.parse import unquote

import orjson

from shoal.apiserver.audit.policy import LEVELS, METADATA, REQUEST, REQUEST_RESPONSE, AuditGrade
from shoal.apiserver.messages import Request
from shoal.apiserver.negotiate import PROTOBUF, YAML, media_type
from shoal.apiserver.paths import ResourcePath
from shoal.apiserver.user import User
from shoal.base.logs import redact

_NAMED = b'"metadata":{"name":"'
NAME_WITHIN = 600  # the object's name is within this many bytes of a response
_MAX_MESSAGE = 1000
_MAX_AGENT = 1024
_MAX_USERS = 10_000
_DECISION, _REASON = "authorization.k8s.io/decision", "authorization.k8s.io/reason"
_SECRET_KINDS = frozenset({"Secret", "SecretList", "TokenRequest", "TokenReview"})
_PATCH = "patch.webhook.admission.k8s.io/"
_quoted = encode_basestring_ascii


class AuditTrail:
    """The audit data of one request."""

    __slots__ = (
        "annotations", "asker", "audit_id", "decision", "grade", "reason", "received_s", "request", "target", "user",
        "verb",
    )  # fmt: skip

    def __init__(
        self, grade: AuditGrade, audit_id: bytes, request: Request, verb: str, asker: User | None, user: User | None,
        target: ResourcePath | None, received_s: float,
    ) -> None:  # fmt: skip
        self.grade = grade
        self.audit_id = audit_id
        self.request = request
        self.verb = verb
        self.asker = asker
        self.user = user
        self.target = target
        self.received_s = received_s
        self.decision = ""
        self.reason = ""
        self.annotations: dict[str, str] | None = None

    def decided(self, allowed: bool, reason: str = "") -> None:
        """Record the decision of authorization."""
        self.decision = "allow" if allowed else "forbid"
        self.reason = reason


class AuditRecord(NamedTuple):
    """One stage of a request. Nothing of it is decoded or encoded before it is written."""

    trail: AuditTrail
    stage: str
    stage_s: float
    status: int = 0
    body: bytes = b""  # of the answer

    @property
    def size(self) -> int:
        return 1000 + len(self.trail.request.body) + len(self.body)


def line(record: AuditRecord) -> bytes:
    """The event as a line of JSON. Put together from texts, most of them made before: there is one for every write, and
    encoding a dictionary of all this costs several times as much."""
    trail, stage, stage_s, status, body = record
    grade, target, request, received_s = trail.grade, trail.target, trail.request, trail.received_s
    optional = ""
    if trail.user is not trail.asker and trail.user is not None:
        optional = f',"impersonatedUser":{_user(trail.user)}'
    if request.client:
        optional += _source(request.client)
    agent = request.headers.get(b"user-agent")
    if agent is not None:
        optional += _agent(agent if len(agent) <= _MAX_AGENT else agent[:_MAX_AGENT] + b"...TRUNCATED")
    if target is not None:
        name = target.name
        if not name and status == 201 and trail.verb == "create":
            name = _name_in(body)
        optional += _place(target.plural, target.namespace, target.group, target.version, target.subresource)
        optional += f',"name":{_quoted(name)}}}' if name else "}"
    if status:
        optional += _OK.get(status) or _status(status, body, grade)
    if target is not None and grade.level >= REQUEST:
        optional += _bodies(request, body, grade)
    received = micro_time(received_s)
    when = received if stage_s == received_s else micro_time(stage_s)
    return (
        f'{{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"{LEVELS[grade.level]}",'
        f'"auditID":{_quoted(trail.audit_id.decode("latin-1"))},"stage":"{stage}","requestURI":{_uri(request)},'
        f'"verb":{_quoted(trail.verb)},"user":{_user(trail.asker)}{optional},'
        f'"requestReceivedTimestamp":"{received}","stageTimestamp":"{when}"{_annotations(trail)}}}\n'
    ).encode()


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()


@lru_cache(maxsize=8)
def _second(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def micro_time(seconds: float) -> str:
    second = int(seconds)
    return f"{_second(second)}.{str(1_000_000 + int((seconds - second) * 1e6))[1:]}Z"


def _uri(request: Request) -> str:
    uri, query = request.raw_path.decode("latin-1"), request.query
    if query:
        if "oken" in query:
            query = "&".join(map(_parameter, query.split("&")))
        if "eyJ" in query:
            query = redact(unquote(query))
        uri = f"{uri}?{query}"
    return _quoted(uri)


def _parameter(text: str) -> str:
    name, separator, _ = text.partition("=")
    return f"{name}=[redacted]" if separator and "token" in name.lower() else text


@lru_cache(maxsize=1024)
def _agent(agent: bytes) -> str:
    return f',"userAgent":{_quoted(redact(agent.decode("latin-1")))}'


@lru_cache(maxsize=1024)
def _source(client: str) -> str:
    return f',"sourceIPs":[{_quoted(client.rpartition(":")[0])}]'


_shown_users: dict[int, tuple[User, str]] = {}  # by id: users are few, and hashing one costs more than showing it


def _user(user: User | None) -> str:
    if user is None:
        return "{}"
    known = _shown_users.get(id(user))
    if known is not None and known[0] is user:
        return known[1]
    shown: dict[str, Any] = {"username": user.name}
    if user.uid:
        shown["uid"] = user.uid
    if user.groups:
        shown["groups"] = user.groups
    if user.extra:
        shown["extra"] = dict(user.extra)
    text = _json(shown)
    if len(_shown_users) >= _MAX_USERS:
        _shown_users.clear()
    _shown_users[id(user)] = (user, text)
    return text


@lru_cache(maxsize=1024)
def _place(plural: str, namespace: str | None, group: str, version: str, subresource: str) -> str:
    shown = {
        "resource": plural,
        "namespace": namespace,
        "apiGroup": group,
        "apiVersion": version,
        "subresource": subresource,
    }
    return ',"objectRef":' + _json({key: value for key, value in shown.items() if value})[:-1]


def _name_in(body: bytes) -> str:
    """The name of the object an answer shows: objects are encoded with their name at the start."""
    start = body.find(_NAMED, 0, NAME_WITHIN)
    if start < 0:
        return ""
    start += len(_NAMED)
    return body[start : body.find(b'"', start)].decode(errors="replace")


def _status(status: int, body: bytes, grade: AuditGrade) -> str:
    shown: dict[str, Any] = {"metadata": {}, "code": status}
    if status >= 400:
        shown["status"] = "Failure"
        try:
            answer = orjson.loads(body)
            shown["reason"] = answer.get("reason") or ""
            if not grade.confidential:
                shown["message"] = redact(str(answer.get("message") or ""))[:_MAX_MESSAGE]
        except (orjson.JSONDecodeError, AttributeError):
            pass  # not one of our errors: its code says enough
    return f',"responseStatus":{_json(shown)}'


_OK = {status: _status(status, b"", AuditGrade(METADATA)) for status in (200, 201, 202)}


def _annotations(trail: AuditTrail) -> str:
    decision, reason = trail.decision, trail.reason
    if trail.annotations:
        noted: dict[str, str] = {_DECISION: decision, _REASON: reason} if decision else {}
        noted |= trail.annotations
        if trail.grade.level < REQUEST:  # a patch is part of the object
            noted = {name: value for name, value in noted.items() if not name.startswith(_PATCH)}
        return f',"annotations":{_json(noted)}'
    if not decision:
        return ""
    return f',"annotations":{{"{_DECISION}":"{decision}","{_REASON}":{_quoted(reason)}}}'


def _bodies(request: Request, answer: bytes, grade: AuditGrade) -> str:
    text = ""
    if request.body:
        media = media_type(request.headers.get(b"content-type", b""))
        text = _body("requestObject", request.body, media, grade)
    if answer and grade.level >= REQUEST_RESPONSE:
        text += _body("responseObject", answer, "", grade)
    return text


def _body(field: str, body: bytes, media: str, grade: AuditGrade) -> str:
    """The body as JSON; left out when it is invalid, which the answer then says, or when it is a Secret sent to another
    path."""
    obj = _decoded(body, media)
    if obj is None or (isinstance(obj, dict) and obj.get("kind") in _SECRET_KINDS):
        return ""
    if not grade.managed_fields and isinstance(obj, dict):
        for each in (obj, *(obj.get("items") or ())):
            if isinstance(each, dict) and isinstance(each.get("metadata"), dict):
                each["metadata"].pop("managedFields", None)
    return f',"{field}":{_json(obj)}'


def _decoded(body: bytes, media: str) -> Any:
    from shoal.errors import ApiError

    try:
        if media == PROTOBUF:
            from shoal.kube import protobuf

            return protobuf.decode(body)
        if media == YAML or media.endswith("+yaml"):
            from shoal.kube import yamlcodec

            return yamlcodec.loads_object(body, None)
        return orjson.loads(body)
    except (ApiError, orjson.JSONDecodeError, RecursionError):
        return None
